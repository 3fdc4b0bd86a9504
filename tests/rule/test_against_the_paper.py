"""Two hundred random instances of every kind: the rule against the paper's own linear program, solved by scipy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

import stream_agg as sa

Levels = tuple[float | None, ...]
Payoffs = list[tuple[float, float]]
NEAR = 1e-7
INSTANCES = range(200)


@dataclass(frozen=True)
class Instance:
    """A spec and counted profiles; `raised` where epsilon was too small for hard constraints."""

    spec: sa.SessionSpec
    counts: dict[Levels, int]
    rule: sa.Rule
    raised: bool


@pytest.fixture(scope="module")
def instance(make_spec: Any) -> Callable[[int], Instance]:
    """Instance number so and so, always the same; solved once."""

    @cache
    def make(number: int) -> Instance:
        rng = random.Random(number)
        gamma = math.inf if rng.random() < 0.25 else 10 ** rng.uniform(-1, 2)
        epsilon = rng.choice([0.0, rng.uniform(0, 0.2)])
        levels = [alphabet(rng) for _ in range(rng.randint(1, 6))]
        spec = make_spec(levels, payoffs(rng), gamma=gamma, epsilon=epsilon)
        counts = profiles(rng, spec)
        try:
            return Instance(spec, counts, sa.solve(spec, counts), False)
        except sa.InfeasibleError as e:
            spec = replace(spec, epsilon=1.1 * e.epsilon_min)
            return Instance(spec, counts, sa.solve(spec, counts), True)

    return make


def alphabet(rng: random.Random) -> int | list[float]:
    """2 to 21 levels: evenly spaced, or decimals, or any floats."""
    size = rng.randint(2, 21)
    kind = rng.randrange(3)
    if kind == 0:
        return size
    return rng.sample([k / 100 for k in range(101)], size) if kind == 1 else [rng.random() for _ in range(size)]


def payoffs(rng: random.Random) -> Payoffs:
    """1 to 8 actions: integers (which tie), decimals or any floats; some dominated, some twice, all of them shifted."""
    draw = rng.choice([lambda: rng.randint(-3, 3), lambda: round(rng.uniform(-3, 3), 2), lambda: rng.uniform(-3, 3)])
    table: Payoffs = [(draw(), draw()) for _ in range(rng.randint(1, 8))]
    for a in range(1, len(table)):
        chance, (u0, u1) = rng.random(), table[rng.randrange(a)]
        if chance < 0.1:
            table[a] = (u0, u1)
        elif chance < 0.2:
            table[a] = (u0 - abs(draw()), u1 - abs(draw()))
        elif chance < 0.3:
            table[a] = (u0, draw())  # as good in one state
        elif chance < 0.4:
            table[a] = ((u0 + table[0][0]) / 2, (u1 + table[0][1]) / 2)  # nowhere better than both, everywhere between
    rng.shuffle(table)
    shift0 = rng.choice([0, 0, 10, rng.uniform(-50, 50)])
    shift1 = rng.choice([shift0, shift0, draw()])
    return [(u0 + shift0, u1 + shift1) for u0, u1 in table]


def profiles(rng: random.Random, spec: sa.SessionSpec) -> dict[Levels, int]:
    """1 to 60 profiles seen 1 to 50 times; experts who disagree wildly, or who see one truth with some noise."""
    silence, noise = rng.choice([0.0, 0.05, 0.3]), rng.choice([0.0, 0.05, 0.3, math.inf])
    counts: dict[Levels, int] = {}
    for _ in range(rng.choice([1, 2, rng.randint(3, 60), 60])):
        truth = rng.random()
        e = tuple(
            None
            if rng.random() < silence
            else rng.choice(a.levels)
            if math.isinf(noise)
            else a.levels[a.nearest(min(max(rng.gauss(truth, noise), 0.0), 1.0))]
            for a in spec.experts.values()
        )
        counts[e] = rng.randint(1, 50)
    return counts


@pytest.mark.parametrize("number", INSTANCES)
def test_the_value_is_the_papers_and_the_rule_earns_it(
    instance: Callable[[int], Instance], paper: Any, number: int
) -> None:
    one = instance(number)
    gamma, epsilon = one.spec.gamma, one.spec.epsilon
    other = paper(one.spec, one.counts)
    value = other.program(gamma, epsilon)
    assert one.rule.value == pytest.approx(value, abs=NEAR, rel=0)
    assert other.worst_case(one.rule.strategy, gamma, epsilon) == pytest.approx(value, abs=NEAR, rel=0)
    assert one.rule.upper_bound == pytest.approx(value, abs=NEAR, rel=0)


def test_the_instances_are_of_every_kind(instance: Callable[[int], Instance]) -> None:
    every = [instance(number) for number in INSTANCES]
    specs = [one.spec for one in every]
    assert {len(s.experts) for s in specs} == set(range(1, 7))
    assert {len(s.actions) for s in specs} == set(range(1, 9))
    assert {len(a.levels) for s in specs for a in s.experts.values()} == set(range(2, 22))
    assert {len(one.counts) for one in every} >= {1, 2, 60}
    hard = [one for one in every if math.isinf(one.spec.gamma)]
    assert len(hard) > 30
    assert 10 < sum(one.raised for one in hard) < len(hard) - 5
    assert sum(any(None in e for e in one.counts) for one in every) > 50
    assert sum(one.spec.epsilon == 0.0 for one in every) > 50
    assert sum(len(set(s.actions.values())) < len(s.actions) for s in specs) > 20
    mixed = [one for one in every if any(0 < p < 1 for e in one.counts for p in one.rule.strategy(e).values())]
    assert len(mixed) > 50
