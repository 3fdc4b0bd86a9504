"""The paper's propositions as properties of the public API, against its own programs and brute force."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stream_agg as sa

Levels = tuple[float | None, ...]
NEAR = 1e-7
some = settings(deadline=None, max_examples=80, derandomize=True)

PAYOFF = st.integers(-8, 8).map(lambda x: x / 4) | st.floats(-3, 3)


def tables(most: int = 4) -> st.SearchStrategy[list[tuple[float, float]]]:
    """Payoffs of two to `most` actions, as (state 0, state 1)."""
    return st.lists(st.tuples(PAYOFF, PAYOFF), min_size=2, max_size=most)


@dataclass(frozen=True)
class Seen:
    """What calibrated experts said, what then happened, and by how much their worst report was off."""

    levels: list[list[float]]
    outcomes: dict[Levels, tuple[int, int]]
    epsilon: float

    @property
    def counts(self) -> dict[Levels, int]:
        return {e: n0 + n1 for e, (n0, n1) in self.outcomes.items()}


@st.composite
def calibrated(draw: st.DrawFn, experts: tuple[int, ...] = (2, 3, 1), parts: int = 4, off: int = 5) -> Seen:
    """States first; then every expert cuts the rounds its own way, and reports the frequency of state 1 within each
    part, or up to `off` hundredths beside it. Exact fractions, so that epsilon is measured and not assumed."""
    off = draw(st.sampled_from([0, off]))
    states = draw(st.lists(st.integers(0, 1), min_size=12, max_size=24))
    told = []
    for _ in range(draw(st.sampled_from(experts))):
        cut = draw(st.lists(st.integers(0, parts - 1), min_size=len(states), max_size=len(states)))
        level = {part: frequency(states, cut, part) + Fraction(draw(st.integers(-off, off)), 100) for part in set(cut)}
        told.append([min(max(level[part], Fraction(0)), Fraction(1)) for part in cut])
    error = max(abs(frequency(states, reports, z) - z) for reports in told for z in set(reports))
    outcomes: dict[Levels, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for e, state in zip(zip(*told, strict=True), states, strict=True):
        at = tuple(map(float, e))
        outcomes[at] = (outcomes[at][0] + 1 - state, outcomes[at][1] + state)
    return Seen([sorted(set(map(float, reports))) for reports in told], dict(outcomes), float(error))


def frequency(states: list[int], cut: list[Any], part: Any) -> Fraction:
    """How often state 1 came in the rounds of that part."""
    inside = [state for state, p in zip(states, cut, strict=True) if p == part]
    return Fraction(sum(inside), len(inside))


def largest(payoffs: list[tuple[float, float]]) -> float:
    """U."""
    return max(abs(u) for pair in payoffs for u in pair)


@given(calibrated(experts=(2,), parts=2), tables(3))
@some
def test_correlation_across_profiles_gains_nothing(
    make_spec: Any, paper: Any, seen: Seen, payoffs: list[tuple[float, float]]
) -> None:
    """Proposition 1, by a distribution over all maps from profiles to actions."""
    spec = make_spec(seen.levels, payoffs, gamma="inf", epsilon=seen.epsilon)
    assert len(seen.counts) <= 4
    best = paper(spec, seen.counts).correlated(math.inf, seen.epsilon)
    assert sa.solve(spec, seen.counts).value == pytest.approx(best, abs=NEAR)


@given(calibrated(), tables())
@some
def test_robust_is_no_worse_than_hindsight_but_for_the_calibration_error(
    make_spec: Any, seen: Seen, payoffs: list[tuple[float, float]]
) -> None:
    """Proposition 2: RMM >= OIH - 4 epsilon U T, at the epsilon that the experts really have."""
    spec = make_spec(seen.levels, payoffs, epsilon=seen.epsilon)
    b, rounds = sa.benchmarks(spec, seen.counts, seen.outcomes), sum(seen.counts.values())
    assert b.epsilon_min <= seen.epsilon + 1e-9
    assert b.robust is not None
    assert b.optimal_in_hindsight is not None
    assert b.contextual is not None
    assert b.robust >= b.optimal_in_hindsight - 4 * seen.epsilon * largest(payoffs) * rounds - NEAR * rounds
    assert b.contextual >= b.optimal_in_hindsight - 1e-9
    assert b.contextual >= b.robust - NEAR * rounds  # the true frequencies are among the rhos that robust fears


@given(calibrated(off=0), tables(), st.data())
@some
def test_the_truth_is_within_what_calibration_identifies(
    make_spec: Any, seen: Seen, payoffs: list[tuple[float, float]], data: st.DataObject
) -> None:
    profile = data.draw(st.sampled_from(sorted(seen.outcomes)))
    low, high = sa.posterior_range(make_spec(seen.levels, payoffs), seen.counts, profile)
    n0, n1 = seen.outcomes[profile]
    assert low - NEAR <= n1 / (n0 + n1) <= high + NEAR


@given(calibrated(experts=(2, 1), off=0), tables())
@some
def test_where_forecasts_are_calibrated_a_large_penalty_is_exact(
    make_spec: Any, paper: Any, seen: Seen, payoffs: list[tuple[float, float]]
) -> None:
    """Lemma "equiv_penalized_origin" at epsilon 0; why that gamma is large enough for two experts: test_lemmas."""
    gamma = 4 * (largest(payoffs) or 1.0) * len(seen.counts)
    soft, hard = (sa.solve(make_spec(seen.levels, payoffs, gamma=g), seen.counts) for g in (gamma, "inf"))
    assert soft.value == pytest.approx(hard.value, abs=NEAR)
    other = paper(hard.spec, seen.counts)
    for rule in (soft, hard):
        w = other.worst_case(rule.strategy, math.inf, 0.0)
        assert other.worst_case(rule.strategy, gamma, 0.0) == pytest.approx(w, abs=NEAR)
        assert w == pytest.approx(hard.value, abs=NEAR)


@st.composite
def bayesian(draw: st.DrawFn) -> tuple[Fraction, list[list[Fraction]], dict[tuple[Fraction, ...], list[Fraction]]]:
    """A prior, the posteriors that experts with independent signals report, and every profile's chance together with
    state 0 and with state 1. Signals of one posterior are one signal."""
    q = Fraction(draw(st.integers(1, 9)), 10)
    experts = []
    for _ in range(draw(st.sampled_from([2, 3, 1]))):
        weights = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=3)
        in0, in1 = ([Fraction(w, sum(row)) for w in row] for row in zip(*draw(weights), strict=True))
        signals: dict[Fraction, Counter[int]] = defaultdict(Counter)
        for a, b in zip(in0, in1, strict=True):
            signals[q * b / (q * b + (1 - q) * a)].update({0: a, 1: b})  # type: ignore[dict-item]
        experts.append(dict(signals))
    joint = {
        e: [p * math.prod(x[z][s] for x, z in zip(experts, e, strict=True)) for s, p in ((0, 1 - q), (1, q))]
        for e in product(*experts)
    }
    return q, [sorted(x) for x in experts], joint


@given(bayesian(), tables())
@some
def test_robust_is_no_better_than_knowing_the_world(
    make_spec: Any,
    world: tuple[Fraction, list[list[Fraction]], dict[tuple[Fraction, ...], list[Fraction]]],
    payoffs: list[tuple[float, float]],
) -> None:
    """Proposition 3: RMM <= Bay where signals are independent given the state."""
    (q, levels, joint), rounds = world, 1000
    counts = {tuple(map(float, e)): float(rounds * sum(both)) for e, both in joint.items()}
    bay = rounds * sum(max(float(in0) * u0 + float(in1) * u1 for u0, u1 in payoffs) for in0, in1 in joint.values())
    b = sa.benchmarks(make_spec([list(map(float, z)) for z in levels], payoffs), counts, prior=float(q))
    assert b.bayesian == pytest.approx(bay, rel=1e-9, abs=1e-9)
    assert b.epsilon_min == 0.0
    assert b.robust is not None
    assert b.robust <= bay + NEAR * rounds


@pytest.mark.parametrize(
    ("gamma", "value"), [(0.5, 29 / 28), (1.0, 37 / 28), (2.0, 23 / 14), (50.0, 23 / 14), (math.inf, 23 / 14)]
)
def test_the_papers_own_program_has_the_values_of_the_example(
    make_spec: Any, paper: Any, gamma: float, value: float
) -> None:
    """The example with conditional independence; the rule's values are in test_rule."""
    z, y = (1 / 3, 2 / 3), (1 / 6, 3 / 4)
    counts = {(z[0], y[0]): 11, (z[0], y[1]): 10, (z[1], y[0]): 7, (z[1], y[1]): 14}
    example = paper(make_spec([z, y], [(1, 0), (0, 3)]), counts)
    assert example.program(gamma, 0.0) == pytest.approx(value, abs=1e-9)
    assert example.value(gamma, 0.0) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("end", "action"), [(0.0, 1), (1.0, 0)])
