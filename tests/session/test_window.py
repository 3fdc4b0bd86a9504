"""How long a session remembers: no shorter than promised, no longer than needed, and every loss is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import stream_agg as sa
from stream_agg.events import Action, Dropped, Forecast, State
from stream_agg.session.codec import Decision
from stream_agg.session.engine import Output
from stream_agg.session.window import remember

At = Callable[[float], str]
Make = Callable[..., sa.Session]
Event = Forecast | State
Put = Callable[[sa.Session, Event], list[Output]]
Feed = Callable[..., tuple[sa.SessionSpec, list[Event]]]


class TestDecisions:
    def test_they_go_when_both_clocks_are_two_deadlines_past(self, make: Make, at: At) -> None:
        session = make(state_deadline="PT1H")
        session.decide("old", {}, at(0))
        session.decide("far", {}, at(1000))  # forecasts run ahead, no state came yet
        assert set(session.events) == {"old", "far"}
        session.learn("far", 1, at(2))  # states are exactly two deadlines past
        assert set(session.events) == {"old", "far"}
        assert session.report().counts["expired"] == 0
        session.learn("far", 1, at(2.001))
        assert set(session.events) == {"far"}
        assert (session.report().counts["expired"], session.report().open) == (1, 0)

    def test_forecasts_must_get_that_far_too(self, make: Make, at: At) -> None:
        session = make(state_deadline="PT1H")
        session.decide("old", {}, at(0))
        session.learn("else", 1, at(1000))
        session.decide("next", {}, at(2))
        assert set(session.events) == {"old", "next"}
        assert session.learn("old", 1, at(0.5)) == "applied"
        session.decide("last", {}, at(2.001))
        assert set(session.events) == {"next", "last"}
        assert session.report().counts["expired"] == 0  # its state was known

    def test_no_more_are_kept_for_their_states_than_the_window(self, make: Make, at: At) -> None:
        session = make(window=3)
        for i in range(5):
            session.decide(f"e{i}", {}, at(0))
        assert session.learn("e2", 1, at(0)) == "applied"
        assert session.learn("e1", 1, at(0)) == "parked"
        assert (session.report().counts["expired"], session.report().open) == (2, 2)

    def test_a_full_window_takes_no_longer_when_it_is_large(self, make: Make) -> None:
        def seconds(window: int) -> float:
            session, decision = make(window=window), Decision(1, 0, (0, 0), ((0, 1.0),), 0, 0)
            for i in range(window):
                remember(session, str(i), decision)
            start = time.thread_time()
            for i in range(window, window + 25_000):
                remember(session, str(i), decision)
            return time.thread_time() - start

        assert min(seconds(60_000) for _ in range(2)) < 4 * max(seconds(60) for _ in range(2))

    def test_a_repeat_inside_the_window_is_a_duplicate_and_after_it_a_new_event(self, make: Make, at: At) -> None:
        session = make(window=3)
        for i in range(3):
            session.decide(f"e{i}", {}, at(0))
        for i in range(3):
            with pytest.raises(sa.EventError) as refused:
                session.decide(f"e{i}", {"ecmwf": 0.3}, at(1))
            assert refused.value.reason == "duplicate"
        assert session.report().counts["duplicate"] == 3
        for i in range(3, 7):
            session.decide(f"e{i}", {}, at(0))
        assert session.decide("e0", {}, at(0)).round == 8

    def test_many_go_at_once_and_are_told_to_the_store(self, make: Make, at: At) -> None:
        session = make(state_deadline="PT1H")
        for i in range(20):
            session.decide(f"e{i}", {}, at(0))
        session.learn("e7", 1, at(0))
        session.learn("x", 1, at(100))
        session.changes()
        session.decide("new", {}, at(100))
        gone = {event for event, value in session.changes()["events"].items() if value is None}
        assert gone == {f"e{i}" for i in range(20)}
        assert (session.report().counts["expired"], session.report().open) == (19, 1)


class TestParked:
    def test_no_more_wait_than_the_window(self, make: Make, at: At) -> None:
        session, dropped = make(window=3), []
        for i in range(5):
            _, outputs = session.state(State("paris-rain", f"e{i}", 0, 1), i)
            dropped += [(o.event, o.reason, o.origin) for o in outputs if isinstance(o, Dropped)]
        assert dropped == [("e0", "unknown", 0), ("e1", "unknown", 1)]
        assert list(session.parked) == ["e2", "e3", "e4"]
        assert session.report().counts["unknown"] == 2

    def test_one_from_the_future_does_not_hold_up_the_others(self, make: Make, at: At) -> None:
        session = make()
        session.learn("future", 1, at(10_000))
        session.learn("ghost", 1, at(0))
        session.decide("e", {}, at(100))
        assert set(session.parked) == {"future"}


@pytest.mark.parametrize("seed", range(8))
def test_nothing_goes_early_and_every_loss_is_counted(feed: Feed, put: Put, seed: int) -> None:
    spec, events = feed(seed, 120, messy=True)
    spec = replace(spec, window=(5, 12, 1000)[seed % 3])
    session, deadline_us = sa.Session(spec), spec.state_deadline_us
    clocks: dict[Any, int] = {}
    expired = unknown = evicted = 0
    for event in events:
        before, waiting, repeat = dict(session.events), dict(session.parked), event.event in session.events
        outputs = put(session, event)
        if not (isinstance(event, Forecast) and repeat):  # a repeat does not even turn the clock
            clocks[type(event)] = max(event.time_us, clocks.get(type(event), event.time_us))
        both = min(clocks.values()) if len(clocks) == 2 else None
        kept = len(before) + any(isinstance(o, Action) for o in outputs)
        for name, decision in before.items():
            if name not in session.events:
                past = both is not None and decision.time_us < both - 2 * deadline_us
                assert past or kept > spec.window
                kept -= 1
                evicted += 1
                expired += decision.state is None
        gone = [o.event for o in outputs if isinstance(o, Dropped) and o.reason == "unknown"]
        for name in gone:  # a state that comes far too late waits for nothing
            time_us = waiting[name].time_us if name in waiting else event.time_us
            assert time_us + deadline_us < clocks[Forecast] or len(waiting) >= spec.window
        decided = {o.event for o in outputs if isinstance(o, Action)}
        assert waiting.keys() - session.parked.keys() - decided == (waiting.keys() & set(gone)) - decided
        unknown += len(gone)
        assert session.open == sum(d.state is None for d in session.events.values())
        assert len(session.events) <= spec.window
        assert len(session.parked) <= spec.window
    report = session.report()
    assert (report.counts["expired"], report.counts["unknown"]) == (expired, unknown)
    assert evicted > 50
