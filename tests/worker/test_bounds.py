"""What a record may ask for: each limit by the record that just passes it, and what records cannot cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from stream_agg.errors import InputError
from stream_agg.events import Forecast
from stream_agg.session.engine import Session
from stream_agg.watch.observer import Observer
from stream_agg.worker.batch import Batch, read
from stream_agg.worker.bounds import Bounds
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Encoder, Place

SETTINGS = Settings()
SPEC: dict[str, Any] = {
    "session": "rain",
    "experts": {"ecmwf": {"levels": 3}, "gfs": {"levels": 2}},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
}


def event(**changes: Any) -> bytes:
    record = {"session": "rain", "event": "e", "time": "2026-01-01T00:00:00Z", "forecasts": {"gfs": 0.5}}
    return orjson.dumps({**record, **changes})


def deep(field: str, depth: int) -> bytes:
    """An event with so many lists within each other as a field."""
    text = b"[" * depth + b"]" * depth
    return event(**{field: "DEEP"}).replace(b'"DEEP"', text)


def reason(bounds: Bounds, value: bytes) -> tuple[str, str]:
    found = read(Place("forecasts", 0, 0, 0, b"rain", value), Forecast.from_record, bounds).event
    assert isinstance(found, InputError)
    return found.reason, found.detail


@pytest.mark.parametrize(
    ("setting", "limit", "change", "named"),
    [
        ("max_experts", 1, {}, "MAX_EXPERTS"),
        ("max_levels", 2, {}, "MAX_LEVELS"),
        ("max_actions", 1, {}, "MAX_ACTIONS"),
        ("max_window", 99, {"window": 100}, "MAX_WINDOW"),
        ("max_id", 3, {}, "MAX_ID"),
        ("id_characters", "ascii", {"session": "naïve"}, "ID_CHARACTERS"),
        ("max_spec_bytes", 50, {}, "MAX_SPEC_BYTES"),
        ("max_nesting", 2, {}, "MAX_NESTING"),
    ],
)
def test_a_spec_past_a_limit_is_refused_by_its_name(setting: str, limit: Any, change: Any, named: str) -> None:
    value = orjson.dumps({**SPEC, **change})
    Bounds(SETTINGS).spec(value)
    with pytest.raises(InputError, match=f"STREAM_AGG_{named}") as caught:
        Bounds(replace(SETTINGS, **{setting: limit})).spec(value)
    assert caught.value.reason == "limit"


def test_every_limit_of_a_spec_is_named_at_once() -> None:
    tight = replace(SETTINGS, max_experts=1, max_levels=2, max_actions=1)
    with pytest.raises(InputError, match=r"MAX_EXPERTS.*MAX_LEVELS.*MAX_ACTIONS"):
        Bounds(tight).spec(orjson.dumps(SPEC))


@pytest.mark.parametrize(
    ("setting", "limit", "change", "named"),
    [
        ("max_event_bytes", 50, {}, "MAX_EVENT_BYTES"),
        ("max_nesting", 1, {}, "MAX_NESTING"),
        ("max_id", 3, {"event": "long"}, "MAX_ID"),
        ("id_characters", "ascii", {"event": "a b"}, "ID_CHARACTERS"),
    ],
)
def test_an_event_past_a_limit_is_refused_by_its_name(setting: str, limit: Any, change: Any, named: str) -> None:
    value = event(**change)
    assert not isinstance(read(Place("", 0, 0, 0, b"", value), Forecast.from_record).event, InputError)
    word, detail = reason(Bounds(replace(SETTINGS, **{setting: limit})), value)
    assert (word, f"STREAM_AGG_{named}" in detail) == ("limit", True)


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\nb", "\x00", "a\u2028b"])
def test_ids_carry_no_control_characters_into_logs_and_terminals(name: str) -> None:
    word, detail = reason(Bounds(SETTINGS), event(event=name))
    assert (word, detail.isprintable()) == ("limit", True)
    assert not isinstance(
        read(
            Place("", 0, 0, 0, b"", event(event=name)),
            Forecast.from_record,
            Bounds(replace(SETTINGS, id_characters="any")),
        ).event,
        InputError,
    )


@pytest.mark.parametrize("depth", [9, 500, 990, 1000, 1010])
@pytest.mark.parametrize("field", ["session", "event", "time", "forecasts"])
def test_values_within_values_are_refused_and_break_nothing(field: str, depth: int) -> None:
    assert reason(Bounds(SETTINGS), deep(field, depth))[0] == "limit"


@pytest.mark.parametrize("depth", [9, 990, 1010])
def test_even_without_the_limit_a_message_about_a_deep_value_is_short(depth: int) -> None:
    word, detail = reason(Bounds(replace(SETTINGS, max_nesting=5000)), deep("session", depth))
    assert word == "bad_event"
    assert len(detail) < 200


def test_a_flood_of_sessions_ends_at_the_limit_and_closing_makes_room() -> None:
    settings = replace(SETTINGS, max_sessions=10)
    sessions: dict[str, Session] = {}
    batch = Batch(sessions, Encoder(settings), 1, Observer().facts())

    def place(name: str, value: bytes) -> Place:
        return Place("sessions", 0, 0, 0, name.encode(), value)

    for k in range(50):
        batch.spec(place(f"s{k}", orjson.dumps({**SPEC, "session": f"s{k}"})))
    assert (len(sessions), batch.opened, sum(batch.refused)) == (10, 10, 40)
    batch.spec(place("s3", orjson.dumps({**SPEC, "session": "s3", "gamma": 2.0})))  # one that is there may change
    assert not batch.refused[-1]
    batch.spec(place("s3", b""))
    batch.spec(place("new", orjson.dumps({**SPEC, "session": "new"})))
    assert ("new" in sessions, batch.opened, batch.refused[-1]) == (True, 10, False)
    full = Batch({}, Encoder(settings), 1, Observer().facts(), opened=10)  # none of them at hand
    full.spec(place("one more", orjson.dumps({**SPEC, "session": "one more"})))
    assert "STREAM_AGG_MAX_SESSIONS" in full.fault
