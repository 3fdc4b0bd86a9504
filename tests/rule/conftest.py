"""Specs from plain numbers, and random worlds to compare solvers on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import stream_agg as sa

Levels = tuple[float | None, ...]


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
