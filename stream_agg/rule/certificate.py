"""The proof that travels with a rule: two bounds on the penalised robust value, kept in O(n) per event.

    lower  sum_e N(e) phi(s_e) - sum_{i,z} (z N_{i,z} lambda_{i,z} + epsilon N_{i,z} |lambda_{i,z}|)
    upper  sum_e N(e) V(rho(e)) + gamma sum_{i,z} max(0, |residual_{i,z}| - epsilon N_{i,z})

Both hold for any prices and any rho (weak duality), so a rule that is out of date still carries a true gap. The
adversary answers every new round with the rho that raises `upper` least: its answers to one profile may differ, since V
is convex and their mean is then at least as good a rho.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from stream_agg.rule.rule import Rule
from stream_agg.rule.solution import Solution
from stream_agg.rule.support import Floats, Ints, Profile

HARD = 1e9
"""The price of violations, in units, by which an adversary of hard constraints chooses its answer."""


@dataclass
class Certificate:
    """Sums over the rounds counted so far: `rounds`, `lower`, `payoff` sum N V(rho), `excess` in counts, `residual`
    and `mass` (r + 1,) by row, the last entry for silence."""

    rounds: float
    lower: float
    payoff: float
    excess: float
    residual: Floats
    mass: Floats

    def __post_init__(self) -> None:
        # One array for compiled code, which takes as long to be handed an array as to go through a short one.
        self._books = np.stack([self.residual, self.mass])
        self.residual, self.mass = self._books

    @classmethod
    def of(cls, rule: Rule, found: Solution) -> Certificate:
        """Computed afresh for what a rule was solved on, so that rounding does not pile up over re-solves."""
        return cls(
            found.rounds,
            found.lower,
            found.payoff,
            found.excess,
            np.append(found.residual, 0.0),
            np.append(found.mass, 0.0),
        )

    @classmethod
    def empty(cls, rule: Rule) -> Certificate:
        """Before any round."""
        return cls(0.0, 0.0, 0.0, 0.0, np.zeros_like(rule.flat), np.zeros_like(rule.flat))

    def add(self, rule: Rule, profile: Profile) -> None:
        """Count one more round with that profile."""
        gamma = HARD * rule.envelope.unit if math.isinf(rule.gamma) else rule.gamma
        lower, payoff, excess = _extend(
            rule.rows(profile), rule.terms, rule.envelope.table, gamma, rule.epsilon, self._books
        )
        self.rounds += 1
        self.lower += lower
        self.payoff += payoff
        self.excess += excess

    def halve(self) -> None:
        """Every round so far counts half."""
        self.rounds, self.lower, self.payoff = self.rounds / 2, self.lower / 2, self.payoff / 2
        self.excess /= 2
        self._books /= 2

    def gap(self, rule: Rule) -> float | None:
        """upper - lower per round, never negative: no rule earns more than this rule by more than that. None where
        gamma is inf and rho breaks a row, so that nothing finite is proven."""
        if not self.rounds:
            return rule.gap
        excess = self.excess if self.excess > 1e-9 * self.rounds else 0.0
        if math.isinf(rule.gamma) and excess:
            return None
        upper = self.payoff + (rule.gamma * excess if excess else 0.0)
        return max(upper - self.lower, 0.0) / self.rounds


@njit(cache=True)
def _extend(
    at: Ints, terms: Floats, table: Floats, gamma: float, epsilon: float, books: Floats
) -> tuple[float, float, float]:
    """One more round at those rows: what it adds to lower, payoff and excess. Changes `books`: residual and mass.

    `terms`: prices and levels by row; `table`: V, as `Envelope.table`.
    V(rho) + gamma * violation is convex and piecewise linear in the new round's rho: between two points where a row
    enters or leaves its margin the violation is linear, and V is least against it at an end of a segment.
    """
    prices, levels, residual, mass = terms[0], terms[1], books[0], books[1]
    segments = table.size // 2 - 1
    v0, slopes, ends = table[0], table[1 : segments + 1], table[segments + 1 :]
    n, silent = at.size, prices.size - 1
    points, filled = np.empty(2 * n + 2), 2
    points[0], points[1] = 0.0, 1.0
    lower, price, before = 0.0, 0.0, 0.0
    for j in at:
        if j == silent:
            continue
        price += prices[j]
        lower -= levels[j] * prices[j] + epsilon * abs(prices[j])
        before += max(abs(residual[j]) - epsilon * mass[j], 0.0)
        mass[j] += 1.0
        for side in (-1.0, 1.0):
            x = levels[j] - residual[j] + side * epsilon * mass[j]
            if 0.0 < x < 1.0:
                points[filled] = x
                filled += 1
    points = points[:filled]
    points.sort()
    best, answer, payoff, excess = np.inf, 0.0, 0.0, 0.0
    for k in range(filled - 1):
        a, b = points[k], points[k + 1]
        slope = 0.0
        for j in at:
            if j != silent:
                off = residual[j] + (a + b) / 2 - levels[j]
                if abs(off) > epsilon * mass[j]:
                    slope += gamma if off > 0 else -gamma
        seg = 0
        while seg < slopes.size and slopes[seg] < -slope:
            seg += 1
        rho = min(max(ends[seg], a), b)
        value, broken = v0, 0.0
        for seg in range(slopes.size):
            if rho <= ends[seg]:
                break
            value += slopes[seg] * (min(rho, ends[seg + 1]) - ends[seg])
        for j in at:
            if j != silent:
                broken += max(abs(residual[j] + rho - levels[j]) - epsilon * mass[j], 0.0)
        if value + gamma * broken < best:
            best, answer, payoff, excess = value + gamma * broken, rho, value, broken
    for j in at:
        if j != silent:
            residual[j] += answer - levels[j]
    phi = v0
    for seg in range(slopes.size):
        phi += min(price + slopes[seg], 0.0) * (ends[seg + 1] - ends[seg])
    return lower + phi, payoff, excess - before
