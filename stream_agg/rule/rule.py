"""The robust rule: r prices from which the strategy of any profile follows, seen or not, and how it is solved for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stream_agg.errors import InfeasibleError
from stream_agg.rule import program
from stream_agg.rule.envelope import Envelope, envelope
from stream_agg.rule.support import Floats, Levels, Profile, Support, flat
from stream_agg.spec import SessionSpec

AUTO_GAMMA_DOUBLINGS = 6
"""`gamma: "auto"` stops at 64 times the largest slope: past that, prices are the sign of almost infeasible rows."""

NO_VIOLATION = 1e-7
"""Violations per round up to this are rounding."""


@dataclass(frozen=True)
class Rule:
    """A solved rule on `rounds` counted rounds.

    `value` and `upper_bound` enclose the penalised robust value per round: `value` is what the prices prove for this
    rule in the worst case, `upper_bound` what no rule can exceed; `gap` is the difference. `violation` is the worst
    case's calibration violation per round, `exact` whether the penalty binds nowhere, so that the value is the hard
    benchmark's (RMM). `epsilon_min` is the smallest feasible epsilon of the counts.
    """

    spec: SessionSpec
    envelope: Envelope
    prices: tuple[tuple[float, ...], ...]
    """lambda of every expert and level, with a 0 at the end of each expert for its silence (level index -1)."""
    ties: Mapping[Profile, float]
    """rho of the profiles whose price leaves the adversary indifferent: all else of its answer follows from prices."""
    gamma: float
    epsilon: float
    rounds: float
    value: float
    upper_bound: float
    violation: float
    exact: bool
    epsilon_min: float

    @cached_property
    def levels(self) -> tuple[tuple[float, ...], ...]:
        """The levels of every expert."""
        return tuple(a.levels for a in self.spec.experts.values())

    @property
    def gap(self) -> float:
        """upper_bound - value, per round, never negative."""
        return max(self.upper_bound - self.value, 0.0)

    @property
    def penalty(self) -> float:
        """gamma * violation per round: what `value` contains that is no payoff."""
        return self.gamma * self.violation if self.violation else 0.0

    @property
    def duals(self) -> dict[str, dict[float, float]]:
        """expert -> level -> price lambda."""
        return {
            name: dict(zip(alphabet.levels, prices, strict=False))
            for (name, alphabet), prices in zip(self.spec.experts.items(), self.prices, strict=True)
        }

    def price(self, profile: Profile) -> float:
        """s_e = sum_i lambda_{i, e^i}, for level indices."""
        total = 0.0
        for prices, level in zip(self.prices, profile, strict=True):
            total += prices[level]
        return total

    def mix(self, profile: Profile) -> tuple[tuple[int, float], ...]:
        """The mixed action at level indices: (action index, probability), at most two."""
        return self.envelope.respond(self.price(profile))

    def worst_rho(self, profile: Profile, price: float) -> float:
        """The adversary's rho at level indices with that price."""
        rho = self.ties.get(profile)
        return self.envelope.worst_rho(price) if rho is None else rho

    def strategy(self, profile: Sequence[float | None]) -> dict[str, float]:
        """The mixed action at a profile of levels (None: silent), in the spec's order of experts, every action named.

        `EventError` where the profile does not fit the spec.
        """
        return name_mix(self.spec, self.mix(self.spec.index(profile)))


def name_mix(spec: SessionSpec, mix: Sequence[tuple[int, float]]) -> dict[str, float]:
    """action name -> probability, zeros included."""
    weights = dict(mix)
    return {name: weights.get(a, 0.0) for a, name in enumerate(spec.actions)}


def solve(spec: SessionSpec, counts: Mapping[Levels, float]) -> Rule:
    """The robust rule of counted profiles (Algorithm 1's program, eq. penalized_SP, by its dual).

    `counts`: profile of levels in the spec's order of experts (None: silent) -> how often it was seen.
    `InfeasibleError` where gamma is inf and no rho is calibrated within epsilon; `EventError` for a profile that does
    not fit; `SolveError` when the solver stops.
    """
    return solve_support(spec, Support.of(spec.experts.values(), count_indexed(spec, counts)))


def count_indexed(spec: SessionSpec, counts: Mapping[Levels, float]) -> dict[Profile, float]:
    """Counts by level indices; profiles that fall on the same levels are added up."""
    indexed: dict[Profile, float] = {}
    for levels, count in counts.items():
        if not 0 <= count < math.inf:
            raise ValueError(f"the count of {levels} is {count!r}: expected a number of at least 0")
        e = spec.index(levels)
        indexed[e] = indexed.get(e, 0) + count
    return indexed


