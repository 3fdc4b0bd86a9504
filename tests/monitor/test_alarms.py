"""Alarms say in words what the records tell, and nothing where nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from stream_agg.monitor.alarms import BEHIND, STUCK_S, Alarm, ago, alarms
from stream_agg.monitor.view import View

NOW_S = 1_800_000_000.0


def texts(view: View, now_s: float = NOW_S) -> list[str]:
    return [alarm.text for alarm in alarms(view, now_s)]


def only(view: View, now_s: float = NOW_S) -> Alarm:
    (alarm,) = alarms(view, now_s)
    return alarm


def test_a_healthy_deployment_is_silent(records: Any) -> None:
    records.rule()
    for k in range(1, 200):
        records.action(round_=k, at_s=NOW_S - 200 + k)
    records.regret(levels={"gfs": {"0.7": (101, 239)}})
    records.view.progress.measured(NOW_S - 1, 100, 90, 10, 1)
    records.view.progress.measured(NOW_S, 110, 100, 10, 1)
    assert texts(records.view) == []
    assert texts(View()) == []


def test_an_expert_that_is_off(records: Any) -> None:
    records.rule()
    records.regret(levels={"gfs": {"0.7": (143, 197)}, "icon": {"0.7": (30, 70)}})
    alarm = only(records.view)
    assert alarm.text == "expert gfs is off by 0.12 at level 0.7 over 340 outcomes"
    assert (alarm.session, alarm.severity) == ("rain", "alarm")


def test_its_key_stays_while_its_numbers_change(records: Any) -> None:
    records.regret(levels={"gfs": {"0.7": (143, 197)}})
    before = only(records.view)
    records.regret(round_=500, levels={"gfs": {"0.7": (203, 237)}})
    after = only(records.view)
    assert (before.key, before.text != after.text) == (after.key, True)


def test_a_gap_is_large_against_what_is_at_stake(records: Any) -> None:
    records.rule(value=1.6, upper_bound=1.7)
    stamp = {"version": 9, "round": 400}
    records.action(round_=412, rule={**stamp, "gap": 0.08})
    assert texts(records.view) == []
    records.action(round_=413, rule={**stamp, "gap": 0.3})
    assert "gap is large: it may be short of 0.3 a round, where 1.7 is at stake" in only(records.view).text
    records.action(round_=20, rule={**stamp, "gap": 0.3})
    assert texts(records.view) == []
    records.action(round_=414, rule={**stamp, "gap": None})
    assert texts(records.view) == []


def test_drift_unsolved_and_a_broken_bound(records: Any) -> None:
    records.rule(unsolved="the solver took too long")
    drift = {"round": 640, "expert": "gfs", "p_value": 5e-74, "distance": 0.75, "alarm": True, "first_alarm": 128}
    records.regret(drift=drift, robust={"regret": 96.0})
    unsolved, bound, feed = texts(records.view)
    assert unsolved == "no new rule since round 400: the solver took too long"
    assert bound == "robust regret 96 is above the theorem's bound 95"
    assert feed.startswith("the feed drifts: expert gfs reported otherwise in rounds 321 to 640 than before")
    records.regret(round_=700, drift={**drift, "alarm": False}, robust={"regret": 94.0})
    records.rule(unsolved=None)
    assert texts(records.view) == []


def test_a_closed_session_raises_none(records: Any) -> None:
    records.rule(unsolved="the solver took too long")
    records.regret(reason="close", levels={"gfs": {"0.7": (203, 137)}})
    assert texts(records.view) == []


def test_no_worker_is_told_at_once(records: Any) -> None:
    records.view.progress.measured(NOW_S, 100, 100, 0, 0)
    assert only(records.view).text == "no worker is running; no input waits"
    records.view.progress.measured(NOW_S, 112, 100, 12, 0)
    assert only(records.view).text == "no worker is running; 12 input records wait"


def test_a_worker_that_does_nothing_while_input_waits(records: Any) -> None:
    progress = records.view.progress
    progress.measured(NOW_S, 100, 100, 0, 1)
    progress.measured(NOW_S + 1, 101, 100, 1, 1)
    assert texts(records.view, NOW_S + STUCK_S - 1) == []
    assert only(records.view, NOW_S + STUCK_S).text == (
        "the worker is down or stuck: 1 input record waits, and none was done for 15 s"
    )
    progress.measured(NOW_S + 20, 102, 101, 1, 1)
    assert texts(records.view, NOW_S + 21) == []


@pytest.mark.parametrize(("lags", "told"), [((5000, 6000), True), ((9000, 6000), False), ((500, 900), False)])
def test_a_worker_that_does_not_keep_up(records: Any, lags: tuple[int, int], told: bool) -> None:
    first, last = lags
    for k in range(70):
        lag = first + (last - first) * k // 69
        records.view.progress.measured(NOW_S + k, 10_000 + k + lag, 10_000 + k, lag, 1)
    assert bool(texts(records.view, NOW_S + 69)) == told
    if told:
        assert (
            f"does not keep up: 6,000 input records wait, more than {BEHIND:,}" in only(records.view, NOW_S + 69).text
        )


def test_a_backlog_that_is_just_begun_is_no_alarm(records: Any) -> None:
    for k in range(30):
        records.view.progress.measured(NOW_S + k, 90_000 + k, 10_000 + k, 80_000, 1)
    assert texts(records.view, NOW_S + 30) == []


def test_kafka_away_is_all_that_is_said_of_the_stream(records: Any) -> None:
    records.view.progress.measured(NOW_S - 60, 100, 0, 100, 0)
    records.view.progress.lost(NOW_S - 30, "connection refused")
    assert only(records.view).text == "Kafka gives no answer since 30 s: connection refused"


def test_a_silent_feed_is_a_note_by_its_own_rhythm(records: Any) -> None:
    for k in range(10):
        records.action(round_=k, at_s=NOW_S + 3600 * k)
    last = NOW_S + 3600 * 9
    records.view.progress.measured(last, 10, 10, 0, 1)
    assert texts(records.view, last + 3 * 3600) == []
    alarm = only(records.view, last + 4 * 3600)
    assert alarm.severity == "note"
    assert alarm.text == "the feed is silent: no new action for 4 h; the longest pause before was 60 min"


def test_many_dead_letters_within_minutes(records: Any) -> None:
    for k in range(9):
        records.view.take_dead(f"forecasts/0/{k}", "unknown_session", "no session 'x' here", NOW_S + k)
    assert texts(records.view, NOW_S + 20) == []
    records.view.take_dead("forecasts/0/9", "unknown_session", "no session 'x' here", NOW_S + 9)
    assert only(records.view, NOW_S + 20).text == (
        "10 dead letters within 5 min; the latest, unknown_session: no session 'x' here"
    )
    assert texts(records.view, NOW_S + 600) == []


def test_records_of_others_on_our_topics(records: Any) -> None:
    records.view.take_unreadable()
    assert "output records of a shape not known here: 1" in only(records.view).text


def test_durations_in_words() -> None:
    assert [ago(s) for s in (-1, 0.4, 59, 119, 121, 7200, 200_000)] == [
        "0 s",
        "0 s",
        "59 s",
        "119 s",
        "2 min",
        "2 h",
        "2 d",
    ]
