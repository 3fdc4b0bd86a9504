"""A session outlives its process: saved and loaded at any event it goes on to the same bytes, field by field."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

import stream_agg as sa
from stream_agg.events import Forecast, State
from stream_agg.session.engine import Output

At = Callable[[float], str]
Make = Callable[..., sa.Session]
Event = Forecast | State
Put = Callable[[sa.Session, Event], list[Output]]
Feed = Callable[..., tuple[sa.SessionSpec, list[Event]]]
Tables = dict[str, dict[str, bytes]]

SEEDS = range(8)


def steps(session: sa.Session, events: list[Event], put: Put) -> Iterator[list[Output]]:
    """Every event, and in the middle a new spec."""
    for i, event in enumerate(events):
        if i == len(events) // 2:
            session.change(replace(session.spec, gamma=1.5, epsilon=0.03))
        yield put(session, event)


def store(tables: Tables, changes: dict[str, dict[str, bytes | None]]) -> None:
    """What a store does with changes."""
    for name, fields in changes.items():
        for key, value in fields.items():
            if value is None:
                tables[name].pop(key, None)
            else:
                tables[name][key] = value


def empty() -> Tables:
    return {"state": {}, "profiles": {}, "events": {}, "parked": {}}


class TestRoundTrip:
    @pytest.mark.parametrize("every", [1, 7])
    @pytest.mark.parametrize("seed", SEEDS)
    def test_loading_again_and_again_changes_no_byte(self, feed: Feed, put: Put, seed: int, every: int) -> None:
        spec, events = feed(seed, 70, messy=True)
        through, again = sa.Session(spec), sa.Session(spec)
        half = len(events) // 2
        for i, event in enumerate(events):
            if i == half:
                changed = replace(spec, gamma=1.5, epsilon=0.03)
                assert through.change(changed) is again.change(changed) is True
            if i % every == 0:
                again = sa.Session.from_bytes(again.to_bytes())
            assert orjson.dumps(put(again, event)) == orjson.dumps(put(through, event))
            assert again.to_bytes() == through.to_bytes()
        assert orjson.dumps(again.report()) == orjson.dumps(through.report())
        assert sa.Session.from_bytes(through.to_bytes()).rule == replace(through.rule, spec=through.spec)
        assert len(through.events) > 5
        assert through.counters.counts["conflict"] > 0

    def test_a_new_session_round_trips(self, make: Make, at: At) -> None:
        for gamma in ("inf", "auto", 2.5):
            session = make(gamma=gamma)
            again = sa.Session.from_bytes(session.to_bytes())
            assert again.to_bytes() == session.to_bytes()
            assert orjson.dumps(again.decide("e", {}, at(0))) == orjson.dumps(session.decide("e", {}, at(0)))

    def test_payoffs_fed_back_round_trip(self, make: Make, at: At) -> None:
        session = make(feedback="payoff")
        session.decide("e", {"ecmwf": 0.3}, at(0))
        session.state(State("paris-rain", "e", 0, None, 0.1))
        session.state(State("paris-rain", "early", 0, None, 0.2))
        again = sa.Session.from_bytes(session.to_bytes())
        assert again.to_bytes() == session.to_bytes()
        assert again.state(State("paris-rain", "e", 0, None, 0.1))[0] == "duplicate"
        assert again.state(State("paris-rain", "e", 0, None, 0.2))[0] == "conflict"

    @pytest.mark.parametrize(
        "name", ["Zürich ☂", 'quote " and \\', "a\nb", "0.3 -", "__proto__", "\x00", "x" * 512, "\U0001f327"]
    )
    def test_any_name_will_do(self, make: Make, at: At, name: str) -> None:
        session = make(session=name, actions={name[:128]: [1, 0], "other": [0, 1]}, experts={name[:128]: {"levels": 2}})
        session.decide(name, {name[:128]: 1.0}, at(0))
        session.decide("next", {name[:128]: 0.0}, at(0))
        session.learn(name + "!" if len(name) < 512 else "y", 1, at(0))
        again = sa.Session.from_bytes(session.to_bytes())
        assert again.to_bytes() == session.to_bytes()
        assert again.events.keys() == {name, "next"}


class TestChanges:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_they_add_up_to_the_whole(self, feed: Feed, put: Put, seed: int) -> None:
        spec, events = feed(seed, 70, messy=True)
        session, tables = sa.Session(spec), empty()
        deleted = 0
        for _ in steps(session, events, put):
            changes = session.changes()
            deleted += sum(v is None for fields in changes.values() for v in fields.values())
            store(tables, changes)
            assert tables == session.tables()
            assert session.changes() == {}
        assert deleted > 20
        assert sa.Session.from_tables(tables).to_bytes() == session.to_bytes()
        assert sa.Session.from_tables(tables).changes() == {}

    def test_they_can_be_taken_for_many_events_at_once(self, feed: Feed, put: Put) -> None:
        spec, events = feed(20, 70, messy=True)
        session, tables = sa.Session(spec), empty()
        for i, _ in enumerate(steps(session, events, put)):
            if i % 9 == 0:
                store(tables, session.changes())
                assert tables == session.tables()

    def test_an_event_touches_no_more_than_it_must(self, make: Make, at: At) -> None:
        session = make(schedule={"every": 1000})
        session.decide("a", {"ecmwf": 0.3}, at(0))
        assert session.changes()["state"].keys() == {"spec", "counters", "rule", "certificate", "robust", "drift"}

        def touched() -> dict[str, set[str]]:
            return {name: set(fields) for name, fields in session.changes().items()}

        session.decide("b", {"ecmwf": 0.3, "gfs": 1.0}, at(0))  # the first solve
        assert touched()["state"] == {"counters", "certificate", "rule", "robust"}
        session.decide("c", {"ecmwf": 0.3, "gfs": 0.5}, at(0))
        assert touched() == {"state": {"counters", "certificate"}, "profiles": {"0.3 0.5"}, "events": {"c"}}
        session.learn("b", 1, at(0))
        assert touched() == {"state": {"counters"}, "profiles": {"0.3 1.0"}, "events": {"b"}}
        session.learn("b", 1, at(0))
        assert touched() == {"state": {"counters"}}
        session.learn("d", 1, at(0))
        assert touched() == {"state": {"counters"}, "parked": {"d"}}
        session.report()
        assert touched() == {}


def test_a_person_can_read_the_fields(make: Make, at: At) -> None:
    session = make()
    session.decide("a", {"ecmwf": 0.3}, at(0))
    session.decide("b", {"ecmwf": 0.3}, at(1))
    session.learn("a", 1, at(2))
    session.learn("z", 0, at(2))
    plain = {name: {k: orjson.loads(v) for k, v in fields.items()} for name, fields in session.tables().items()}
    assert plain == orjson.loads(session.to_bytes())
    assert sa.SessionSpec.from_dict(plain["state"]["spec"]) == session.spec
    assert plain["state"]["counters"]["round"] == 2
    assert plain["state"]["rule"]["prices"].keys() == {"ecmwf", "gfs"}
    assert plain["profiles"].keys() == {"0.3 -"}
    seen, _, _, states0, states1 = plain["profiles"]["0.3 -"]
    assert (seen, states0, states1) == (2, 0, 1)
    assert {event: (d["round"], d["state"]) for event, d in plain["events"].items()} == {"a": (1, 1), "b": (2, None)}
    assert plain["parked"]["z"]["state"] == 0


class TestBroken:
    @pytest.fixture
    def packed(self, make: Make, at: At) -> bytes:
        session = make()
        for i in range(4):
            session.decide(f"e{i}", {"ecmwf": 0.3, "gfs": i / 4}, at(i))
        session.learn("e1", 1, at(3))
        session.learn("z", 0, at(2))
        return session.to_bytes()

    def test_a_part_is_not_a_session(self, packed: bytes) -> None:
        for size in range(0, len(packed), 7):
            with pytest.raises(ValueError, match=r"JSON|unexpected|column"):
                sa.Session.from_bytes(packed[:size])

    @pytest.mark.parametrize("other", [b"[]", b"1", b"null", b'"x"', b'{"state": 1}', b"{}", b'{"state": {}}', b"\xff"])
    def test_other_bytes_are_no_session(self, other: bytes) -> None:
        with pytest.raises((ValueError, KeyError)):
            sa.Session.from_bytes(other)

    @pytest.mark.parametrize("field", ["spec", "counters", "rule", "certificate", "robust", "drift"])
    def test_a_field_that_is_missing_is_named(self, packed: bytes, field: str) -> None:
        plain = orjson.loads(packed)
        del plain["state"][field]
        with pytest.raises(KeyError, match=field):
            sa.Session.from_bytes(orjson.dumps(plain))

    @pytest.mark.parametrize("value", [None, 1, "x", [1] * 9, {"a": 1}])
    def test_a_field_of_another_shape_is_refused(self, packed: bytes, value: Any) -> None:
        whole = orjson.loads(packed)
        places = [("state", key) for key in whole["state"]] + [("events", "e0"), ("parked", "z")]
        for table, key in places:
            plain = copy.deepcopy(whole)
            plain[table][key] = value
            if (key, value) == ("certificate", None):  # what a session stores that solves at every event
                assert sa.Session.from_bytes(orjson.dumps(plain)).certificate is None
                continue
            with pytest.raises((ValueError, KeyError)):
                sa.Session.from_bytes(orjson.dumps(plain))

    def test_a_profile_of_another_spec_is_refused(self, packed: bytes) -> None:
        plain = orjson.loads(packed)
        plain["profiles"]["0.7 -"] = [1, 0.0, 0.0, 0, 0]
        with pytest.raises(KeyError, match=r"0\.7"):
            sa.Session.from_bytes(orjson.dumps(plain))
