"""The proof that travels with a rule: two bounds on the penalised robust value, kept in O(n) per event.

    lower  sum_e N(e) phi(s_e) - sum_{i,z} (z N_{i,z} lambda_{i,z} + epsilon N_{i,z} |lambda_{i,z}|)
    upper  sum_e N(e) V(rho(e)) + gamma sum_{i,z} max(0, |residual_{i,z}| - epsilon N_{i,z})

Both hold for any prices and any rho (weak duality), so a rule that is out of date still carries a true gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stream_agg.rule.rule import Rule, flat_prices, lower_bound
from stream_agg.rule.support import Floats, Profile, Support


@dataclass
class Certificate:
    """Sums over the rounds counted so far; `residual` and `mass` by expert and level, `excess` in counts."""

    rounds: float
    lower: float
    payoff: float
    excess: float
    residual: list[list[float]]
    mass: list[list[float]]

    @classmethod
    def of(cls, rule: Rule, support: Support) -> Certificate:
        """Computed afresh for the counted profiles, so that rounding does not pile up over re-solves."""
        if not len(support.counts):
            return cls(0.0, 0.0, 0.0, 0.0, support.by_expert(0 * support.mass), support.by_expert(support.mass))
        duals, cost = flat_prices(rule), rule.envelope
        rho = answers(rule, support)
        return cls(
            support.total,
            lower_bound(support, cost, duals, rule.epsilon) * support.total,
            float(support.counts @ cost.value(rho)),
            support.violation(rho, rule.epsilon),
            support.by_expert(support.residuals(rho)),
            support.by_expert(support.mass),
        )

    def add(self, rule: Rule, profile: Profile) -> None:
        """Count one more round with that profile."""
        price = rule.price(profile)
        rho = rule.worst_rho(profile, price)
        cost, epsilon = rule.envelope, rule.epsilon
        self.rounds += 1
        gain = _at(cost.slopes, cost.ends, cost.v0, rho)
        self.payoff += gain
        self.lower += gain + rho * price  # phi(s) = V(rho) + rho s at the adversary's answer
        for i, level in enumerate(profile):
            if level < 0:
                continue
            z, dual = rule.levels[i][level], rule.prices[i][level]
            self.lower -= z * dual + epsilon * abs(dual)
            residual, mass = self.residual[i], self.mass[i]
            before = abs(residual[level]) - epsilon * mass[level]
            residual[level] += rho - z
            mass[level] += 1.0
            after = abs(residual[level]) - epsilon * mass[level]
            self.excess += max(after, 0.0) - max(before, 0.0)

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


def answers(rule: Rule, support: Support) -> Floats:
    """The adversary's rho at every profile of the support, shape (k,)."""
    prices = support.prices(flat_prices(rule)).tolist()
    profiles = map(tuple, support.profiles.tolist())
    return np.array([rule.worst_rho(e, s) for e, s in zip(profiles, prices, strict=True)])


def _at(slopes: Sequence[float], ends: Sequence[float], v0: float, rho: float) -> float:
    """V at one rho, without numpy: this runs once an event."""
    value = v0
    for slope, start, end in zip(slopes, ends, ends[1:], strict=False):
        if rho <= start:
            break
        value += slope * (min(rho, end) - start)
    return value
