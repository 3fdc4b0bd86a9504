"""Specs from plain numbers, and random worlds and programs to compare solvers on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pytest

import stream_agg as sa
from stream_agg.rule.ascent import Ascent
from stream_agg.rule.envelope import Envelope, envelope
from stream_agg.rule.epsilon import smallest_epsilon
from stream_agg.rule.solution import SHIFT, Solution
from stream_agg.rule.support import Profile, Support
from stream_agg.spec import Alphabet

Levels = tuple[float | None, ...]
Payoffs = Sequence[tuple[float, float]]
GAMMAS = (0.1, 0.5, 1.0, 3.0, 10.0, 100.0, math.inf)
EPSILONS = (0.0, 0.0, 0.01, 0.05, 0.2)


@pytest.fixture(scope="session")
def make_spec() -> Callable[..., sa.SessionSpec]:
    """A spec from level lists (or counts) and payoff pairs."""

    def make(levels: Sequence[Any], payoffs: Sequence[Sequence[float]], **fields: Any) -> sa.SessionSpec:
        experts = {f"e{i}": {"levels": z} for i, z in enumerate(levels)}
        actions = {f"a{i}": list(pair) for i, pair in enumerate(payoffs)}
        return sa.SessionSpec.from_dict({"session": "s", "experts": experts, "actions": actions, **fields})

    return make


@pytest.fixture(scope="session")
def world(make_spec: Callable[..., sa.SessionSpec]) -> Callable[..., tuple[sa.SessionSpec, dict[Levels, int]]]:
    """A random spec with counted profiles; every third seed's forecasts come from one truth, so they nearly agree."""

    def make(seed: int, **fields: Any) -> tuple[sa.SessionSpec, dict[Levels, int]]:
        rng = random.Random(seed)
        levels = [
            rng.randint(2, 7)
            if rng.random() < 0.7
            else sorted(rng.sample([k / 20 for k in range(21)], rng.randint(1, 7)))
            for _ in range(rng.randint(1, 5))
        ]
        payoffs = [(round(rng.uniform(-3, 3), 2), round(rng.uniform(-3, 3), 2)) for _ in range(rng.randint(1, 6))]
        fields.setdefault("gamma", rng.choice([0.1, 0.5, 1, 3, 10, 100, "inf", "auto"]))
        fields.setdefault("epsilon", rng.choice([0.0, 0.0, 0.02, 0.05, 0.2]))
        spec = make_spec(levels, payoffs, **fields)
        alphabets = [a.levels for a in spec.experts.values()]
        silence = rng.choice([0.0, 0.15])
        counts: dict[Levels, int] = {}
        for _ in range(rng.randint(1, 40)):
            truth = rng.random()
            e = tuple(
                None
                if rng.random() < silence
                else (min(z, key=lambda x: abs(x - truth)) if seed % 3 == 0 else rng.choice(z))
                for z in alphabets
            )
            counts[e] = counts.get(e, 0) + rng.randint(1, 30)
        return spec, counts

    return make


@dataclass(frozen=True)
class Program:
    """A reduced program as it is given to solvers."""

    payoffs: Payoffs
    alphabets: Sequence[tuple[float, ...]]
    counts: Mapping[Profile, float]
    gamma: float
    epsilon: float

    @property
    def cost(self) -> Envelope:
        return envelope(self.payoffs)

    @property
    def support(self) -> Support:
        return Support.of(map(Alphabet, self.alphabets), self.counts)

    @property
    def spec(self) -> sa.SessionSpec:
        experts = {f"e{i}": {"levels": list(z)} for i, z in enumerate(self.alphabets)}
        actions = {f"a{i}": list(pair) for i, pair in enumerate(self.payoffs)}
        plain = {"session": "s", "experts": experts, "actions": actions, "gamma": self.gamma, "epsilon": self.epsilon}
        return sa.SessionSpec.from_dict(plain)

    def empty(self) -> Ascent:
        return Ascent(self.alphabets, self.cost, self.gamma, self.epsilon)

    def cold(self) -> Ascent:
        return Ascent.of(self.alphabets, self.cost, self.gamma, self.epsilon, self.support)

    def solved(self) -> Solution:
        """By a cold ascent."""
        ascent = self.cold()
        ascent.solve()
        return ascent.solution()

    def upper(self, found: Solution) -> float:
        """What no rule exceeds, in counts."""
        return found.payoff + (self.gamma * found.excess if found.excess > 1e-9 * found.rounds else 0.0)

    def apart(self, duals: Any, others: Any) -> float:
        """The largest difference between prices, in units of the steepest slope."""
        return float(np.abs(duals - others).max()) / self.cost.unit


class AnyProgram(Protocol):
    """Any program, from its seed: few profiles, or up to so many."""

    def __call__(self, seed: int, profiles: int | None = None) -> Program: ...


@pytest.fixture(scope="session")
def any_program() -> AnyProgram:
    return _any_program


def _any_program(seed: int, profiles: int | None = None) -> Program:
    """Any program: grids of equal levels or odd ones, forecasts that agree or not, silences. Hard rows can be met."""
    rng = random.Random(seed)
    alphabets = [_levels(rng) for _ in range(rng.randint(1, 6))]
    silence, truthful, counts = rng.choice([0.0, 0.0, 0.2]), rng.random() < 0.4, dict[Profile, float]()
    for _ in range(profiles or rng.randint(1, 60)):
        truth = rng.random()
        e = tuple(
            -1 if rng.random() < silence else Alphabet(z).nearest(truth) if truthful else rng.randrange(len(z))
            for z in alphabets
        )
        counts[e] = counts.get(e, 0) + rng.randint(1, 50)
    made = Program(_payoffs(rng), alphabets, counts, rng.choice(GAMMAS), rng.choice(EPSILONS))
    if math.isinf(made.gamma):
        made = replace(made, epsilon=max(made.epsilon, 1.1 * smallest_epsilon(made.support)))
    return made


def _levels(rng: random.Random) -> tuple[float, ...]:
    size = rng.randint(2, 21)
    if rng.random() < 0.7:
        return tuple(k / (size - 1) for k in range(size))
    return tuple(sorted(rng.sample([k / 40 for k in range(41)], size)))


def _payoffs(rng: random.Random) -> Payoffs:
    """One to eight actions, whose slopes are further from each other and from zero than shifts of kinks reach."""
    while True:
        step = rng.choice([0.0, 0.25, 1.0])
        flat = [rng.uniform(-3, 3) for _ in range(2 * rng.randint(1, 8))]
        if step:
            flat = [step * round(u / step) for u in flat]
        payoffs = list(zip(flat[::2], flat[1::2], strict=True))
        slopes = sorted({0.0, *(u1 - u0 for u0, u1 in payoffs)})
        if min(np.diff(slopes), default=1.0) > 100 * SHIFT:
            return payoffs
