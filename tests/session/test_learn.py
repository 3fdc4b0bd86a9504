"""A state is learned once, whenever it comes, by the decision of then; what cannot be learned is told and counted."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stream_agg as sa
from stream_agg.events import Dropped, Forecast, State
from stream_agg.session.engine import Output

At = Callable[[float], str]
Make = Callable[..., sa.Session]
Drop = tuple[str, str, Any]  # event, reason, origin
REPORTS = (0.0, 0.3, 0.5, 1.0, None)


def outcome(
    session: sa.Session, event: str, time: str, origin: Any = None, **fed_back: float
) -> tuple[str, list[Drop]]:
    """What was made of a state event, and what was dropped."""
    record = {"session": session.spec.session, "event": event, "time": time, **fed_back}
    result, outputs = session.state(State.from_record(record), origin)
    return result, dropped(outputs)


def dropped(outputs: list[Output]) -> list[Drop]:
    return [(o.event, o.reason, o.origin) for o in outputs if isinstance(o, Dropped)]


def close(a: Any, b: Any) -> None:
    """Equal, numbers to 1e-9."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            close(a[key], b[key])
    elif isinstance(a, float):
        assert a == pytest.approx(b, abs=1e-9)
    else:
        assert a == b


def test_what_becomes_of_a_state(make: Make, at: At) -> None:
    session = make()
    session.decide("a", {"ecmwf": 0.3}, at(0))
    session.decide("b", {"ecmwf": 0.3}, at(0))
    assert session.report().open == 2
    assert session.learn("a", 1, at(48)) == "applied"  # at the deadline is in time
    assert session.learn("a", 1, at(49)) == "duplicate"
    assert outcome(session, "a", at(1), "row 5", state=0) == ("conflict", [("a", "conflict", "row 5")])
    assert outcome(session, "b", at(48.001), "row 6", state=0) == ("late", [("b", "late", "row 6")])
    report = session.report()
    assert (report.open, report.realized.states) == (1, 1)
    assert report.counts == {"duplicate": 1, "late": 1, "conflict": 1, "unknown": 0, "expired": 0, "unsolved": 0}
    assert session.calibration()["ecmwf"] == [(0.0, 0, 0), (0.3, 0, 1), (1.0, 0, 0)]
    assert session.learn("b", 1, at(3)) == "applied"  # late is judged by the two times, not by the arrival


def test_a_state_before_its_forecast_waits_and_is_applied(make: Make, at: At) -> None:
    session, plain = make(), make()
    for s in (session, plain):
        for i in range(8):
            s.decide(f"e{i}", {"ecmwf": 0.3, "gfs": 0.5}, at(i))
    assert session.learn("next", 1, at(9)) == "parked"
    assert session.learn("next", 1, at(9)) == "duplicate"
    assert outcome(session, "next", at(9), 7, state=0) == ("conflict", [("next", "conflict", 7)])
    assert session.report().realized.states == 0
    action = session.decide("next", {"ecmwf": 0.3, "gfs": 1.0}, at(8))
    # Its own state was at hand and made no difference but to the count of state events.
    assert replace(action, states_seen=0) == plain.decide("next", {"ecmwf": 0.3, "gfs": 1.0}, at(8))
    assert action.states_seen == 3
    report = session.report()
    assert (report.realized.states, report.open, session.parked) == (1, 8, {})
    assert session.learn("next", 1, at(9)) == "duplicate"
    assert session.report().counts["duplicate"] == 2


def test_a_parked_state_can_be_late(make: Make, at: At) -> None:
    session = make()
    outcome(session, "e", at(60), "row 1", state=1)
    record = {"session": "paris-rain", "event": "e", "time": at(10), "forecasts": {}}
    action, *more = session.forecast(Forecast.from_record(record))
    assert isinstance(action, sa.Action)
    assert dropped(more) == [("e", "late", "row 1")]
    assert (session.report().open, session.report().counts["late"]) == (1, 1)


