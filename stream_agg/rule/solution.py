"""What a solver of the reduced program returns, and the generic numbers that make its optimum unique for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stream_agg.rule.support import Floats

TOLERANCE = 1e-9

DECIMALS = 10
"""Prices, in units of the steepest slope, are rounded to this many decimals: optimal ones from different bases agree to
about 1e-15, not bitwise."""

DEAD = 1e-5
"""Size in counts of the extra dead zone of every row that makes optimal prices unique. A shift of the right-hand side
would do so too, but where calibration is feasible the rows depend on each other (every expert's rows add up to the same
rounds), so a shift makes them contradict and drives prices to gamma; a dead zone never does, and picks small prices."""

SHIFT = 1e-6
"""Size, in units of the steepest slope, of the generic shift of a profile's kinks while pivoting. It decides between
profiles that tie, and is gone from what is published."""


@dataclass(frozen=True)
class Solution:
    """Prices, and what the adversary's rho adds up to; everything in counts.

    `duals` (r,) lambda; `lower` what they prove, sum N phi(s) - ..., whatever they are; `payoff` sum N V(rho);
    `excess` sum_{i,z} max(0, |residual| - epsilon N_{i,z}); `residual` (r,) sum N (rho - z); `mass` (r,) N_{i,z};
    `rounds` t.
    """

    duals: Floats
    lower: float
    payoff: float
    excess: float
    residual: Floats
    mass: Floats
    rounds: float

    def times(self, factor: float) -> Solution:
        """The same prices of counts that are so many times as large."""
        if factor == 1.0:
            return self
        return Solution(
            self.duals,
            self.lower * factor,
            self.payoff * factor,
            self.excess * factor,
            self.residual * factor,
            self.mass * factor,
            self.rounds * factor,
        )


def generic(size: int) -> Floats:
    """1/2 + frac sqrt(j-th prime): rationally independent, so that no few of them add up to others by accident."""
    sieve = np.ones(20 * size + 30, dtype=bool)
    sieve[:2] = False
    for q in range(2, int(len(sieve) ** 0.5) + 1):
        if sieve[q]:
            sieve[q * q :: q] = False
    return np.asarray(0.5 + np.modf(np.sqrt(np.flatnonzero(sieve)[:size]))[0])
