"""The lemmas behind Theorem "online_regret": what a penalty costs against hard constraints, and a wrong distribution
against the right one. The paper's penalty charges every violation in full, so its penalised problem has epsilon 0."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stream_agg as sa

Levels = tuple[float | None, ...]
NEAR = 1e-7
some = settings(deadline=None, max_examples=80, derandomize=True)
LEVELS = [0.1, 0.4, 0.5, 0.9]


@dataclass(frozen=True)
class Case:
    """Payoffs, two distributions of the same experts' profiles as counts, and n."""

    payoffs: list[tuple[float, float]]
    counts: dict[Levels, int]
    others: dict[Levels, int]
    experts: int

    @property
    def largest(self) -> float:
        """U."""
        return max(abs(u) for pair in self.payoffs for u in pair)

    @property
    def distance(self) -> float:
        """Of the two distributions, in the 1-norm."""
        p, q = sum(self.counts.values()), sum(self.others.values())
        every = self.counts.keys() | self.others.keys()
        return sum(abs(self.counts.get(e, 0) / p - self.others.get(e, 0) / q) for e in every)

    def spec(self, make_spec: Any, **fields: Any) -> sa.SessionSpec:
        return make_spec([LEVELS] * self.experts, self.payoffs, **fields)  # type: ignore[no-any-return]


@st.composite
def cases(draw: st.DrawFn, experts: tuple[int, ...] = (2, 3, 1)) -> Case:
    n = draw(st.sampled_from(experts))
    profile = st.tuples(*[st.sampled_from([*LEVELS, None])] * n)
    counts = st.dictionaries(profile, st.integers(1, 20), min_size=3, max_size=9)
    near = draw(counts)
    # now and then distributions a few rounds apart, on the same profiles
    apart = st.fixed_dictionaries({e: st.integers(max(c - 2, 1), c + 2) for e, c in near.items()})
    payoff = st.integers(-12, 12).map(lambda x: x / 4) | st.floats(-3, 3)
    return Case(draw(st.lists(st.tuples(payoff, payoff), min_size=2, max_size=4)), near, draw(counts | apart), n)


def feasible(spec: sa.SessionSpec, counts: dict[Levels, int]) -> sa.SessionSpec:
    """The spec with hard constraints, and epsilon a tenth above the smallest where that is more."""
    least = sa.solve(replace(spec, gamma=1.0), counts).epsilon_min
    return replace(spec, gamma=math.inf, epsilon=max(spec.epsilon, 1.1 * least))


@given(cases(experts=(2, 1)), st.sampled_from([0.0, 0.01, 0.1]))
@some
def test_a_penalty_of_four_times_hoffmans_constant_costs_the_calibration_error(
    make_spec: Any, paper: Any, case: Case, epsilon: float
) -> None:
    """Lemma "equiv_penalized_origin": |penalised - hard| <= n gamma epsilon for gamma >= 4 U H, for V and for every W.

    With two experts the rows are the incidence matrix of a bipartite graph (reports and profiles), so they are totally
    unimodular, and so they stay beside the rows 0 <= q <= P. H is then at most the number of profiles: an extreme
    multiplier has at most as many nonzero entries, each a sum of as many of +1, -1 and 0.
    """
    hard = feasible(case.spec(make_spec, epsilon=epsilon), case.counts)
    gamma = 4 * (case.largest or 1.0) * len(case.counts)
    soft = replace(hard, gamma=gamma, epsilon=0.0)
    allowed = case.experts * gamma * hard.epsilon
    rules = [sa.solve(hard, case.counts), sa.solve(soft, case.counts)]
    assert abs(rules[1].value - rules[0].value) <= allowed + NEAR
    other = paper(hard, case.counts)
    for rule in [*rules, sa.solve(soft, case.others)]:
        w = other.worst_case(rule.strategy, math.inf, hard.epsilon)
        assert abs(other.worst_case(rule.strategy, gamma, 0.0) - w) <= allowed + NEAR


