"""A logistic pool of log-odds that learns online: how far to extremise, whom to trust, which bias to take out.

    log-odds of the pool  z = w.x + b,   x_i = log(p_i / (1 - p_i)),

from w = 1/n each and b = 0, the mean of the log-odds, whose sum of weights is the extremising factor (Satopaa
et al. 2014; Baron et al. 2014). The prior on it is normal with standard deviation one half about 1 (each w_i: variance
1 / (4 n)), that of b is one: strong enough that a hundred states do not undo the mean of forecasters who were right all
along, gone after a thousand.

The log-likelihood of a state y at z has a quadratic lower bound that touches it at the decision's own log-odds z_0
(Jaakkola and Jordan 2000): (y - 1/2) z - v(z_0) z^2 / 2 + const, with v(z) = tanh(z/2) / (2 z). Its parameters were
fixed at decision time, so the sum of the bounds is two sums, over the states learned, of

    v(z_0) x x'   and   (y - 1/2) x,

and the pool is where prior and sum have their maximum: one linear system. Sums have no order, in whole units of 2^-32,
so neither has learning. A Newton step has the same shape with the curvature p (1 - p) in place of v, but that is no
bound: one surprise where p is near 0 moves it far too far. No regret bound is claimed of it.

An expert who is silent counts as the mean log-odds of the others; where all are, x is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stream_agg.learn.squint import SCALE, Floats, Ints

SURE = 0.02
"""Reports closer to 0 or 1 than this count as this far from it: what is beyond says more of a forecaster's rounding
than of the event, and one 0 with an infinite log-odds would overrule all others for ever."""

SPREAD, BIAS = 0.5, 1.0
"""Prior standard deviations of the extremising factor and of b."""

DIGITS = 9
"""Log-odds are rounded to so many decimals: the last bits of a linear system differ between machines."""


@dataclass(slots=True)
class LogisticSums:
    """What was learned, in units of 1 / SCALE: sum of v x x', shape (n+1, n+1), and of (y - 1/2) x, shape (n+1,)."""

    curvature: Ints
    pull: Ints


class LogisticPool:
    """The pool of n experts.

    >>> pool = LogisticPool(2)
    >>> round(pool.log_odds(pool.nothing(), pool.inputs([0.5, 0.8])), 6)  # the mean of 0 and log 4
    0.693147
    """

    def __init__(self, experts: int) -> None:
        precision = np.append(np.full(experts, experts / SPREAD**2), BIAS**-2)
        self._size = experts + 1
        self._precision = np.diag(precision)
        self._start = precision * np.append(np.full(experts, 1 / experts), 0.0)
        self._solved: tuple[LogisticSums, Floats] | None = None

    def nothing(self) -> LogisticSums:
        """Before any state."""
        size = self._size
        return LogisticSums(np.zeros((size, size), dtype=np.int64), np.zeros(size, dtype=np.int64))

    def inputs(self, reports: Sequence[float | None]) -> Floats:
        """x of a profile as reported (None: silent), with a 1 for b at its end, shape (n+1,)."""
        odds = [None if p is None else _log_odds(p) for p in reports]
        heard = [x for x in odds if x is not None]
        mean = sum(heard) / len(heard) if heard else 0.0
        return np.array([*(mean if x is None else x for x in odds), 1.0])

    def log_odds(self, known: LogisticSums, x: Floats) -> float:
        """z, rounded."""
        if self._solved is None or self._solved[0] is not known:
            weights = np.linalg.solve(self._precision + known.curvature / SCALE, self._start + known.pull / SCALE)
            self._solved = known, weights
        return round(float(self._solved[1] @ x), DIGITS)

    def learn(self, known: LogisticSums, x: Floats, log_odds: float, state: int) -> None:
        """Learn the state of an event that had these inputs and log-odds at its decision."""
        v = math.tanh(log_odds / 2) / (2 * log_odds) if log_odds else 0.25
        known.curvature += np.rint(np.outer(x, x) * (v * SCALE)).astype(np.int64)
        known.pull += np.rint(x * ((state - 0.5) * SCALE)).astype(np.int64)
        self._solved = None


def _log_odds(p: float) -> float:
    p = min(max(p, SURE), 1 - SURE)
    return math.log(p / (1 - p))
