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
from dataclasses import dataclass

import numpy as np
from numba import njit

from stream_agg.learn.squint import SCALE, Floats, Ints

SURE = 0.02
"""Reports closer to 0 or 1 than this count as this far from it: what is beyond says more of a forecaster's rounding
than of the event, and one 0 with an infinite log-odds would overrule all others for ever."""

SPREAD, BIAS = 0.5, 1.0
"""Prior standard deviations of the extremising factor and of b."""

UNITS = 1e9
"""Log-odds are rounded to whole units of 1 / UNITS: the last bits of a linear system differ between machines."""


@dataclass(slots=True)
class LogisticSums:
    """What was learned, in units of 1 / SCALE: sum of v x x', shape (n+1, n+1), and of (y - 1/2) x, shape (n+1,)."""

    curvature: Ints
    pull: Ints


class LogisticPool:
    """The pool of n experts.

    >>> pool = LogisticPool(2)
    >>> round(pool.log_odds(pool.nothing(), np.array([0.5, 0.8])), 6)  # the mean of 0 and log 4
    0.693147
    """

    def __init__(self, experts: int) -> None:
        precision = np.append(np.full(experts, experts / SPREAD**2), BIAS**-2)
        self._size = experts + 1
        self._precision = precision
        self._start = precision * np.append(np.full(experts, 1 / experts), 0.0)
        self._solved: tuple[LogisticSums, Floats] | None = None

    def nothing(self) -> LogisticSums:
        """Before any state."""
        size = self._size
        return LogisticSums(np.zeros((size, size), dtype=np.int64), np.zeros(size, dtype=np.int64))

    def weights(self, known: LogisticSums) -> Floats:
        """w and b at its end, shape (n+1,); the same until something is learned."""
        if self._solved is None or self._solved[0] is not known:
            self._solved = known, np.asarray(_best(self._precision, self._start, known.curvature, known.pull))
        return self._solved[1]

    def log_odds(self, known: LogisticSums, reports: Floats) -> float:
        """z of a profile as reported (nan: silent), rounded."""
        return float(log_odds(self.weights(known), reports))

    def learn(self, known: LogisticSums, reports: Floats, log_odds: float, state: int) -> None:
        """Learn the state of an event that had these reports, and these log-odds at its decision."""
        v = math.tanh(log_odds / 2) / (2 * log_odds) if log_odds else 0.25
        _add(known.curvature, known.pull, reports, v, state - 0.5)
        self._solved = None


@njit(cache=True)
def log_odds(weights: Floats, reports: Floats) -> float:
    """`LogisticPool.log_odds` at its `weights`, for compiled code."""
    x, z = inputs(reports), 0.0
    for i in range(len(x)):
        z += weights[i] * x[i]
    return float(np.rint(z * UNITS) / UNITS)


@njit(cache=True)
def inputs(reports: Floats) -> Floats:
    """x of a profile as reported (nan: silent), with a 1 for b at its end, shape (n+1,)."""
    x, heard, total = np.empty(len(reports) + 1), 0, 0.0
    for i, said in enumerate(reports):
        p = min(max(said, SURE), 1 - SURE)
        if not np.isnan(said):
            x[i] = np.log(p / (1 - p))
            heard, total = heard + 1, total + x[i]
    for i, said in enumerate(reports):
        if np.isnan(said):
            x[i] = total / max(heard, 1)
    x[-1] = 1.0
    return x


@njit(cache=True)
def _add(curvature: Ints, pull: Ints, reports: Floats, v: float, half: float) -> None:
    x = inputs(reports)
    for i in range(len(x)):
        for j in range(len(x)):
            curvature[i, j] += np.int64(np.rint(v * SCALE * (x[i] * x[j])))
        pull[i] += np.int64(np.rint(half * SCALE * x[i]))


@njit(cache=True)
def _best(precision: Floats, start: Floats, curvature: Ints, pull: Ints) -> Floats:
    """Where prior and sums have their maximum, by the factors of Cholesky."""
    size = len(start)
    low, found = curvature / SCALE + np.diag(precision), start + pull / SCALE
    for i in range(size):
        for j in range(i + 1):
            for k in range(j):
                low[i, j] -= low[i, k] * low[j, k]
            low[i, j] = np.sqrt(low[i, i]) if i == j else low[i, j] / low[j, j]
        for k in range(i):
            found[i] -= low[i, k] * found[k]
        found[i] /= low[i, i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            found[i] -= low[k, i] * found[k]
        found[i] /= low[i, i]
    return found