@given(cases(), st.sampled_from([0.0, 0.01, 0.1]), st.sampled_from([1.0, 1.5, 20.0]))
@some
def test_a_penalty_as_large_as_the_hard_prices_costs_the_calibration_error(
    make_spec: Any, case: Case, epsilon: float, factor: float
) -> None:
    """The same lemma at a gamma that the answer itself shows to be large enough, whatever the number of experts: prices
    of the hard problem within gamma are prices of the penalised one, where epsilon costs them nothing."""
    spec = feasible(case.spec(make_spec, epsilon=epsilon), case.counts)
    hard = sa.solve(spec, case.counts)
    gamma = max(abs(x) for by_level in hard.duals.values() for x in by_level.values()) * factor or 1.0
    soft = sa.solve(replace(spec, gamma=gamma, epsilon=0.0), case.counts).value
    assert hard.value - NEAR <= soft <= hard.value + case.experts * gamma * spec.epsilon + NEAR
    # with epsilon forgiven in the penalty too, nothing is left between the two
    forgiven = sa.solve(replace(spec, gamma=gamma), case.counts).value
    assert forgiven == pytest.approx(hard.value, abs=NEAR)


@given(cases(), st.sampled_from([0.01, 0.1, 1.0, 30.0]), st.sampled_from([0.0, 0.05]))
@example(  # a gamma of 1e140 times the steepest slope is no hard constraint
    case=Case([(0.0, 0.0), (0.0, 1e-142)], {(0.1, 0.1): 1, (0.1, 0.4): 1, (0.4, 0.1): 1}, {}, 2), gamma=1.0, epsilon=0.0
)
@example(
    case=Case([(0.0, 0.0), (0.0, 1e-42)], {(0.1, 0.1): 1, (0.1, 0.4): 1, (0.4, 0.1): 1}, {}, 2), gamma=1.0, epsilon=0.0
)
@some
def test_any_penalty_is_at_most_the_calibration_error_above_hard_constraints(
    make_spec: Any, case: Case, gamma: float, epsilon: float
) -> None:
    """Eq. direct_property_1, which needs no large gamma; and no penalty that forgives epsilon is above them at all."""
    spec = feasible(case.spec(make_spec, epsilon=epsilon), case.counts)
    hard = sa.solve(spec, case.counts).value
    soft = sa.solve(replace(spec, gamma=gamma, epsilon=0.0), case.counts).value
    assert soft <= hard + case.experts * gamma * spec.epsilon + NEAR
    assert sa.solve(replace(spec, gamma=gamma), case.counts).value <= min(soft, hard) + NEAR


@given(cases(), st.sampled_from([0.1, 1.0, 5.0]))
@example(case=Case([(-1.0, 1.0)], {(0.9,): 1}, {(0.1,): 1}, 1), gamma=2.0)  # random ones come nowhere near the bound
@example(case=Case([(0.0, 0.0)], {(0.1, 0.9): 1}, {(0.5, 0.5): 1}, 2), gamma=5.0)
@some
def test_nearby_distributions_have_nearby_values(make_spec: Any, paper: Any, case: Case, gamma: float) -> None:
    """Lemma "lipschitz": (U + n gamma) times the distance in the 1-norm bounds the difference of penalised values, of
    the best rule and of any one; so a rule solved on the wrong counts loses at most twice that on the right ones."""
    spec = case.spec(make_spec, gamma=gamma)
    far = (case.largest + case.experts * gamma) * case.distance
    rule, other = sa.solve(spec, case.counts), sa.solve(spec, case.others)
    assert abs(rule.value - other.value) <= far + NEAR
    here, there = (paper(spec, c).worst_case(rule.strategy, gamma, 0.0) for c in (case.counts, case.others))
    assert abs(here - there) <= far + NEAR
    assert other.value - there <= 2 * far + NEAR
