"""The rule is a function of the counts: after 10,000 events it is the same to the bit, whatever became of the process
in between, and whether its solver was warm or cold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest

import stream_agg as sa
from stream_agg.events import Forecast
from stream_agg.replay.source import Source

EVERY, CERTIFIED, GROWTH, SEVENTH = {"every": 1}, {"certified": 0.1}, {"growth": 0.05}, {"every": 7}
SCHEDULES = [EVERY, CERTIFIED, GROWTH, SEVENTH]
ACTIONS = {"stay": [1.0, 0.0], "prepare": [0.0, 3.0], "insure": [0.7, 0.9]}
RELOADED = 100
"""Events between a save and the next."""

Reports = Mapping[str, float | None]


def spec_of(experts: int, levels: int, schedule: Mapping[str, float], **fields: Any) -> sa.SessionSpec:
    names = {f"x{i}": {"levels": levels} for i in range(experts)}
    plain = {"session": "s", "experts": names, "actions": ACTIONS, "schedule": dict(schedule), "window": 50, **fields}
    return sa.SessionSpec.from_dict(plain)


def guesses(spec: sa.SessionSpec, rounds: int, noise: float) -> Iterator[Reports]:
    """Experts who guess at one truth; now and then one is silent."""
    rng = random.Random(rounds)
    for _ in range(rounds):
        truth = rng.random()
        yield {
            name: None if rng.random() < 0.03 else min(max(rng.gauss(truth, noise), 0.0), 1.0) for name in spec.experts
        }


def is_canonical(spec: sa.SessionSpec, rounds: Iterator[Reports], looks: int) -> sa.Session:
    """One session in one go and one that is saved and loaded: equal outputs, event by event, and equal states at every
    save. Whenever `looks` more events have passed, the next solve is compared with a cold one of the same counts."""
    whole, again = sa.Session(spec), sa.Session(spec)
    seen, looked, next_look = dict[tuple[float | None, ...], int](), 0, 0
    for t, reports in enumerate(rounds):
        if t % RELOADED == 0:
            assert again.to_bytes() == whole.to_bytes()
            again = sa.Session.from_bytes(again.to_bytes())
        forecast = Forecast(spec.session, f"e{t}", t * 1_000_000, reports)
        outputs = whole.forecast(forecast)
        assert orjson.dumps(again.forecast(forecast)) == orjson.dumps(outputs)
        if t >= max(next_look, 1) and whole.counters.proven_round == t:
            is_cold(whole, seen)
            looked, next_look = looked + 1, t + looks
        levels = tuple(spec.reports(spec.profile(reports)).values())
        seen[levels] = seen.get(levels, 0) + 1
    assert again.tables()["state"]["rule"] == whole.tables()["state"]["rule"]
    assert again.to_bytes() == whole.to_bytes()
    assert looked >= 5
    return whole


def is_cold(session: sa.Session, counts: Mapping[tuple[float | None, ...], int]) -> None:
    """Its rule is that of these counts, solved by themselves."""
    rule = session.rule
    cold = sa.solve(replace(session.spec, gamma=rule.gamma, epsilon=rule.epsilon), counts)
    assert cold.prices == rule.prices
    if rule.rounds == cold.rounds:  # with a solve at every event, a rule that is optimal still is left as it was
        numbers = [(r.value, r.upper_bound, r.violation, r.exact) for r in (rule, cold)]
        assert numbers[0] == numbers[1]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_profiles_that_repeat(schedule: Mapping[str, float]) -> None:
    spec = spec_of(3, 5, schedule)
    session = is_canonical(spec, guesses(spec, 10_000, 0.15), looks=500)
    assert session.counters.round == 10_000
    assert len(session.tallies) < 200


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_profiles_that_hardly_repeat(schedule: Mapping[str, float]) -> None:
    spec = spec_of(6, 11, schedule)
    session = is_canonical(spec, guesses(spec, 700, 0.2), looks=60)
    assert len(session.tallies) > 650


@pytest.mark.parametrize("schedule", [EVERY, CERTIFIED], ids=str)
@pytest.mark.parametrize(("gamma", "epsilon"), [(2.0, 0.05), ("inf", "auto"), ("auto", "auto")])
def test_other_terms(schedule: Mapping[str, float], gamma: Any, epsilon: Any) -> None:
    spec = spec_of(4, 6, schedule, gamma=gamma, epsilon=epsilon)
    is_canonical(spec, guesses(spec, 600, 0.15), looks=50)


@pytest.mark.data
@pytest.mark.parametrize("schedule", [EVERY, CERTIFIED], ids=str)
def test_real_forecasts(data: Callable[[str], Path], schedule: Mapping[str, float]) -> None:
    source, spec = Source(data("flusight_trend_7m")), spec_of(1, 11, schedule)
    spec = replace(spec, experts=dict.fromkeys(source.experts, spec.experts["x0"]))
    is_canonical(spec, (row.forecasts for row in islice(source.rows(), 1_500)), looks=200)
