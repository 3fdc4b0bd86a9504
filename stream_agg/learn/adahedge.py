"""AdaHedge (de Rooij, van Erven, Grunwald and Koolen 2014) over the members of a pool, for outcomes that come late and
in any order. Gains in, weights and what is proven of them out; no forecasts and no actions here.

Gains are in units of the largest range of payoffs within a state, so those of one event differ by at most 1. An event
has for every member k its gain b_k, and what was played had the gain h; S is the sum of the gains learned, pi the
prior, c = log K, and

    weights   w_k ~ pi_k exp(rate S_k)          mix gain   M(w, rate, b) = log(sum_k w_k exp(rate b_k)) / rate
    rate      c / Delta, and at first, infinite: equal to the prior among the leaders
    Delta     the sum of the mixability gaps of the events learned, M(w, rate, b) - w.b >= 0,
              each with the weights and the rate that were in force *when its decision was made*.

So all that weights follow from is sums of what was fixed at decision time, in whole units of 2^-32: the order in which
states come, and whatever the delay, leaves no trace in them.

Bound. Let y be the weights and r the rate just before an event is learned, P(r, S) = log(sum_k pi_k exp(r S_k)) / r.
P(r, S + b) = P(r, S) + M(y, r, b); P grows with r and rates only fall; and S_k <= P(r, S) + log(1/pi_k) / r. Summed:

    S_k - sum h  <=  Delta (1 + log(1/pi_k) / c) + sum over the events of [M(y, r, b) - gap - h].

The last sum is the `cost`, known exactly as the events are learned; whatever was played for h, it holds. With states
at once and the weights played it is 0, since then M = gap + h: there the uniform prior has 2 Delta, their lemma 2, for
which they prove Delta <= sqrt(V log K) + (2/3) log K + 1, with V <= T/4 the sum of the variances of b under w
(theorem 6): no worse than Hedge tuned in hindsight, and constant where one member leads. With delay, one event can cost
no more than 1, and does as weights move between its decision and its state; so what is outstanding is what can be lost,
as it must be (Joulani, Gyorgy and Szepesvari 2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SCALE = 2.0**32
"""Sums are kept in whole units of 1 / SCALE, so that adding has no order; 64 bits hold the gains of 2^31 events."""

GRID = 2.0**40
"""Weights that are played are rounded to multiples of 1 / GRID: what the last bits of an exponential are differs
between machines. The bound holds for whatever is played."""


@dataclass(slots=True)
class Gains:
    """What was learned: gains by member and the sum of the gaps, in units of 1 / SCALE, over `states` events."""

    totals: Ints
    gap: int = 0
    cost: float = 0.0
    states: int = 0


class AdaHedge:
    """The weights of K members under a prior, which sums to 1.

    >>> master = AdaHedge([0.25, 0.75])
    >>> master.weights(master.nothing()).tolist()
    [0.25, 0.75]
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self.prior: Floats = np.array(prior, dtype=np.float64)
        self._c = math.log(len(prior)) or 1.0

    def nothing(self) -> Gains:
        """Before any event."""
        return Gains(np.zeros(len(self.prior), dtype=np.int64))

    def rate(self, known: Gains) -> float:
        """The learning rate."""
        return self._c * SCALE / known.gap if known.gap else math.inf

    def weights(self, known: Gains) -> Floats:
        """The weights, shape (K,)."""
        ahead = known.totals - known.totals.max()
        if known.gap:
            w = self.prior * np.exp(ahead * (self._c / known.gap))
        else:
            w = np.where(ahead == 0, self.prior, 0.0)
        return np.asarray(w / w.sum())

    def played(self, known: Gains) -> Floats:
        """The weights to play, to 2^-40."""
        w = np.rint(self.weights(known) * GRID)
        return np.asarray(w / w.sum())

    def gap(self, weights: Floats, rate: float, gains: Floats) -> int:
        """The mixability gap of an event, were these its gains, in units of 1 / SCALE."""
        return max(round((mix_gain(weights, rate, whole(gains) / SCALE) - float(weights @ gains)) * SCALE), 0)

    def learn(self, known: Gains, gains: Floats, played: float, gap: int) -> None:
        """Learn an event: the gains of the members and of what was played, and the gap that its decision foresaw."""
        units = whole(gains)
        known.cost += mix_gain(self.weights(known), self.rate(known), units / SCALE) - gap / SCALE - played
        known.totals += units
        known.gap += gap
        known.states += 1

    def bounds(self, known: Gains) -> Floats:
        """For each member, what its gains less those played cannot exceed, shape (K,)."""
        rounding = 2 * known.states / SCALE
        proven = known.gap / SCALE * (1 - np.log(self.prior) / self._c) + known.cost + rounding
        return np.minimum(proven, float(known.states))


def whole(gains: Floats) -> Ints:
    """In units of 1 / SCALE."""
    return np.rint(gains * SCALE).astype(np.int64)


def mix_gain(weights: Floats, rate: float, gains: Floats) -> float:
    """M(w, rate, b); at an infinite rate the largest gain that has weight."""
    top = float(gains[weights > 0].max())
    if math.isinf(rate):
        return top
    return top + math.log1p(float(weights @ np.expm1(rate * np.minimum(gains - top, 0.0)))) / rate