def test_a_parked_state_is_dropped_after_its_deadline(make: Make, at: At) -> None:
    session = make()
    assert outcome(session, "ghost", at(0), {"row": 4}, state=1)[0] == "parked"
    outcome(session, "other", at(500), state=1)  # the clock of states does not matter
    session.decide("e", {}, at(48))
    assert set(session.parked) == {"ghost", "other"}
    record = {"session": "paris-rain", "event": "f", "time": at(48.001), "forecasts": {}}
    outputs = session.forecast(Forecast.from_record(record))
    assert dropped(outputs) == [("ghost", "unknown", {"row": 4})]
    assert session.report().counts["unknown"] == 1
    assert set(session.parked) == {"other"}
    session.decide("ghost", {}, at(48.002))
    assert session.report().realized.states == 0


@pytest.mark.parametrize(("feedback", "wrong"), [("none", "payoff"), ("state", "payoff"), ("payoff", "state")])
def test_the_other_feedback_is_refused(make: Make, at: At, feedback: str, wrong: str) -> None:
    session = make(feedback=feedback)
    session.decide("e", {}, at(0))
    before = session.to_bytes()
    for event in ("e", "unseen"):
        with pytest.raises(sa.EventError, match="feedback is") as refused:
            outcome(session, event, at(1), **{wrong: 1})
        assert refused.value.reason == "bad_event"
    assert session.to_bytes() == before


def test_payoffs_add_up(make: Make, at: At) -> None:
    session, rng, total = make(feedback="payoff", policy="robust"), random.Random(9), 0.0
    for i in range(20):
        payoff = rng.randrange(-8, 8) / 4
        if i % 3:
            session.decide(f"e{i}", {"ecmwf": 0.3}, at(i))
            assert outcome(session, f"e{i}", at(i), payoff=payoff)[0] == "applied"
        else:
            assert outcome(session, f"e{i}", at(i), payoff=payoff)[0] == "parked"
            session.decide(f"e{i}", {"ecmwf": 0.3}, at(i))
        total += payoff
        assert outcome(session, f"e{i}", at(i), payoff=payoff) == ("duplicate", [])
        conflict = [(f"e{i}", "conflict", None)]
        assert outcome(session, f"e{i}", at(i), payoff=payoff + 1) == ("conflict", conflict)
    report = session.report()
    assert (report.realized.states, report.realized.payoff, report.open) == (20, total, 0)
    assert report.realized.contextual is report.realized.optimal_in_hindsight is None
    assert report.calibration == {}


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(range(12)), places=st.lists(st.integers(0, 12), min_size=12, max_size=12))
def test_the_order_of_states_does_not_matter(make: Make, at: At, order: list[int], places: list[int]) -> None:
    rng = random.Random(10)
    profiles = [{"ecmwf": rng.choice(REPORTS), "gfs": rng.choice(REPORTS)} for _ in range(12)]
    states = [rng.randrange(2) for _ in range(12)]

    def run(order: list[int], places: list[int]) -> dict[str, Any]:
        session = make(schedule={"every": 4}, actions={"a": [1.1, 0.0], "b": [0.0, 3.3], "c": [0.7, 0.7]})
        for i in range(13):
            for event, place in zip(order, places, strict=True):
                if place == i:
                    session.learn(f"e{event}", states[event], at(20 + event))
            if i < 12:
                session.decide(f"e{i}", profiles[i], at(i))
        return session.report().to_record()

    close(run(order, places), run(list(range(12)), [12] * 12))


@pytest.mark.parametrize("payoff", [math.inf, math.nan, 1e300, 10**400, True, "1"])
def test_a_payoff_that_would_spoil_the_sum_is_refused(make: Make, at: At, payoff: Any) -> None:
    session = make(feedback="payoff")
    session.decide("e", {}, at(0))
    before = session.to_bytes()
    with pytest.raises(sa.EventError, match=r"payoff: expected|either a state"):
        outcome(session, "e", at(1), payoff=payoff)
    assert session.to_bytes() == before
