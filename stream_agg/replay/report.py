"""One HTML page about a session: key figures in words, charts by plotly, a table under each. Reads and writes no file.

The page is complete in itself: its policy forbids every request, and all text of users is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from stream_agg.replay.charts import Chart, Point, expert, frequencies, line, payoff, regret, series
from stream_agg.replay.page import PAGE, SCRIPT, STYLE

Calibration = Mapping[str, Sequence[tuple[float, int, int]]]


def render(
    title: str,
    spec: Mapping[str, Any],
    rounds: int,
    regrets: Sequence[Mapping[str, Any]],
    calibration: Calibration,
    comparison: Mapping[str, Any] | None = None,
) -> str:
    """The page. `spec` and `regrets` as in the contract's JSON, the latest report last; `rounds` decided in all.

    `calibration`: expert -> [(level, known rounds with state 0, with state 1)]. `comparison`: the record of one.
    """
    from plotly.offline import get_plotlyjs  # slow to import

    points = [Point.of(record) for record in regrets]
    figures = [regret(points), payoff(points), _value(regrets)]
    if comparison is not None:
        figures.insert(0, _comparison(comparison))
    rows = ((name, frequencies({z: (n0, n1) for z, n0, n1 in levels})) for name, levels in calibration.items())
    experts = [expert(i, name, found) for i, (name, found) in enumerate(rows)]
    drawn = [{"data": chart["data"], "layout": chart["layout"]} for chart in figures + experts]
    return PAGE.format(
        title=escape(title),
        style=STYLE,
        summary=_summary(rounds, regrets),
        sections="\n".join(_figure(i, chart, "h2") for i, chart in enumerate(figures)),
        multiples="\n".join(_figure(i, chart, "h3") for i, chart in enumerate(experts, len(figures))),
        spec=escape(json.dumps(spec, indent=1, ensure_ascii=False)),
        data=script_json(drawn),
        plotly=get_plotlyjs(),
        script=SCRIPT,
    )


def script_json(value: Any) -> str:
    """JSON that no text inside can end the surrounding script element of."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def _summary(rounds: int, regrets: Sequence[Mapping[str, Any]]) -> str:
    if not regrets:
        return _items([("Rounds", _text(rounds), "decided; no report was made yet.")])
    last = regrets[-1]
    epsilon = last["robust"]["epsilon_min"]
    # Solvers leave dust: below it nobody could tell the forecasts from consistent ones.
    meaning = (
        "The forecasts are consistent: some course of states calibrates every expert at once."
        if epsilon < 1e-9
        else "The forecasters cannot all be calibrated within less than this, whatever the states turn out to be."
    )
    known = f"decided; {_text(last['realized']['states'])} have a known state, {_text(last['open'])} wait for theirs."
    return _items(
        [
            ("Rounds", _text(rounds), known),
            ("Payoff", *_payoff_words(last["realized"])),
            ("Robust regret", *_regret_words(last["robust"], Point.of(last).robust_round)),
            ("Smallest calibration error (epsilon_min)", _text(epsilon), meaning),
            ("One distribution", *_drift_words(last["drift"])),
        ]
    )


def _payoff_words(real: Mapping[str, Any]) -> tuple[str, str]:
    if not real["states"]:
        return "unknown", "before a state arrives."
    words = f"over {_text(real['states'])} known rounds, {_text(_per(real['payoff'], real['states']))} a round."
    if real["optimal_in_hindsight"] is not None:
        words += f" In hindsight the best single expert gave {_text(real['optimal_in_hindsight'])}"
        words += f", the best map of profiles {_text(real['contextual'])}."
    return _text(real["payoff"]), words


def _regret_words(robust: Mapping[str, Any], at: int) -> tuple[str, str]:
    words = f"after {_text(at)} rounds, {_text(_per(robust['regret'], at))} a round."
    if robust["bound"] is not None:
        words += f" The theorem allows {_text(robust['bound'])}."
    exact = (
        "exact: a larger gamma changes nothing"
        if robust["exact"]
        else "not exact: a larger gamma could change the value"
    )
    return _text(robust["regret"]), f"{words} The penalty is {exact}."


def _drift_words(drift: Mapping[str, Any] | None) -> tuple[str, str]:
    doubt = drift_doubt(drift)
    if drift is None:
        return "not looked at", "before round 64."
    if doubt is None:
        return (
            "not refuted",
            f"by round {_text(drift['round'])}: later reports are distributed as earlier, up to chance.",
        )
    return "in doubt", escape(doubt)


