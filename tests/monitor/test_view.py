"""Records fold into what is shown, in bounded memory, whatever comes."""

from __future__ import annotations

from typing import Any

import pytest

from stream_agg.monitor import view as module
from stream_agg.monitor.shown import detail, overview
from stream_agg.monitor.view import Progress, View

NOW_S = 1_800_000_000.0


def test_a_session_shows_its_latest_action_rule_and_report(records: Any) -> None:
    records.rule()
    records.action(round_=411, at_s=NOW_S - 9)
    records.action(round_=412, at_s=NOW_S - 4)
    records.regret()
    (row,) = overview(records.view, NOW_S)["sessions"]
    assert (row["session"], row["action"], row["event"], row["round"], row["gap"]) == (
        "rain", "prepare", "e412", 412, 0.0031
    )  # fmt: skip
    assert (row["probability"], row["regret"], row["bound"]) == (0.75, 13.2, 95.0)
    assert (row["payoff"], row["single"], row["contextual"]) == (177.0, pytest.approx(165.2), 206.5)
    assert (row["open"], row["oldest_open_s"], row["heard_ago_s"]) == (294, 2 * 86400, 0.0)
    shown = detail(records.view.sessions["rain"], NOW_S)
    assert (shown["rule_version"], shown["rule_round"], shown["value"]) == (9, 400, 1.642)


def test_totals_add_up_what_runs(records: Any) -> None:
    records.action("a", 10)
    records.action("b", 20)
    records.regret("b", open=7)
    records.regret("c", open=5)
    records.regret("c", round_=413, reason="close", open=5)
    records.view.take_dead("forecasts/0/7", "late", "why", NOW_S)
    total = overview(records.view, NOW_S)["totals"]
    assert (total["sessions"], total["closed"], total["rounds"], total["open"]) == (2, 1, 30, 7)
    assert total["dead_letters"] == 1


def test_records_published_twice_change_no_chart(records: Any) -> None:
    for n in (10, 20, 30):
        records.regret(round_=n, states=n)
    before = list(records.view.sessions["rain"].points)
    for n in (20, 30):
        records.regret(round_=n, states=n)
    assert records.view.sessions["rain"].points == before


def test_a_session_opened_anew_starts_its_charts_anew(records: Any) -> None:
    records.regret(round_=500, states=400)
    records.regret(round_=510, states=400, reason="close")
    assert records.view.sessions["rain"].closed
    records.regret(round_=1, states=0)
    assert not records.view.sessions["rain"].closed
    assert [p.round for p in records.view.sessions["rain"].points] == [1]


@pytest.mark.parametrize("n", [1, 2, 199, 200, 201, 399, 400, 401, 1234])
def test_charts_are_thinned_but_keep_both_ends(records: Any, n: int) -> None:
    for k in range(1, n + 1):
        records.regret(round_=k, states=k)
    points = records.view.sessions["rain"].points
    assert len(points) < 2 * module.POINTS
    assert (points[0].round, points[-1].round) == (1, n)
    assert [p.round for p in points] == sorted({p.round for p in points})
    for chart in detail(records.view.sessions["rain"], NOW_S)["charts"]:
        assert all(len(trace["x"]) <= module.POINTS for trace in chart["data"])


def test_of_too_many_sessions_the_quietest_goes_closed_ones_first(records: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "SESSIONS", 3)
    records.action("old", at_s=NOW_S - 100)
    records.action("older", at_s=NOW_S - 200)
    records.regret("closed", reason="close", at_s=NOW_S)
    records.action("new", at_s=NOW_S)
    assert set(records.view.sessions) == {"old", "older", "new"}
    records.action("newest", at_s=NOW_S)
    assert set(records.view.sessions) == {"old", "new", "newest"}
    assert overview(records.view, NOW_S)["totals"]["evicted"] == 2


SHAPES = [None, 7, "text", [], {}, {"rule": 3}, {"action": "a", "rule": {}}, {"robust": None}]