def solve_support(spec: SessionSpec, support: Support) -> Rule:
    """`solve` for profiles that are counted and sorted already."""
    cost = envelope(tuple(spec.actions.values()))
    if not len(support.counts):
        return unseen_rule(spec)
    epsilon_min = program.smallest_epsilon(support)
    if spec.gamma == "auto":
        feasible = epsilon_min <= spec.epsilon + program.TOLERANCE
        return auto_gamma(spec, support, cost, epsilon_min, AUTO_GAMMA_DOUBLINGS if feasible else 0)
    if math.isinf(spec.gamma) and epsilon_min > spec.epsilon + program.TOLERANCE:
        raise InfeasibleError(spec.epsilon, epsilon_min)
    return _solve(spec, support, cost, spec.gamma, epsilon_min)


def auto_gamma(spec: SessionSpec, support: Support, cost: Envelope, epsilon_min: float, doublings: int) -> Rule:
    """The rule at gamma = max_a |u(a,1) - u(a,0)|, doubled until the penalty is exact, `doublings` times at most.

    That slope is the largest price at which a strategy still changes, so smaller penalties lose and larger ones only
    matter for exactness; where calibration is infeasible no gamma is exact, and the caller asks for no doubling.
    """
    gamma = steepest(spec)
    rule = _solve(spec, support, cost, gamma, epsilon_min)
    for _ in range(doublings):
        if rule.exact:
            break
        gamma *= 2
        rule = _solve(spec, support, cost, gamma, epsilon_min)
    return rule


def steepest(spec: SessionSpec) -> float:
    """max_a |u(a,1) - u(a,0)|, or 1 where no action depends on the state."""
    return max(abs(u1 - u0) for u0, u1 in spec.actions.values()) or 1.0


def unseen_rule(spec: SessionSpec) -> Rule:
    """The rule before any forecast: no prices, so the maxmin action of the payoff table at every profile."""
    cost = envelope(tuple(spec.actions.values()))
    maxmin = float(cost.phi(np.zeros(())))
    prices = tuple((0.0,) * (len(a.levels) + 1) for a in spec.experts.values())
    most = max(max(pair) for pair in spec.actions.values())
    gamma = steepest(spec) if spec.gamma == "auto" else spec.gamma
    return Rule(spec, cost, prices, {}, gamma, spec.epsilon, 0, maxmin, most, 0.0, False, 0.0)


def _solve(spec: SessionSpec, support: Support, cost: Envelope, gamma: float, epsilon_min: float) -> Rule:
    found = program.robust(support, cost, gamma, spec.epsilon)
    s = support.prices(found.duals)
    rho = np.array([cost.worst_rho(x) for x in s])
    tied = np.array([cost.tied(x) for x in s], dtype=bool)
    rho[tied] = found.rho[tied]
    t = support.total
    violation = _settle(support.violation(rho, spec.epsilon) / t)
    upper = float(support.counts @ cost.value(rho)) / t + (gamma * violation if violation else 0.0)
    value = lower_bound(support, cost, found.duals, spec.epsilon)
    return Rule(
        spec,
        cost,
        tuple((*prices, 0.0) for prices in support.by_expert(found.duals)),
        {tuple(e): x for e, x in zip(support.profiles[tied].tolist(), rho[tied].tolist(), strict=True)},
        gamma,
        spec.epsilon,
        t,
        value,
        upper,
        violation,
        violation == 0.0 and bool(np.all(np.abs(found.duals) < gamma * (1 - 1e-9))),
        epsilon_min,
    )


def _settle(violation: float) -> float:
    return 0.0 if violation < NO_VIOLATION else violation


def lower_bound(support: Support, cost: Envelope, duals: Floats, epsilon: float) -> float:
    """The dual objective per round: what these prices prove of the rule they make, whatever prices they are."""
    rows = support.levels * support.mass
    paid = float(duals @ rows) + epsilon * float(np.abs(duals) @ support.mass)
    return (float(support.counts @ cost.phi(support.prices(duals))) - paid) / support.total


def flat_prices(rule: Rule) -> Floats:
    """The prices as one (r,) array, silences left out."""
    return flat([prices[:-1] for prices in rule.prices])
