"""Squint (Koolen and van Erven 2015) over the members of a pool, for states that come late and in any order. Gains in,
weights and what is proven of them out; no forecasts and no actions here.

Gains are in units of the largest range of payoffs within a state, so those of one event differ by at most 1. With b_k
the gain of member k at an event and h that of what was played, r_k = b_k - h is what k was better by: fixed at decision
time, but for the state. R_k is the sum over the events learned, V_k that of the squares; with the prior pi on members
and a uniform one on the learning rates 1/2, 1/4, ..., 2^-12,

    w_k ~ pi_k sum_rate rate exp(rate R_k - rate^2 V_k).

Nothing is tuned: each member is tried at every rate at once. Sums have no order, so neither have the weights.

Bound. Phi = mean over k (by pi) and rate of exp(rate R_k - rate^2 V_k) is 1 at first. exp(x - x^2) <= 1 + x from x =
-1/2 on, so an event at which w was played adds at most a multiple of sum_k w_k r_k = 0. Of all of Phi, one term:

    R_k <= min over rates of  rate V_k + (log max(Phi, 1) + log(12 / pi_k)) / rate,

about 2 sqrt(V_k log(12 / pi_k)): small where member k differed little from what was played, which is why a member with
a large prior is hardly ever lost to. The inequality is about whatever was played, since Phi is known. With states at
once and w played, log Phi <= 0 and it says beforehand what can be lost. What was played instead of w, and weights that
moved while a state was on its way, raise log Phi: the price of delay, which is known only afterwards.

With delay the squares alone are too few: of events decided before one another's state was known, all may err the same
way at once (the places of one day), and so their product counts, too, as in the delayed AdaGrad of McMahan and Streeter
(2014): V_k is the sum of r_k^2 + 2 r_k (R_k - R_k at the decision), or of the squares where that is more. An event and
another are a pair in it if neither was known when the other was decided, whichever is learned first. Where events are
decided in blocks between states, and members err the same way within blocks, V_k is the sum of the squares of the
blocks' sums, and a block is to Phi what an event is without delay, as long as no block's sum is below -1 / (2 rate).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SCALE = 2.0**32
"""Sums are kept in whole units of 1 / SCALE, so that adding has no order; 64 bits hold those of 2^31 events."""

RATES = 2.0 ** -np.arange(1, 13)
"""1/2 is the largest with a proof; the least is for 2^24 events. Halving costs a sixteenth of the best rate's bound."""

GRID = 2.0**40
"""Weights are played in multiples of 1 / GRID: the last bits of an exponential differ between machines."""


@dataclass(slots=True)
class Regrets:
    """What was learned of K members over `states` events: R in units of 1 / SCALE, and the two parts of V."""

    sums: Ints
    squares: Floats
    overlaps: Floats
    states: int = 0

    @property
    def variances(self) -> Floats:
        """V, shape (K,)."""
        return self.squares + np.maximum(self.overlaps, 0.0)


class Squint:
    """The weights of K members under a prior, which sums to 1.

    >>> master = Squint([0.25, 0.75])
    >>> master.weights(master.nothing()).tolist()
    [0.25, 0.75]
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self.prior: Floats = np.array(prior, dtype=np.float64)

    def nothing(self) -> Regrets:
        """Before any event."""
        size = len(self.prior)
        return Regrets(np.zeros(size, dtype=np.int64), np.zeros(size), np.zeros(size))

    def weights(self, known: Regrets) -> Floats:
        """The weights, shape (K,), to 2^-40."""
        return np.asarray(_weights(self.prior, known.sums, known.squares, known.overlaps))

    def learn(self, known: Regrets, better: Floats, then: Sequence[int]) -> None:
        """Learn an event at which members were `better` than what was played (r, shape (K,)), and which was decided
        when the sums were `then`."""
        _learn(known.sums, known.squares, known.overlaps, better, np.array(then, dtype=np.int64))
        known.states += 1

    def log_potential(self, known: Regrets) -> float:
        """log Phi."""
        exponents = self._exponents(known)
        top = exponents.max()
        return float(top) + math.log(float(self.prior @ np.exp(exponents - top).sum(axis=1)) / len(RATES))

    def bounds(self, known: Regrets) -> Floats:
        """For each member, what R cannot exceed, shape (K,)."""
        price = max(self.log_potential(known), 0.0) + math.log(len(RATES)) - np.log(self.prior)
        best = (np.outer(known.variances, RATES) + np.divide.outer(price, RATES)).min(axis=1)
        rounding = 2 * known.states / SCALE
        return np.asarray(np.minimum(best + rounding, float(known.states)))

    def _exponents(self, known: Regrets) -> Floats:
        return np.asarray(np.outer(known.sums / SCALE, RATES) - np.outer(known.variances, RATES * RATES))


@njit(cache=True)
def _weights(prior: Floats, sums: Ints, squares: Floats, overlaps: Floats) -> Floats:
    top, size = -np.inf, len(prior)
    exponents = np.empty((size, len(RATES)))
    for k in range(size):
        regret, variance = sums[k] / SCALE, squares[k] + max(overlaps[k], 0.0)
        for i, rate in enumerate(RATES):
            exponents[k, i] = rate * regret - rate * rate * variance
            top = max(top, exponents[k, i])
    weights: Floats = np.zeros(size)
    for k in range(size):
        for i, rate in enumerate(RATES):
            weights[k] += prior[k] * rate * np.exp(exponents[k, i] - top)
    unit = GRID / weights.sum()
    for k in range(size):
        weights[k] = np.rint(weights[k] * unit)
    total = weights.sum()
    for k in range(size):
        weights[k] /= total
    return weights


@njit(cache=True)
def _learn(sums: Ints, squares: Floats, overlaps: Floats, better: Floats, then: Ints) -> None:
    for k in range(len(sums)):
        units = np.rint(better[k] * SCALE)
        r = units / SCALE
        squares[k] += r * r
        overlaps[k] += 2 * r * ((sums[k] - then[k]) / SCALE)
        sums[k] += np.int64(units)