def test_what_comes_later_decides_what_was_right_before(make_spec: Any, end: float, action: int) -> None:
    """Section 4.3: after the same first third, the rest makes e0 = (1/2, 1/2) certain rain or certain sun."""
    spec = make_spec([3, 3], [(1, 0), (0, 1)], gamma="inf")
    counts = {(0.5, 0.5): 10, (0.5, end): 10, (end, 0.5): 10}
    rule = sa.solve(spec, counts)
    assert rule.value == pytest.approx(1.0, abs=1e-9)
    assert rule.strategy((0.5, 0.5))[f"a{action}"] == pytest.approx(1.0, abs=1e-9)
    assert sa.posterior_range(spec, counts, (0.5, 0.5)) == pytest.approx((action, action), abs=1e-9)
    for other in [(0.5, end), (end, 0.5)]:
        assert sa.posterior_range(spec, counts, other) == pytest.approx((end, end), abs=1e-9)
        assert rule.strategy(other)[f"a{end:.0f}"] == pytest.approx(1.0, abs=1e-9)


@given(calibrated(), tables(), st.sampled_from([0.3, 1.0, 7.0, math.inf]), st.integers(0, 3))
@some
def test_the_program_over_rules_is_the_program_over_rho(
    make_spec: Any, paper: Any, seen: Seen, payoffs: list[tuple[float, float]], gamma: float, wide: int
) -> None:
    """Minimax, and both sides of it equal to what the rule says of itself (weak duality, attained)."""
    epsilon = seen.epsilon * wide / 2 if math.isfinite(gamma) else seen.epsilon * (1 + wide)
    spec = make_spec(seen.levels, payoffs, gamma=gamma, epsilon=min(epsilon, 1.0))
    rule, other = sa.solve(spec, seen.counts), paper(spec, seen.counts)
    best = other.program(gamma, spec.epsilon)
    assert other.value(gamma, spec.epsilon) == pytest.approx(best, abs=NEAR)
    assert rule.value <= best + 1e-9 <= rule.upper_bound + NEAR
    assert rule.value <= other.worst_case(rule.strategy, gamma, spec.epsilon) + 1e-9
    for action in spec.actions:  # no rule beats the upper bound: not these either
        always = {name: float(name == action) for name in spec.actions}
        assert other.worst_case(lambda e, x=always: x, gamma, spec.epsilon) <= rule.upper_bound + NEAR
