"""The action lines of a payoff table: their upper envelope V, its conjugate phi, and best responses to a price.

V(rho) = max_a [(1 - rho) u(a,0) + rho u(a,1)] is convex and piecewise linear on [0, 1];
phi(s) = min_rho [rho s + V(rho)] is concave and piecewise linear.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TIE = 1e-8
"""Prices closer than this, in units, to a kink are on it: duals are published rounded (`solution.DECIMALS`), sums of up
to 64 of them are off by less, and mixing two actions by a weight of rounding noise helps nobody."""

FLAT = 1e-100
"""A slope up to this is none: in units of it, no gamma would have a number."""


@dataclass(frozen=True)
class Envelope:
    """Segments of V from left to right: `actions[l]` is best on [`ends[l]`, `ends[l+1]`], where V rises by `slopes[l]`.

    `ends` runs from 0 to 1 (length L+1), `slopes` rises strictly (length L); `v0` is V(0).
    """

    actions: tuple[int, ...]
    slopes: tuple[float, ...]
    ends: tuple[float, ...]
    v0: float

    @cached_property
    def unit(self) -> float:
        """The power of two next to the steepest slope, 1 where all are flat: solvers scale payoffs by it,
        losslessly."""
        steepest = max(map(abs, self.slopes))
        return 2.0 ** math.ceil(math.log2(steepest)) if steepest > FLAT else 1.0

    @cached_property
    def table(self) -> Floats:
        """`v0`, `slopes` and `ends` in one array of length 2L + 2, for compiled code."""
        return np.array([self.v0, *self.slopes, *self.ends], dtype=np.float64)

    @property
    def lengths(self) -> Floats:
        """Length of every segment, shape (L,)."""
        return np.diff(np.asarray(self.ends))

    def value(self, rho: Floats) -> Floats:
        """V at every rho, any shape."""
        parts = np.minimum(np.asarray(rho)[..., None] - np.asarray(self.ends[:-1]), self.lengths)
        return self.v0 + np.asarray(np.maximum(parts, 0.0) @ np.asarray(self.slopes))

    def phi(self, s: Floats) -> Floats:
        """phi at every price s, any shape."""
        rises = np.minimum(np.asarray(s)[..., None] + np.asarray(self.slopes), 0.0)
        return self.v0 + np.asarray(rises @ self.lengths)

    def respond(self, s: float) -> tuple[tuple[int, float], ...]:
        """The mixed action that maximises min(x.u0, x.u1 + s), as (action, probability) with positive probabilities.

        Between two slopes: the two actions mixed so that x.(u1 - u0) = -s; on a slope or past the last: one action.
        """
        slopes, tie = self.slopes, TIE * self.unit
        at = bisect_left(slopes, -s - tie)
        if at == len(slopes):
            return ((self.actions[-1], 1.0),)
        if at == 0 or slopes[at] <= -s + tie:
            return ((self.actions[at], 1.0),)
        weight = (-s - slopes[at - 1]) / (slopes[at] - slopes[at - 1])
        return ((self.actions[at - 1], 1.0 - weight), (self.actions[at], weight))


def envelope(payoffs: Sequence[tuple[float, float]]) -> Envelope:
    """The envelope of action lines given as (payoff in state 0, payoff in state 1), at least one.

    An action that is nowhere strictly best is left out; of equal lines the first stays.
    """
    best: dict[float, tuple[float, int]] = {}
    for a, (u0, u1) in enumerate(payoffs):
        if u1 - u0 not in best or u0 > best[u1 - u0][0]:
            best[u1 - u0] = (u0, a)
    hull: list[tuple[float, float, int, float]] = []  # slope, u0, action, where it becomes best
    for slope in sorted(best):
        u0, a = best[slope]
        start = 0.0
        while hull:
            top_slope, top_u0, _, top_start = hull[-1]
            start = max((top_u0 - u0) / (slope - top_slope), 0.0)
            if start > top_start:
                break
            hull.pop()
            start = 0.0
        if start < 1.0:
            hull.append((slope, u0, a, start))
    slopes, heights, actions, starts = zip(*hull, strict=True)
    return Envelope(actions, slopes, (*starts, 1.0), heights[0])
