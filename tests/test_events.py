"""Events at the door: what is let in, what is refused and why; times and durations as text."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_agg.errors import EventError
from stream_agg.events import (
    Action,
    ExpertCalibration,
    Forecast,
    RealizedPart,
    Regret,
    RobustPart,
    RuleStamp,
    State,
    check_id,
    format_time,
    parse_duration,
    parse_time,
)

check = settings(deadline=None, derandomize=True, max_examples=200)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
HUGE = 10**400  # an integer that no float can hold
FORECAST = {"session": "s", "event": "e", "time": "2026-11-21T06:00:00Z", "forecasts": {"a": 0.3, "b": None}}
STATE = {"session": "s", "event": "e", "time": "2026-11-21T06:00:00Z", "state": 1}


@check
@given(st.integers(FIRST_US, LAST_US))
def test_a_time_survives_its_text(time_us: int) -> None:
    assert parse_time(format_time(time_us)) == time_us


@check
@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.integers(-1439, 1439))
def test_any_offset_means_the_same_moment(moment: datetime, minutes: int) -> None:
    there = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert parse_time(there.isoformat()) == (there - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("2026-11-21t06:00:00z", "2026-11-21T06:00:00Z"),
        ("2026-11-21 06:00:00Z", "2026-11-21T06:00:00Z"),
        ("2026-11-21T06:00:00-00:00", "2026-11-21T06:00:00Z"),
        ("2026-11-21T06:00:00.5+01:30", "2026-11-21T04:30:00.500000Z"),
        ("2026-11-21T06:00:00.123456789Z", "2026-11-21T06:00:00.123456Z"),
        ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59Z"),
    ],
)
def test_texts_of_time(text: str, plain: str) -> None:
    assert format_time(parse_time(text)) == plain


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-21",
        "2026-11-21T06:00Z",
        "2026-11-21T06:00:00",
        "2026-11-21T06:00:00 Z",
        "2026-11-21T06:00:00Z\n",
        " 2026-11-21T06:00:00Z",
        "2026-11-21T06:00:00,5Z",
        "2026-11-21T06:00:00.Z",
        "2026-11-21T06:00:00+0100",
        "2026-11-21T06:00:00+01",
        "2026-11-21T06:00:00+01:60",
        "2026-11-21T06:00:00+24:00",
        "20261121T060000Z",
        "2026-W47-6T06:00:00Z",
        "2026-13-01T06:00:00Z",
        "2026-02-29T06:00:00Z",
        "2026-11-21T25:00:00Z",
        "2026-11-21T06:60:00Z",
        "2026-11-21T06:00:61Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+10:00",
        "9999-12-31T23:59:59-10:00",
        "٢٠٢٦-11-21T06:00:00Z",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_time(text)
    with pytest.raises(EventError, match="time: ") as caught:
        State.from_record({**STATE, "time": text})
    assert caught.value.reason == "bad_event"


whole = st.integers(0, 10_000)


@check
@given(whole, whole, whole, whole, st.integers(0, 10**10))
def test_durations_add_up(weeks: int, days: int, hours: int, minutes: int, microseconds: int) -> None:
    seconds = f"{microseconds // 10**6}.{microseconds % 10**6:06}"
    expected = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, microseconds=microseconds)
    assert parse_duration(f"P{weeks}W{days}DT{hours}H{minutes}M{seconds}S") == expected // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("P7D", 604_800), ("PT12H", 43_200), ("P1W", 604_800), ("PT0.5S", 0.5), ("P1DT1M", 86_460), ("P0D", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds * 10**6


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "7D", "P7", "P1Y", "P1M", "-P1D", "P-1D", "P1.5D", "p1d", "P1D ", "P1D\n", "PT1H1D",
     "PT1.1234567S", "P1H", "PT1D", "P1D1D", "P٣D", "P9999999999D", "P" + "9" * 400 + "W"],
)  # fmt: skip
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_a_forecast_is_taken_as_it_is() -> None:
    forecast = Forecast.from_record({**FORECAST, "extra": "ignored"})
    assert forecast == Forecast("s", "e", parse_time("2026-11-21T06:00:00Z"), {"a": 0.3, "b": None})
    edges = {"a": 0, "b": 1, "c": 0.0, "d": 1.0}
    assert Forecast.from_record({**FORECAST, "forecasts": edges}).forecasts == edges
    assert Forecast.from_record({**FORECAST, "forecasts": {}}).forecasts == {}


@pytest.mark.parametrize("p", [-0.01, 1.01, 2, -1, math.nan, math.inf, -math.inf, True, False, "0.5", [0.5], {}, HUGE])
def test_a_report_that_is_no_probability_is_refused(p: Any) -> None:
    with pytest.raises(EventError, match=r"forecasts\['b'\]: expected a probability in \[0, 1\] or null"):
        Forecast.from_record({**FORECAST, "forecasts": {"a": 0.5, "b": p}})


@pytest.mark.parametrize("forecasts", [None, [], "a", 5, [["a", 0.5]]])
def test_forecasts_that_are_no_object_are_refused(forecasts: Any) -> None:
    with pytest.raises(EventError, match="forecasts: expected an object of probabilities"):
        Forecast.from_record({**FORECAST, "forecasts": forecasts})


@pytest.mark.parametrize("record", [None, [], "record", 5, True, [FORECAST]])
def test_a_record_that_is_no_object_is_refused(record: Any) -> None:
    for event in (Forecast, State):
        with pytest.raises(EventError, match="expected a JSON object"):
            event.from_record(record)


@pytest.mark.parametrize("name", ["session", "event"])
@pytest.mark.parametrize("value", [None, "", "x" * 513, 5, True, ["e"], {"e": 1}, "\ud800", "ok\udfff"])
def test_an_id_that_is_none_is_refused(name: str, value: Any) -> None:
    for event, record in ((Forecast, FORECAST), (State, STATE)):
        with pytest.raises(EventError, match=f"{name}: expected text of 1 to 512 characters") as caught:
            event.from_record({**record, name: value})
        assert caught.value.reason == "bad_event"
        assert len(caught.value.detail) < 150
        assert caught.value.detail.encode()  # it goes into a header of the dead letter


@pytest.mark.parametrize("name", ["session", "event", "time"])
def test_an_id_or_time_that_is_missing_is_refused(name: str) -> None:
    for event, record in ((Forecast, FORECAST), (State, STATE)):
        with pytest.raises(EventError, match=f"{name}: expected"):
            event.from_record({k: v for k, v in record.items() if k != name})


@pytest.mark.parametrize("value", ["x", "x" * 512, "é𝄞 \n\x00", " "])
def test_any_text_that_utf8_holds_is_an_id(value: str) -> None:
    assert check_id(value, "event") == value


@pytest.mark.parametrize("time", [None, 5, 1.5, True, ["2026-11-21T06:00:00Z"]])
def test_a_time_that_is_no_text_is_refused(time: Any) -> None:
    for event, record in ((Forecast, FORECAST), (State, STATE)):
        with pytest.raises(EventError, match="time: expected an RFC 3339 text"):
            event.from_record({**record, "time": time})


@pytest.mark.parametrize(("told", "state", "payoff"), [(0, 0, None), (1, 1, None), (1.0, 1, None), (0.0, 0, None)])
def test_a_state_is_0_or_1(told: Any, state: int, payoff: None) -> None:
    found = State.from_record({**STATE, "state": told, "payoff": None})
    assert (found.state, found.payoff) == (state, payoff)
    assert type(found.state) is int


@pytest.mark.parametrize("payoff", [0, 2, -1.5, 1e9, -(10**9)])
def test_a_payoff_instead_of_a_state(payoff: float) -> None:
    found = State.from_record({**STATE, "state": None, "payoff": payoff})
    assert (found.state, found.payoff) == (None, payoff)
    assert type(found.payoff) is float


@pytest.mark.parametrize("state", [2, -1, 0.5, True, False, "1", [1], math.nan, math.inf, HUGE])
def test_a_state_that_is_none_is_refused(state: Any) -> None:
    with pytest.raises(EventError, match="state: expected 0 or 1"):
        State.from_record({**STATE, "state": state})


@pytest.mark.parametrize("payoff", [True, "1.5", [1], math.nan, math.inf, -math.inf, 1.1e9, HUGE])
def test_a_payoff_that_is_no_number_is_refused(payoff: Any) -> None:
    with pytest.raises(EventError, match="payoff: expected a number"):
        State.from_record({**STATE, "state": None, "payoff": payoff})


@pytest.mark.parametrize("told", [{}, {"state": None}, {"state": 1, "payoff": 2.0}, {"state": 0, "payoff": 0}])
def test_either_a_state_or_a_payoff(told: dict[str, Any]) -> None:
    with pytest.raises(EventError, match="either a state"):
        State.from_record({k: v for k, v in STATE.items() if k != "state"} | told)


def test_records_have_the_fields_of_the_contract() -> None:
    stamp = RuleStamp(9, 400, 0.0031)
    action = Action("s", "e", "t", 412, {"a": 0.3}, "prepare", {"stay": 0.25, "prepare": 0.75}, "robust", stamp, 118, 1)
    record = action.to_record()
    promised = {"session", "event", "time", "round", "profile", "action", "strategy", "policy", "rule", "states_seen"}
    assert promised <= set(record)
    assert record["rule"] == {"version": 9, "round": 400, "gap": 0.0031}
    assert orjson.dumps(record) == orjson.dumps(action)  # no field is missing, none is elsewhere
    robust = RobustPart(412, 1.642, 1.61, 13.2, 95.0, 0.0, 0.0, True, None, 0.0)
    realized = RealizedPart(118, 190.0, 189.0, 182.0, 201.0, 11.0, None)
    calibration = ExpertCalibration(0.03, 0.7, 118, (0.6, 0.85), {"0.7": (31, 87)})
    regret = Regret("s", "t", 412, "solve", robust, realized, {"a": calibration}, 294, "t", {"duplicate": 0}, None)
    record = regret.to_record()
    promised = {"session", "time", "round", "reason", "robust", "realized", "calibration", "open", "counts", "drift"}
    assert promised <= set(record)
    assert {"value", "worst_case", "regret", "bound", "exact", "epsilon_min"} <= set(record["robust"])
    assert {"states", "payoff", "optimal_in_hindsight", "contextual", "contextual_regret", "bound"} <= set(
        record["realized"]
    )
    calibration = record["calibration"]["a"]
    assert calibration.pop("levels") == {"0.7": (31, 87)}
    assert calibration == {"error": 0.03, "worst_level": 0.7, "n": 118, "interval": (0.6, 0.85)}
    assert (record["open"], record["oldest_open"]) == (294, "t")
