"""The certificate encloses the true value at every event of a stream, however stale the rule is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stream_agg as sa
from stream_agg.rule.certificate import Certificate
from stream_agg.rule.solver import Solver, solve_support
from stream_agg.rule.support import Profile, Support

World = Callable[..., tuple[sa.SessionSpec, dict[Any, int]]]
Step = tuple[sa.Rule, Certificate, dict[Profile, int]]


def stream(world: World, seed: int, events: int = 40, **fields: Any) -> Iterator[Step]:
    """A rule solved on a random world, then events that it does not know of: seen profiles, new ones, silences."""
    spec, counts = world(seed, **fields)
    rng = random.Random(seed)
    seen: dict[Profile, int] = {}
    for levels, n in counts.items():
        seen[spec.index(levels)] = n
    rule, certificate = certified(spec, seen)
    known = list(seen)
    for _ in range(events):
        fresh = tuple(rng.randrange(-1, len(a.levels)) for a in spec.experts.values())
        profile = rng.choice(known) if rng.random() < 0.5 else fresh
        seen[profile] = seen.get(profile, 0) + 1
        certificate.add(rule, profile)
        yield rule, certificate, seen


def certified(spec: sa.SessionSpec, seen: dict[Profile, int]) -> tuple[sa.Rule, Certificate]:
    solver = Solver(spec, lambda: Support.of(spec.experts.values(), seen))
    rule = solver.settle()
    return rule, Certificate.of(rule, solver.found)


def upper(rule: sa.Rule, certificate: Certificate) -> float:
    return certificate.payoff + (rule.gamma * certificate.excess if certificate.excess else 0.0)


@pytest.mark.parametrize("seed", range(24))
def test_the_true_value_lies_between_the_bounds_at_every_event(world: World, seed: int) -> None:
    gamma = [0.5, 2.0, 20.0][seed % 3]
    for rule, certificate, seen in stream(world, seed, gamma=gamma):
        t = sum(seen.values())
        assert certificate.rounds == t
        value = solve_support(rule.spec, Support.of(rule.spec.experts.values(), seen)).value
        assert certificate.lower / t <= value + 1e-8
        assert value <= upper(rule, certificate) / t + 1e-8
        gap = certificate.gap(rule)
        assert gap == pytest.approx((upper(rule, certificate) - certificate.lower) / t, abs=1e-7)
        assert gap is not None
        assert gap >= 0.0


@pytest.mark.parametrize("seed", range(4))
def test_the_other_solver_agrees_with_the_bounds(world: World, paper: Any, seed: int) -> None:
    for rule, certificate, seen in stream(world, seed, events=10, gamma=3.0):
        t = sum(seen.values())
        levels = {tuple(rule.spec.reports(e).values()): n for e, n in seen.items()}
        other = paper(rule.spec, levels)
        assert certificate.lower / t <= other.value(rule.gamma, rule.epsilon) + 1e-8
        assert other.value(rule.gamma, rule.epsilon) <= upper(rule, certificate) / t + 1e-8
        # the lower bound is a promise about this stale rule, not only about the best one
        assert certificate.lower / t <= other.worst_case(rule.strategy, rule.gamma, rule.epsilon) + 1e-8


@pytest.mark.parametrize("seed", range(24))
def test_counting_one_by_one_is_computing_afresh(world: World, seed: int) -> None:
    for rule, certificate, seen in stream(world, seed, gamma=[0.5, 2.0, "auto", 20.0][seed % 4]):
        support, duals = Support.of(rule.spec.experts.values(), seen), rule.flat[:-1]
        mass, residual = certificate.mass[:-1], certificate.residual[:-1]
        assert certificate.rounds == support.total
        assert mass.tolist() == support.mass.tolist()
        paid = duals @ (support.levels * mass) + rule.epsilon * (abs(duals) @ mass)
        lower = support.counts @ rule.envelope.phi(support.prices(duals)) - paid
        assert certificate.lower == pytest.approx(lower, abs=1e-8 * support.total)
        excess = (abs(residual) - rule.epsilon * mass).clip(min=0).sum()
        assert certificate.excess == pytest.approx(excess, abs=1e-9 * support.total)
        assert (certificate.mass[-1], certificate.residual[-1]) == (0.0, 0.0)


@pytest.mark.parametrize("seed", range(12))
def test_right_after_a_solve_the_bounds_are_the_rules_own(world: World, seed: int) -> None:
    spec, counts = world(seed, gamma=2.0)
    seen = {spec.index(levels): n for levels, n in counts.items()}
    rule, certificate = certified(spec, seen)
    t = sum(seen.values())
    assert certificate.lower / t == pytest.approx(rule.value, abs=1e-9)
    assert upper(rule, certificate) / t == pytest.approx(rule.upper_bound, abs=1e-6)
    assert certificate.gap(rule) == pytest.approx(rule.gap, abs=1e-6)


def test_from_the_first_event_on(make_spec: Any) -> None:
    spec = make_spec([11, 11], [(1, 0), (0, 3)], gamma=2.0)
    rule = sa.solve(spec, {})
    certificate = Certificate.empty(rule)
    assert certificate.gap(rule) == rule.gap
    seen: dict[Profile, int] = {}
    for profile in [(3, 4), (3, 4), (-1, 10), (0, -1), (-1, -1)]:
        certificate.add(rule, profile)
        seen[profile] = seen.get(profile, 0) + 1
        t = sum(seen.values())
        value = solve_support(spec, Support.of(spec.experts.values(), seen)).value
        assert certificate.lower / t <= value + 1e-9 <= upper(rule, certificate) / t + 2e-9


def test_hard_constraints_prove_nothing_finite_once_broken(make_spec: Any) -> None:
    spec = make_spec([[0.2, 0.8]], [(1, 0), (0, 1)], gamma="inf")
    seen: dict[Profile, int] = {(0,): 10, (1,): 10}
    rule, certificate = certified(spec, seen)
    assert certificate.gap(rule) == pytest.approx(0.0, abs=1e-9)
    certificate.add(rule, (0,))  # the adversary may answer 0.2 again: no row breaks
    assert certificate.gap(rule) == pytest.approx(0.0, abs=1e-9)
    both = make_spec([[0.2, 0.8], [0.2, 0.8]], [(1, 0), (0, 1)], gamma="inf")
    agreeing, certificate = certified(both, {(0, 0): 10, (1, 1): 10})
    certificate.add(agreeing, (0, 1))  # no rho is 0.2 and 0.8
    assert certificate.excess == pytest.approx(0.6)
    assert certificate.gap(agreeing) is None


def test_the_adversary_answers_so_that_the_bound_is_tight(make_spec: Any) -> None:
    # One expert: every row can be kept by answering its level, so the gap never opens.
    spec = make_spec([[0.2, 0.5, 0.8]], [(1, 0), (0, 1)], gamma=1.0)
    rule, certificate = certified(spec, {(0,): 3, (1,): 4, (2,): 5})
    for profile in [(0,), (2,), (2,), (1,), (0,), (-1,)]:
        certificate.add(rule, profile)
        assert certificate.gap(rule) == pytest.approx(0.0, abs=1e-9)