def drift_doubt(drift: Mapping[str, Any] | None) -> str | None:
    """What a report's drift part says against one distribution of all profiles, as sentences; None for nothing."""
    if drift is None or drift["first_alarm"] is None:
        return None
    end, p = drift["round"], drift["p_value"]
    seen = f"distance {drift['distance']:.2g}, p {'= ' + format(p, '.1g') if p else '< 1e-300'}"
    words = (
        f"Expert {drift['expert']} reported otherwise in rounds {end // 2 + 1:,} to {end:,} than before ({seen}; "
        f"first alarm at round {drift['first_alarm']:,})."
        if drift["alarm"]
        else f"There was an alarm at round {drift['first_alarm']:,}, but none at round {end:,} ({seen})."
    )
    return f"The rounds do not look like independent draws from one distribution, as the bound assumes. {words}"


def _items(items: Iterable[tuple[str, str, str]]) -> str:
    return "\n".join(f"<div><dt>{a}</dt><dd><b>{b}</b> {c}</dd></div>" for a, b, c in items)


def _value(regrets: Sequence[Mapping[str, Any]]) -> Chart:
    def point(record: Mapping[str, Any]) -> tuple[Any, ...]:
        robust = record["robust"]
        value, worst = robust["value"] - robust["value_penalty"], robust["worst_case"] - robust["penalty"]
        return (Point.of(record).robust_round, value, worst, robust["value_penalty"], robust["penalty"])

    rows = series(regrets, point)
    return {
        "title": "Guaranteed payoff per round",
        "note": "What the best robust rule earns and what was played earns, were the states as bad as the calibrated "
        "forecasts allow. The penalties for miscalibration in either worst case are no payoff and are taken off; "
        "regret compares the two with them.",
        "head": [
            "Round", "Robust value", "Worst case of what was played", "Penalty taken off the value",
            "off the worst case",
        ],
        "rows": rows,
        "data": [
            line(rows, 1, "Robust value", "--two", "dash"),
            line(rows, 2, "Worst case of what was played", "--one"),
        ],
        "layout": {"xaxis": {"title": {"text": "rounds"}}, "yaxis": {"title": {"text": "payoff per round"}}},
    }  # fmt: skip


def _comparison(comparison: Mapping[str, Any]) -> Chart:
    rows: list[tuple[Any, ...]] = []
    drawn: list[tuple[str, float, float, float]] = []
    for one in comparison["lines"]:
        gain = one["over_mean"]
        rows.append((one["name"], *(part[end] for part in (one["payoff"], gain) for end in ("mean", "low", "high"))))
        if one["kind"] == "policy" and gain["low"] is not None:  # their names are no users' text
            drawn.append((one["name"], gain["mean"], gain["high"] - gain["mean"], gain["mean"] - gain["low"]))
    names, means, up, down = (list(column) for column in zip(*drawn, strict=True)) if drawn else ([], [], [], [])
    data = {
        "x": means,
        "y": names,
        "error_x": {"symmetric": False, "array": up, "arrayminus": down, "color": "--one"},
        "mode": "markers",
        "marker": {"size": 10, "color": "--one"},
    }
    return {
        "title": "Every policy on these events",
        "note": f"Payoff per event over the {comparison['events']:,} events with an outcome, and what that is more "
        "than acting on the mean forecast. Policies knew each outcome only after its delay; what is called best was "
        f"chosen knowing all. Intervals (95 %) resample blocks of {comparison['block']} of the "
        f"{comparison['times']:,} times, because events near each other go together.",
        "head": ["Decided by", "Payoff", "from", "to", "Over the mean forecast", "from", "to"],
        "rows": rows,
        "data": [data],
        "layout": {
            "xaxis": {"title": {"text": "over the mean forecast"}},
            "yaxis": {"autorange": "reversed"},
        },
    }


def _per(total: float | None, count: int) -> float | None:
    return None if total is None or not count else total / count


def _text(number: float | str | None) -> str:
    if number is None:
        return "unknown"
    if isinstance(number, str):
        return escape(number)
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.1f}" if abs(number) >= 1000 else f"{number if abs(number) > 1e-9 else 0.0:.4g}"


def _figure(index: int, chart: Chart, heading: str) -> str:
    title = escape(chart["title"])
    drawing = (
        f'<div class="chart" id="chart-{index}" role="img" aria-label="{title}: numbers in the table below"></div>'
    )
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in chart["head"])
    body = "\n".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in chart["rows"])
    return (
        f"<figure><figcaption><{heading}>{title}</{heading}><p>{escape(chart['note'])}</p></figcaption>"
        f"{drawing if chart['rows'] else '<p>Nothing to show yet.</p>'}"
        f'<details><summary>Table</summary><div class="scroll" role="region" tabindex="0" aria-label="{title}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div></details></figure>"
    )
