"""The rule against the paper's own numbers and against the paper's programs solved by another solver."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import stream_agg as sa

NEAR = 1e-7
THIRD, TWO_THIRDS = 1 / 3, 2 / 3
TOY: dict[Any, int] = {(THIRD, TWO_THIRDS): 5, (THIRD, THIRD): 5, (TWO_THIRDS, THIRD): 5}
INDEPENDENT: dict[Any, int] = {
    (THIRD, 1 / 6): 11,
    (THIRD, 3 / 4): 10,
    (TWO_THIRDS, 1 / 6): 7,
    (TWO_THIRDS, 3 / 4): 14,
}  # P = N/42
SEEDS = range(60)

World = Callable[..., tuple[sa.SessionSpec, dict[Any, int]]]


@pytest.fixture
def toy(make_spec: Any) -> Callable[..., sa.SessionSpec]:
    return lambda **fields: make_spec([[THIRD, TWO_THIRDS]] * 2, [(1, 0), (0, 1)], **fields)


@pytest.fixture
def independent(make_spec: Any) -> Callable[..., sa.SessionSpec]:
    return lambda **fields: make_spec([[THIRD, TWO_THIRDS], [1 / 6, 3 / 4]], [(1, 0), (0, 3)], **fields)


def solved(world: World, seed: int) -> tuple[sa.SessionSpec, dict[Any, int], sa.Rule]:
    """A random world and its rule; where hard constraints contradict, at an epsilon a tenth above the smallest."""
    spec, counts = world(seed)
    try:
        return spec, counts, sa.solve(spec, counts)
    except sa.InfeasibleError as e:
        spec = replace(spec, epsilon=1.1 * e.epsilon_min)
        return spec, counts, sa.solve(spec, counts)


@pytest.mark.parametrize("gamma", ["auto", "inf", 10.0])
def test_the_toy_example(toy: Any, gamma: Any) -> None:
    rule = sa.solve(toy(gamma=gamma), TOY)
    assert rule.value == pytest.approx(7 / 9, abs=1e-9)
    assert rule.upper_bound == pytest.approx(7 / 9, abs=1e-9)
    assert rule.epsilon_min == 0.0
    assert rule.violation == 0.0
    assert rule.exact
    assert rule.strategy((THIRD, THIRD)) == pytest.approx({"a0": 1.0, "a1": 0.0})
    b = sa.benchmarks(
        toy(), TOY, outcomes={(THIRD, TWO_THIRDS): (5, 10), (THIRD, THIRD): (15, 0), (TWO_THIRDS, THIRD): (5, 10)}
    )
    assert b.robust == pytest.approx(15 * 7 / 9)
    assert b.optimal_in_hindsight == pytest.approx(45 * 2 / 3)


def test_calibration_identifies_the_toy_example(toy: Any) -> None:
    assert sa.posterior_range(toy(), TOY, (THIRD, TWO_THIRDS)) == pytest.approx((2 / 3, 2 / 3), abs=1e-9)
    assert sa.posterior_range(toy(), TOY, (THIRD, THIRD)) == pytest.approx((0, 0), abs=1e-9)
    assert sa.posterior_range(toy(), TOY, (TWO_THIRDS, THIRD)) == pytest.approx((2 / 3, 2 / 3), abs=1e-9)


@pytest.mark.parametrize("scale", [1, 1 / 42])  # counts, and the distribution itself
@pytest.mark.parametrize(
    ("gamma", "value"),
    [(0.5, 29 / 28), (1, 37 / 28), (2, 23 / 14), (3, 23 / 14), (100, 23 / 14), ("inf", 23 / 14), ("auto", 23 / 14)],
)
def test_the_example_with_conditional_independence(independent: Any, gamma: Any, value: float, scale: float) -> None:
    rule = sa.solve(independent(gamma=gamma), {e: n * scale for e, n in INDEPENDENT.items()})
    assert rule.value == pytest.approx(value, abs=1e-9)
    assert rule.upper_bound == pytest.approx(value, abs=1e-9)


def test_the_benchmarks_of_that_example(independent: Any) -> None:
    b = sa.benchmarks(independent(), INDEPENDENT, prior=0.5)
    assert b.robust == pytest.approx(42 * 23 / 14, abs=1e-7)
    assert b.bayesian == pytest.approx(42 * 5 / 3, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_better_and_this_one_is_as_good(world: World, paper: Any, seed: int) -> None:
    spec, counts, rule = solved(world, seed)
    other = paper(spec, counts)
    value = other.value(rule.gamma, rule.epsilon)
    assert rule.value == pytest.approx(value, abs=NEAR)
    assert other.worst_case(rule.strategy, rule.gamma, rule.epsilon) == pytest.approx(value, abs=NEAR)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_rule_says_of_itself(world: World, seed: int) -> None:
    spec, counts, rule = solved(world, seed)
    assert 0 <= rule.gap <= NEAR
    assert rule.upper_bound >= rule.value - 1e-9
    assert rule.rounds == sum(counts.values())
    assert list(rule.duals) == list(spec.experts)
    for name, alphabet in spec.experts.items():
        assert tuple(rule.duals[name]) == alphabet.levels
    prices = [abs(x) for by_level in rule.duals.values() for x in by_level.values()]
    assert max(prices) <= rule.gamma
    for i, by_level in enumerate(rule.duals.values()):
        assert all(x == 0.0 for z, x in by_level.items() if z not in {e[i] for e in counts})
    if rule.exact:
        assert rule.violation == 0.0
        assert max(prices) < rule.gamma


@pytest.mark.parametrize("seed", SEEDS)
def test_any_profile_gets_a_mixed_action(world: World, seed: int) -> None:
    spec, _, rule = solved(world, seed)
    rng = random.Random(seed)
    profiles = [tuple(rng.choice([None, *a.levels]) for a in spec.experts.values()) for _ in range(20)]
    for profile in [(None,) * len(spec.experts), *profiles]:
        strategy = rule.strategy(profile)
        assert list(strategy) == list(spec.actions)
        assert min(strategy.values()) >= 0.0
        assert sum(strategy.values()) == pytest.approx(1.0, abs=1e-12)


def test_the_order_of_arrival_changes_no_bit(world: World) -> None:
    for seed in range(15):
        spec, counts, rule = solved(world, seed)
        rng = random.Random(seed)
        for _ in range(3):
            shuffled = dict(rng.sample(list(counts.items()), len(counts)))
            again = sa.solve(spec, shuffled)
            assert again == rule
            assert repr(again) == repr(rule)


def test_the_unit_of_counts_changes_no_value(world: World) -> None:
    for seed in range(20):
        spec, counts, rule = solved(world, seed)
        for factor in (3, 1000):
            scaled = sa.solve(spec, {e: n * factor for e, n in counts.items()})
            assert scaled.value == pytest.approx(rule.value, abs=NEAR)
            assert scaled.epsilon_min == pytest.approx(rule.epsilon_min, abs=1e-9)


def test_counts_of_zero_and_reports_between_levels_are_what_they_stand_for(independent: Any) -> None:
    spec = independent()
    rule = sa.solve(spec, INDEPENDENT)
    assert sa.solve(spec, {**INDEPENDENT, (None, 3 / 4): 0}) == rule
    split = {**INDEPENDENT, (THIRD, 1 / 6): 4, (0.3, 0.2): 7}
    assert sa.solve(spec, split) == rule


@pytest.mark.parametrize("count", [-1, math.nan, math.inf])
def test_a_count_that_is_none_is_refused(toy: Any, count: float) -> None:
    with pytest.raises(ValueError, match="count"):
        sa.solve(toy(), {(THIRD, THIRD): count})


def test_a_profile_of_the_wrong_length_is_refused(toy: Any) -> None:
    with pytest.raises(sa.EventError, match="2 entries"):
        sa.solve(toy(), {(THIRD,): 1})
    with pytest.raises(sa.EventError, match="2 entries"):
        sa.solve(toy(), TOY).strategy((THIRD, THIRD, THIRD))


def test_nothing_seen_is_the_maxmin_of_the_table(independent: Any) -> None:
    rule = sa.solve(independent(), {})
    assert rule.value == pytest.approx(3 / 4)  # three quarters a0: 3/4 in either state
    assert rule.upper_bound >= rule.value
    assert rule.strategy((THIRD, None)) == pytest.approx({"a0": 0.75, "a1": 0.25})


@pytest.mark.parametrize("seed", SEEDS)
def test_the_smallest_epsilon(world: World, paper: Any, seed: int) -> None:
    spec, counts = world(seed, gamma=1)
    assert sa.solve(spec, counts).epsilon_min == pytest.approx(paper(spec, counts).epsilon_min(), abs=1e-9)


def test_contradicting_forecasts_name_the_epsilon_that_reconciles_them(world: World, paper: Any) -> None:
    worlds = [world(seed, gamma="inf", epsilon=0.0) for seed in SEEDS]
    contradicting = [(spec, counts) for spec, counts in worlds if paper(spec, counts).epsilon_min() > 1e-6]
    assert len(contradicting) > 20
    for spec, counts in contradicting:
        with pytest.raises(sa.InfeasibleError) as caught:
            sa.solve(spec, counts)
        least = caught.value.epsilon_min
        assert caught.value.epsilon == 0.0
        assert least == pytest.approx(paper(spec, counts).epsilon_min(), abs=1e-9)
        assert f"{least:.9g}" in str(caught.value)
        wide = least * (1 + 1e-6) + 1e-9
        rule = sa.solve(replace(spec, epsilon=wide), counts)
        assert rule.value == pytest.approx(paper(spec, counts).value(math.inf, wide), abs=NEAR)
        with pytest.raises(sa.InfeasibleError):
            sa.solve(replace(spec, epsilon=least - 1e-6), counts)


def test_two_experts_who_differ_by_a_fifth_need_a_tenth(make_spec: Any) -> None:
    with pytest.raises(sa.InfeasibleError, match=r"0\.1") as caught:
        sa.solve(make_spec([11, 11], [(1, 0), (0, 1)], gamma="inf"), {(0.4, 0.6): 10})
    assert caught.value.epsilon_min == pytest.approx(0.1, abs=1e-9)


def test_gamma_auto_starts_at_the_largest_slope_and_doubles_until_calibration_binds(world: World, paper: Any) -> None:
    feasible = doubled = 0
    for seed in SEEDS:
        spec, counts = world(seed, gamma="auto")
        rule = sa.solve(spec, counts)
        slope = max(abs(u1 - u0) for u0, u1 in spec.actions.values()) or 1.0
        if rule.epsilon_min > spec.epsilon + 1e-9:
            # no gamma is exact: large enough is where the worst rho violates hardly more than any must
            least = paper(spec, counts).least_violation(spec.epsilon)
            assert not rule.exact
            assert rule.violation >= least - NEAR
            assert rule.violation <= 1.1 * least + NEAR or rule.gamma == 64 * slope
            if rule.gamma > slope:
                assert sa.solve(replace(spec, gamma=rule.gamma / 2), counts).violation > 1.1 * least - NEAR
            continue
        feasible += 1
        assert rule.gamma in [slope * 2**k for k in range(7)]
        assert rule.exact or rule.gamma == 64 * slope
        if rule.gamma > slope:
            doubled += 1
            assert not sa.solve(replace(spec, gamma=rule.gamma / 2), counts).exact
        if rule.exact:
            hard = sa.solve(replace(spec, gamma=math.inf), counts)
            assert rule.value == pytest.approx(hard.value, abs=NEAR)
    assert feasible > 10
    assert doubled > 0


def test_value_rises_with_gamma_up_to_the_hard_benchmark(world: World) -> None:
    for seed in range(20):
        spec, counts = world(seed, epsilon=0.3)
        gammas = [0.1, 1.0, 10.0, 1000.0]
        values = [sa.solve(replace(spec, gamma=g), counts).value for g in gammas]
        assert all(a <= b + NEAR for a, b in pairwise(values))
        if sa.solve(replace(spec, gamma=1.0), counts).epsilon_min <= 0.3:
            assert values[-1] <= sa.solve(replace(spec, gamma=math.inf), counts).value + NEAR


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_the_posterior_range(world: World, paper: Any, seed: int) -> None:
    spec, counts, rule = solved(world, seed)
    spec = replace(spec, epsilon=max(spec.epsilon, 1.05 * rule.epsilon_min))
    for profile in list(counts)[:6]:
        low, high = sa.posterior_range(spec, counts, profile)
        assert (low, high) == pytest.approx(paper(spec, counts).rho_range(profile, spec.epsilon), abs=1e-6)
        assert 0.0 <= low <= high + 1e-9
        assert high <= 1.0


def test_the_posterior_range_where_calibration_says_nothing(toy: Any) -> None:
    assert sa.posterior_range(toy(), TOY, (TWO_THIRDS, TWO_THIRDS)) == (0.0, 1.0)
    assert sa.posterior_range(toy(), {}, (THIRD, THIRD)) == (0.0, 1.0)
    assert sa.posterior_range(toy(), {**TOY, (None, None): 4}, (None, None)) == (0.0, 1.0)
    with pytest.raises(sa.InfeasibleError):
        sa.posterior_range(toy(), {(THIRD, TWO_THIRDS): 1}, (THIRD, TWO_THIRDS))
