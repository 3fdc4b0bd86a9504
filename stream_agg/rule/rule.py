"""The robust rule: r prices from which the strategy of any profile follows, seen or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

import numpy as np

from stream_agg.rule.envelope import Envelope, envelope
from stream_agg.rule.solution import Solution
from stream_agg.rule.support import Floats, Ints, Profile
from stream_agg.spec import SessionSpec

NO_VIOLATION = 1e-7
"""Violations per round up to this are rounding."""

ANSWERS = 2000
"""Profiles whose answers a rule keeps at most, 300 bytes each: as many as most sessions see again and again."""

T = TypeVar("T")


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
    gamma: float
    epsilon: float
    rounds: float
    value: float
    upper_bound: float
    violation: float
    exact: bool
    least: Callable[[], float] = field(compare=False, repr=False)
    """Finds `epsilon_min`: a program of its own, solved when somebody asks."""

    @cached_property
    def epsilon_min(self) -> float:
        """The smallest epsilon for which the counted forecasts can all be calibrated at once."""
        return self.least()

    @cached_property
    def flat(self) -> Floats:
        """The prices as one array of shape (r + 1,), the last entry for silence."""
        return np.array([*(x for prices in self.prices for x in prices[:-1]), 0.0])

    @cached_property
    def levels(self) -> Floats:
        """The levels beside `flat`."""
        return np.array([*(z for a in self.spec.experts.values() for z in a.levels), 0.0])

    @cached_property
    def terms(self) -> Floats:
        """`flat` and `levels` as the rows of one array, for compiled code."""
        return np.stack([self.flat, self.levels])

    @cached_property
    def _rows(self) -> dict[Profile, Ints]:
        return {}

    @cached_property
    def _mixes(self) -> dict[Profile, tuple[tuple[int, float], ...]]:
        return {}

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(accumulate((len(p) - 1 for p in self.prices), initial=0))

    def rows(self, profile: Profile) -> Ints:
        """Where a profile's levels are in `flat`, shape (n,). Not to be changed."""
        found = self._rows.get(profile)
        if found is None:
            starts = self._starts
            found = np.array([starts[i] + level if level >= 0 else starts[-1] for i, level in enumerate(profile)])
            _keep(self._rows, profile, found)
        return found

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
        found = self._mixes.get(profile)
        if found is None:
            found = self.envelope.respond(self.price(profile))
            _keep(self._mixes, profile, found)
        return found

    def strategy(self, profile: Sequence[float | None]) -> dict[str, float]:
        """The mixed action at a profile of levels (None: silent), in the spec's order of experts, every action named.

        `EventError` where the profile does not fit the spec.
        """
        return name_mix(self.spec, self.mix(self.spec.index(profile)))


def _keep(answers: dict[Profile, T], profile: Profile, answer: T) -> None:
    if len(answers) >= ANSWERS:
        answers.clear()
    answers[profile] = answer


def name_mix(spec: SessionSpec, mix: Sequence[tuple[int, float]]) -> dict[str, float]:
    """action name -> probability, zeros included."""
    weights = dict(mix)
    return {name: weights.get(a, 0.0) for a, name in enumerate(spec.actions)}


def rule_of(
    spec: SessionSpec, cost: Envelope, gamma: float, epsilon: float, found: Solution, least: Callable[[], float]
) -> Rule:
    """The rule of a solved program."""
    t = found.rounds
    excess = found.excess / t
    violation = excess if excess > NO_VIOLATION else 0.0
    upper = found.payoff / t + (gamma * violation if violation else 0.0)
    exact = not violation and bool(np.all(np.abs(found.duals) < gamma * (1 - 1e-9)))
    duals, prices, start = found.duals.tolist(), [], 0
    for a in spec.experts.values():
        end = start + len(a.levels)
        prices.append((*duals[start:end], 0.0))
        start = end
    return Rule(spec, cost, tuple(prices), gamma, epsilon, t, found.lower / t, upper, violation, exact, least)


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
    epsilon = 0.0 if isinstance(spec.epsilon, str) else spec.epsilon
    return Rule(spec, cost, prices, gamma, epsilon, 0, maxmin, most, 0.0, False, float)
