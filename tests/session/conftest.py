"""What the tests of the engine share: sessions of one small spec, a clock that counts hours, made-up feeds."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

import orjson
import pytest

import stream_agg as sa
from stream_agg.events import Forecast, State, format_time
from stream_agg.session.engine import Output

Event = Forecast | State
START_US = 1_795_219_200_000_000
HOUR_US = 3_600_000_000


class Make(Protocol):
    """A session of the small spec with some fields changed."""

    def __call__(self, **changes: Any) -> sa.Session: ...


class Feed(Protocol):
    """A spec and a stream of its events, both from the seed."""

    def __call__(self, seed: int, events: int, *, messy: bool = False) -> tuple[sa.SessionSpec, list[Event]]: ...


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    """Two experts of three levels and two actions that a price of -1 to 3 mixes."""
    return {
        "session": "paris-rain",
        "experts": {"ecmwf": {"levels": [0.0, 0.3, 1.0]}, "gfs": {"levels": 3}},
        "actions": {"stay": [1.0, 0.0], "prepare": [0.0, 3.0]},
        "schedule": {"every": 1},
        "state_deadline": "PT48H",
    }


@pytest.fixture(scope="session")
def make(small: dict[str, Any]) -> Make:
    def build(**changes: Any) -> sa.Session:
        return sa.Session(sa.SessionSpec.from_dict({**small, **changes}))

    return build


@pytest.fixture(scope="session")
def at() -> Callable[[float], str]:
    """Hours since the start as an RFC 3339 text."""
    return lambda hours: format_time(START_US + round(hours * HOUR_US))


@pytest.fixture(scope="session")
def put() -> Callable[[sa.Session, Event], list[Output]]:
    """Applies an event of either kind; a state's origin is its event id."""

    def apply(session: sa.Session, event: Event) -> list[Output]:
        if isinstance(event, Forecast):
            return session.forecast(event)
        return session.state(event, {"of": event.event})[1]

    return apply


@pytest.fixture(scope="session")
def reloaded(put: Callable[[sa.Session, Event], list[Output]]) -> Callable[[sa.SessionSpec, list[Event]], sa.Session]:
    """Puts events through a session that is saved and loaded before each, and one that is not: equal to the byte, and
    what they say has changed adds up to their tables. The session at the end."""

    def run(spec: sa.SessionSpec, events: list[Event]) -> sa.Session:
        through = again = sa.Session(spec)
        tables: dict[str, dict[str, bytes]] = defaultdict(dict)
        for event in events:
            again = sa.Session.from_bytes(again.to_bytes())
            assert orjson.dumps(put(again, event)) == orjson.dumps(put(through, event))
            assert again.to_bytes() == through.to_bytes()
            for name, fields in through.changes().items():
                for key, value in fields.items():
                    if value is None:
                        tables[name].pop(key, None)
                    else:
                        tables[name][key] = value
            assert {n: rows for n, rows in through.tables().items() if rows} == {n: r for n, r in tables.items() if r}
        assert orjson.dumps(again.report()) == orjson.dumps(through.report())
        return through

    return run


@pytest.fixture(scope="session")
def feed() -> Feed:
    """Forecasts an hour apart, silent experts and reports off the levels among them; states in an order of their own.

    `messy`: also repeats, conflicts, states too late, of unknown events and long before their forecasts, while
    deadline and window are so short that decisions are forgotten.
    """

    def build(seed: int, events: int, *, messy: bool = False) -> tuple[sa.SessionSpec, list[Event]]:
        rng = random.Random(seed)
        spec = _spec(rng, messy)
        queue: list[tuple[float, Event]] = []
        for i in range(events):
            chance, event = rng.random(), f"e{i}"
            reports = {name: _report(rng, chance, a.levels) for name, a in spec.experts.items() if rng.random() < 0.9}
            time_us = START_US + i * HOUR_US
            queue.append((i, Forecast(spec.session, event, time_us, reports)))
            state = State(spec.session, event, time_us + rng.randrange(6) * HOUR_US, int(rng.random() < chance))
            if rng.random() < 0.9:
                queue.append((i + rng.uniform(-3, 12), state))
            if messy:
                queue += _mess(rng, i, queue[-1][1], state)
        return spec, [event for _, event in sorted(queue, key=lambda item: item[0])]

    return build


def _spec(rng: random.Random, messy: bool) -> sa.SessionSpec:
    levels = [2, 3, 4, [0.1, 0.5, 0.9], [0.25, 0.75]]
    actions = {f"a{k}": [rng.randrange(-4, 9) / 2, rng.randrange(-4, 9) / 2] for k in range(rng.randint(2, 4))}
    gamma, epsilon = rng.choice([(0.5, 0.0), (1.0, 0.05), (4.0, 0.0), ("auto", 0.0), ("auto", 0.2), ("inf", 0.5)])
    spec = {
        "session": f"s{rng.randrange(1000)}",
        "experts": {f"x{i}": {"levels": rng.choice(levels)} for i in range(rng.randint(2, 4))},
        "actions": actions,
        "gamma": gamma,
        "epsilon": epsilon,
        "schedule": rng.choice([{"every": 5}, {"growth": 0.2}, {"seconds": 20_000}, {"certified": 0.5}]),
        "seed": rng.randrange(100),
    }
    return sa.SessionSpec.from_dict({**spec, "state_deadline": "PT7H", "window": 12} if messy else spec)


def _report(rng: random.Random, chance: float, levels: tuple[float, ...]) -> float | None:
    if rng.random() < 0.15:
        return None
    near = min(max(rng.gauss(chance, 0.25), 0.0), 1.0)
    return near if rng.random() < 0.2 else min(levels, key=lambda z: abs(z - near))


def _mess(rng: random.Random, i: int, again: Event, state: State) -> list[tuple[float, Event]]:
    other = State(state.session, state.event, state.time_us, 1 - (state.state or 0))
    late = State(state.session, state.event, state.time_us + 9 * HOUR_US, state.state)
    stray = State(state.session, f"nobody{i}", state.time_us, state.state)
    early = State(state.session, f"e{i + 12}", state.time_us, 1)
    found: list[tuple[float, Event]] = [(i + rng.uniform(0, 20), e) for e in (again, other, late, stray, early)]
    return [item for item in found if rng.random() < 0.15]


@pytest.fixture(scope="session")
def prefix_counts() -> Callable[[list[sa.Action]], dict[tuple[float | None, ...], float]]:
    """What actions published say was seen: profile of levels -> rounds."""

    def count(actions: list[sa.Action]) -> dict[tuple[float | None, ...], float]:
        seen: dict[tuple[float | None, ...], float] = {}
        for action in actions:
            profile = tuple(action.profile.values())
            seen[profile] = seen.get(profile, 0) + 1
        return seen

    return count
