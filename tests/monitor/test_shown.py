"""Charts carry numbers only; names stay out of what plotly reads, and everything is JSON."""

from __future__ import annotations

from typing import Any

import orjson

from stream_agg.monitor.charts import calibration
from stream_agg.monitor.shown import ALARMS, detail, oldest_open_s, overview

NOW_S = 1_800_000_000.0
EVIL = "<b>x</b><script>alert(1)</script>"


def charts(records: Any, name: str = "rain") -> dict[str, Any]:
    return {chart["id"]: chart for chart in detail(records.view.sessions[name], NOW_S)["charts"]}


def test_regret_and_payoff_over_the_rounds(records: Any) -> None:
    for day, n in ((1, 100), (2, 200)):
        records.regret(round_=n, states=n, time=f"2026-11-0{day}T00:00:00Z", robust={"round": n, "regret": n / 10})
    regret, payoff = charts(records)["regret"], charts(records)["payoff"]
    assert regret["rows"] == [(100, "2026-11-01T00:00:00Z", 10.0, 95.0), (200, "2026-11-02T00:00:00Z", 20.0, 95.0)]
    assert regret["data"][0]["y"] == [10.0, 20.0]
    assert [row[2:] for row in payoff["rows"]] == [(1.5, 1.4, 1.75)] * 2
    assert payoff["data"][0]["x"] == [100, 200]


def test_what_a_logarithm_cannot_show_is_drawn_at_one(records: Any) -> None:
    records.regret(robust={"regret": -0.25, "bound": None})
    regret = charts(records)["regret"]
    assert [curve["y"] for curve in regret["data"]] == [[1.0]], "a bound that nobody has is not drawn"
    assert regret["rows"][0][2:] == (-0.25, None)


def test_means_of_a_few_events_are_in_the_table_alone(records: Any) -> None:
    for n in (1, 100):
        records.regret(round_=n, states=n)
    payoff = charts(records)["payoff"]
    assert (len(payoff["rows"]), len(payoff["data"][0]["x"])) == (2, 1)


def test_between_solves_the_regret_stays_where_it_was(records: Any) -> None:
    for n in (90, 100, 110):
        records.regret(round_=n, states=n, robust={"round": 80, "regret": 7.0})
    shown = charts(records)
    assert [row[0] for row in shown["regret"]["rows"]] == [80]
    assert [row[0] for row in shown["payoff"]["rows"]] == [90, 100, 110]


def test_before_the_first_state_there_is_no_payoff(records: Any) -> None:
    records.regret(states=0)
    assert charts(records)["payoff"]["rows"] == []
    assert [c for c in charts(records) if c.startswith("calibration")] == []


def test_calibration_has_an_interval_at_every_level(records: Any) -> None:
    records.regret(levels={"gfs": {"0.7": (3, 7), "0.1": (9, 1), "0.5": (0, 0)}})
    low, high = calibration(records.view.sessions["rain"])["gfs"]
    assert (low[:3], high[:3]) == ((0.1, 10, 0.1), (0.7, 10, 0.7))
    assert high[3] < 0.7 < high[4]


def test_names_never_reach_plotly(records: Any) -> None:
    records.regret(EVIL, levels={EVIL: {"0.7": (3, 7)}})
    shown = charts(records, EVIL)
    assert shown["calibration-0"]["title"] == EVIL
    assert all(EVIL not in orjson.dumps([c["data"], c["layout"]]).decode() for c in shown.values())


def test_all_of_it_is_json(records: Any) -> None:
    records.rule()
    records.action()
    records.regret(levels={"gfs": {"0.7": (203, 137)}})
    records.view.take_dead("p", "late", EVIL, NOW_S)
    shown = orjson.loads(orjson.dumps([overview(records.view, NOW_S), detail(records.view.sessions["rain"], NOW_S)]))
    assert shown[0]["sessions"][0]["alarm"] is True


def test_only_so_many_alarms_are_listed(records: Any) -> None:
    for k in range(ALARMS + 7):
        records.rule(f"s{k}", unsolved="why")
    shown = overview(records.view, NOW_S)
    assert (len(shown["alarms"]), shown["more_alarms"]) == (ALARMS, 7)


def test_a_time_that_is_none_has_no_age(records: Any) -> None:
    records.regret(oldest_open="yesterday")
    assert oldest_open_s(records.view.sessions["rain"]) is None
    records.regret(oldest_open=None)
    assert oldest_open_s(records.view.sessions["rain"]) is None
