"""Generated forecasters and files of real ones: profiles, programs and feeds made of them. Nothing is timed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import stream_agg as sa
from stream_agg.events import Forecast
from stream_agg.replay.source import Source
from stream_agg.rule import program
from stream_agg.rule.ascent import Ascent
from stream_agg.rule.envelope import Envelope, envelope
from stream_agg.rule.solution import Solution
from stream_agg.rule.support import Levels, Profile, Support
from stream_agg.spec import Schedule

ACTIONS = {"stay": (1.0, 0.0), "wait": (0.6, 1.5), "prepare": (0.0, 3.0)}
"""d = 3, and each is best somewhere."""

CHUNK = 4096


def latent(experts: int, levels: int, noise: float = 0.2, seed: int = 0) -> Iterator[Profile]:
    """Forecasters of one hidden chance of state 1, uniform on [0, 1], each with a normal error of its own."""
    random = np.random.default_rng(seed)
    while True:
        told = random.random((CHUNK, 1)) + noise * random.standard_normal((CHUNK, experts))
        yield from map(tuple, np.rint(np.clip(told, 0, 1) * (levels - 1)).astype(int).tolist())


def independent(experts: int, levels: int, evenness: float = 3.0, seed: int = 0) -> Iterator[Profile]:
    """Forecasters who know nothing of each other: each draws from a law of its own, itself drawn from a Dirichlet."""
    random = np.random.default_rng(seed)
    laws = random.dirichlet(np.full(levels, evenness), experts)
    while True:
        yield from zip(*(random.choice(levels, CHUNK, p=law).tolist() for law in laws), strict=True)


def repeating(profiles: Iterator[Profile], pool: int, seed: int = 0) -> Iterator[Profile]:
    """The first `pool` different profiles again and again, the j-th with a chance proportional to 1 / j."""
    random, known = np.random.default_rng(seed), list(first(profiles, pool))
    chances = 1 / np.arange(1, pool + 1)
    while True:
        yield from (known[j] for j in random.choice(pool, CHUNK, p=chances / chances.sum()).tolist())


def first(profiles: Iterator[Profile], k: int) -> Counter[Profile]:
    """Profiles counted as they come, until k different ones have."""
    counts: Counter[Profile] = Counter()
    while len(counts) < k:
        counts[next(profiles)] += 1
    return counts


def spec(experts: int | Iterable[str], levels: int, **fields: Any) -> sa.SessionSpec:
    """A session of experts with equal alphabets; `fields` as in a spec's JSON."""
    names = [f"expert {i}" for i in range(1, experts + 1)] if isinstance(experts, int) else experts
    alphabets = {name: {"levels": levels} for name in names}
    return sa.SessionSpec.from_dict({"session": "s", "experts": alphabets, "actions": ACTIONS, **fields})


@dataclass(frozen=True)
class Program:
    """Counted profiles and the terms on which every solver is given them: one gamma, and epsilon = 0.

    Build it with `of`; gamma is twice the steepest payoff slope (`"auto"` would choose among programs, not solve one).
    """

    spec: sa.SessionSpec
    counts: Mapping[Profile, int]

    @classmethod
    def of(cls, experts: int, levels: int, counts: Mapping[Profile, int]) -> Program:
        """For so many experts with so many levels."""
        return cls(spec(experts, levels, gamma=2 * max(abs(b - a) for a, b in ACTIONS.values())), counts)

    @property
    def gamma(self) -> float:
        """As a number."""
        return float(self.spec.gamma)

    @cached_property
    def support(self) -> Support:
        """The profiles as arrays."""
        return Support.of(self.spec.experts.values(), self.counts)

    @cached_property
    def cost(self) -> Envelope:
        """V."""
        return envelope(tuple(self.spec.actions.values()))

    @cached_property
    def by_levels(self) -> dict[Levels, int]:
        """The counts as the public API takes them."""
        alphabets = [a.levels for a in self.spec.experts.values()]
        return {tuple(z[i] for z, i in zip(alphabets, e, strict=True)): n for e, n in self.counts.items()}

    def ascent(self) -> Ascent:
        """The compiled ascent on it, not yet solved."""
        return ascent(self.spec, self.gamma, 0.0, self.support)

    def robust(self) -> Solution:
        """HiGHS's answer."""
        return program.robust(self.support, self.cost, self.gamma, 0.0)


def ascent(of: sa.SessionSpec, gamma: float, epsilon: float, support: Support | None = None) -> Ascent:
    """The compiled ascent on a spec's program, empty or of counted profiles."""
    levels, cost = [a.levels for a in of.experts.values()], envelope(tuple(of.actions.values()))
    return Ascent.of(levels, cost, gamma, epsilon, support) if support else Ascent(levels, cost, gamma, epsilon)


@dataclass(frozen=True)
class Feed:
    """Forecasts in order, and the spec of the session that they are for, with all its defaults."""

    name: str
    spec: sa.SessionSpec
    forecasts: list[Forecast]

    @cached_property
    def profiles(self) -> list[Profile]:
        """Level indices of every forecast."""
        return [self.spec.profile(f.forecasts) for f in self.forecasts]

    def scheduled(self, kind: Any, amount: float) -> sa.SessionSpec:
        """The spec with that schedule."""
        return replace(self.spec, schedule=Schedule(kind, amount))


def generated(name: str, experts: int, levels: int, profiles: Iterable[Profile], size: int) -> Feed:
    """The first `size` of generated profiles as events, a second apart."""
    made = spec(experts, levels)
    reports: dict[Profile, dict[str, float | None]] = {}
    forecasts = []
    for t, e in enumerate(islice(profiles, size)):
        if e not in reports:
            reports[e] = made.reports(e)
        forecasts.append(Forecast("s", str(t), t * 1_000_000, reports[e]))
    return Feed(name, made, forecasts)


def real(path: Path, size: int | None) -> Feed:
    """The first `size` rows of a file of forecasts; two actions, each right in one state."""
    source = Source(path)
    made = spec(source.experts, 11, actions={"no": [1, 0], "yes": [0, 1]})
    rows = islice(source.rows(), size)
    return Feed(path.name.split(".")[0], made, [Forecast("s", r.event, r.time_us, r.forecasts) for r in rows])
