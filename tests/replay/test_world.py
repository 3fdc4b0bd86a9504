"""The made-up world is the paper's: its distribution, its calibration, its order, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import islice
from math import sqrt
from typing import Any

import pytest

from stream_agg.events import Forecast, State, parse_time
from stream_agg.replay.world import HOUR_US, PRIORS, Event, world

START_US = 1_795_219_200_000_000
EVENTS = 20_000
SIGMAS = 4.5  # two-sided chance 7e-6 of each comparison, were the seed not fixed


def stream(n: int, seed: int = 7, sessions: int = 3, **options: Any) -> list[Event]:
    return list(islice(world(seed, sessions, START_US, **options), n))


def paired(feed: list[Event]) -> list[tuple[str, dict[str, float], int]]:
    """(session, forecasts, state) of every event whose state is known."""
    states = {(name, r["event"]): r["state"] for kind, name, r in feed if kind == "states"}
    return [
        (name, r["forecasts"], states[name, r["event"]])
        for kind, name, r in feed
        if kind == "forecasts" and (name, r["event"]) in states
    ]


def test_the_seed_decides_the_stream() -> None:
    assert stream(3000) == stream(3000)
    assert stream(3000) != stream(3000, seed=8)


def test_a_session_does_not_depend_on_the_others() -> None:
    def draws(sessions: int) -> list[tuple[str, dict[str, float]]]:
        feed = stream(2000, sessions=sessions)
        return [(r["event"], r["forecasts"]) for kind, name, r in feed if (kind, name) == ("forecasts", "paris-rain")]

    alone, among = draws(1), draws(10)
    assert len(among) > 50
    assert alone[: len(among)] == among


def test_records_are_those_of_the_contract_in_order_of_time() -> None:
    feed = stream(4000, sessions=9)
    specs = feed[:9]
    assert [kind for kind, _, _ in specs] == ["sessions"] * 9
    assert "sessions" not in {kind for kind, _, _ in feed[9:]}
    assert len({name for _, name, _ in specs}) == 9
    levels = {name: {e: set(v["levels"]) for e, v in spec["experts"].items()} for _, name, spec in specs}
    assert all(len(experts) >= 2 for experts in levels.values())
    last_us = START_US
    open_events: dict[tuple[str, str], int] = {}
    known = 0
    for kind, name, record in feed[9:]:
        now_us = parse_time(record["time"])
        assert now_us >= last_us
        last_us = now_us
        assert record["session"] == name
        key = (name, record["event"])
        if kind == "forecasts":
            Forecast.from_record(record)
            assert key not in open_events
            assert {e: p for e, p in record["forecasts"].items() if p not in levels[name][e]} == {}
            assert record["forecasts"].keys() == levels[name].keys()
            open_events[key] = now_us
        else:
            State.from_record(record)
            assert 0 < now_us - open_events[key] <= 240 * HOUR_US
            known += 1
    assert known > 1000


def test_a_state_is_never_known_at_the_moment_of_its_forecast() -> None:
    feed = stream(400, sessions=1, delay_us=1)[1:]
    forecasts = {r["event"]: parse_time(r["time"]) for kind, _, r in feed if kind == "forecasts"}
    delays = [parse_time(r["time"]) - forecasts[r["event"]] for kind, _, r in feed if kind == "states"]
    assert len(delays) > 100
    assert set(delays) == {1}


def test_specs_are_the_ones_of_the_demo() -> None:
    _, name, spec = stream(1, sessions=1, drift=0.0)[0]
    assert spec == {
        "session": name,
        "experts": {"ecmwf": {"levels": [1 / 3, 2 / 3]}, "gfs": {"levels": [1 / 6, 3 / 4]}},
        "actions": {"stay": [1.0, 0.0], "prepare": [0.0, 3.0]},
        "feedback": "state",
        "policy": "robust",
        "schedule": {"growth": 0.05},
    }


@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_every_expert_is_calibrated_at_every_level(drift: float) -> None:
    known = paired(stream(2 * EVENTS + 3, sessions=3, drift=drift))
    assert len(known) > EVENTS * 0.95
    seen: Counter[tuple[str, float]] = Counter()
    ones: Counter[tuple[str, float]] = Counter()
    for _, forecasts, state in known:
        for report in forecasts.items():
            seen[report] += 1
            ones[report] += state
    assert len({expert for expert, _ in seen}) == 4
    for (expert, level), n in seen.items():
        assert abs(ones[expert, level] - n * level) <= SIGMAS * sqrt(n * level * (1 - level)) + 1, (expert, level)


def test_the_example_has_its_distribution_of_profiles() -> None:
    known = paired(stream(2 * EVENTS, sessions=1, drift=0.0))
    profiles = Counter(tuple(forecasts.values()) for _, forecasts, _ in known)
    expected = {
        (1 / 3, 1 / 6): Fraction(11, 42),
        (1 / 3, 3 / 4): Fraction(5, 21),
        (2 / 3, 1 / 6): Fraction(1, 6),
        (2 / 3, 3 / 4): Fraction(1, 3),
    }
    assert profiles.keys() == expected.keys()
    n = len(known)
    for profile, p in expected.items():
        assert abs(profiles[profile] - n * p) <= SIGMAS * sqrt(n * p * (1 - p)), profile


def test_the_prior_wanders() -> None:
    feed = stream(EVENTS, sessions=1, drift=0.05)
    reports = {r["forecasts"]["ecmwf"] for kind, _, r in feed if kind == "forecasts"}
    assert len(reports) > len(PRIORS)
    assert sorted(reports) == feed[0][2]["experts"]["ecmwf"]["levels"]


@pytest.mark.parametrize(
    "options", [{"sessions": 0}, {"every_us": 2}, {"delay_us": 0}, {"drift": 1.5}, {"prior": Fraction(1)}]
)
def test_arguments_that_make_no_feed_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected sessions"):
        world(**({"seed": 1, "sessions": 3, "start_us": 0} | options))