@pytest.mark.parametrize("record", SHAPES)
@pytest.mark.parametrize("kind", ["action", "regret", "rule"])
def test_a_record_of_another_shape_is_counted_and_left_out(records: Any, kind: Any, record: Any) -> None:
    records.view.take(kind, "rain", record, NOW_S)
    assert not records.view.sessions
    assert records.view.unreadable == 1


@pytest.mark.parametrize("round_", [-1, 2**60, "many", None])
def test_a_count_that_is_none_is_no_record(records: Any, round_: Any) -> None:
    records.action(round_=round_)
    assert records.view.unreadable == 1


def test_a_record_without_the_newer_fields_is_read(records: Any) -> None:
    record = {
        "time": "2026-11-21T06:00:00Z", "round": 3, "reason": "solve", "open": 3, "counts": {},
        "robust": {"value": 1.0, "worst_case": 1.0, "regret": 0.0, "bound": None, "exact": True, "epsilon_min": 0.0},
        "realized": {"states": 0, "payoff": 0.0, "optimal_in_hindsight": 0.0, "contextual": 0.0},
        "calibration": {"gfs": {"error": 0.03, "worst_level": 0.7}},
    }  # fmt: skip
    records.view.take("regret", "rain", record, NOW_S)
    (row,) = overview(records.view, NOW_S)["sessions"]
    assert (row["round"], row["oldest_open_s"]) == (3, None)


def test_dead_letters_count_by_reason_and_the_latest_are_kept(records: Any) -> None:
    for k in range(50):
        records.view.take_dead(f"forecasts/0/{k}", "late" if k % 2 else "bad_json", f"detail {k}", NOW_S + k)
    shown = overview(records.view, NOW_S + 50)["dead_letters"]
    assert shown["by_reason"] == {"late": 25, "bad_json": 25}
    assert len(shown["latest"]) == module.DEAD_LETTERS
    assert (shown["latest"][0]["place"], shown["latest"][0]["ago_s"]) == ("forecasts/0/49", 1.0)


def test_reasons_cannot_grow_without_end(records: Any) -> None:
    for k in range(1000):
        records.view.take_dead("p", f"reason {k}", "", NOW_S + 60 * k)
    assert len(records.view.reasons) <= module.REASONS + 1
    assert len(records.view.dead_by_minute) <= module.MINUTES
    assert records.view.reasons.total() == 1000


def test_sessions_are_found_by_a_part_of_their_name_and_paged_by_name(records: Any) -> None:
    for k in range(30):
        records.action(f"Paris-{k:02}")
    records.action("oslo")
    found = overview(records.view, NOW_S, find="paris", page=1)
    assert (found["found"], found["pages"], found["page"]) == (30, 2, 1)
    assert [s["session"] for s in found["sessions"]] == [f"Paris-{k}" for k in range(25, 30)]
    assert overview(records.view, NOW_S, page=99)["page"] == 1
    assert overview(View(), NOW_S)["pages"] == 1


def test_progress_moves_with_the_offsets_or_when_nothing_waits() -> None:
    progress = Progress()
    progress.measured(1.0, ends=100, applied=40, lag=60, workers=1)
    progress.measured(2.0, ends=110, applied=40, lag=70, workers=1)
    assert (progress.moved_s, progress.input_s) == (1.0, 2.0)
    progress.measured(3.0, ends=110, applied=50, lag=60, workers=1)
    assert (progress.moved_s, progress.input_s) == (3.0, 2.0)
    progress.measured(4.0, ends=110, applied=110, lag=0, workers=1)
    progress.measured(5.0, ends=110, applied=110, lag=0, workers=1)
    assert progress.moved_s == 5.0


def test_kafka_is_away_since_it_first_gave_no_answer() -> None:
    progress = Progress()
    progress.lost(10.0, "gone")
    progress.lost(20.0, "gone")
    assert (progress.away, progress.away_s) == ("gone", 10.0)
    progress.measured(30.0, 0, 0, 0, 1)
    assert progress.away is None
