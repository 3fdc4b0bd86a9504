"""One HTML page about a session: key figures in words, charts by plotly, a table under each. Reads and writes no file.

The page is complete in itself: its policy forbids every request, and all text of users is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from stream_agg.learn.calibration import wilson
from stream_agg.replay.page import PAGE, SCRIPT, STYLE

Calibration = Mapping[str, Sequence[tuple[float, int, int]]]

Point = tuple[float | str | None, ...]

POINTS = 400
"""Most reports that a chart and its table show: more cannot be told apart at a screen's width."""


@dataclass(frozen=True, slots=True)
class _Chart:
    """A figure. No text of users goes into `data` or `layout`: plotly reads markup in them."""

    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Point]
    data: Sequence[Mapping[str, Any]] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)
    views: Sequence[Mapping[str, Any]] = ()
    """Ways to look at it, the first one at the start: `label`, `layout` changed and indices of traces to `hide`."""


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

    figures = [_regret(regrets), _realized(regrets), _value(regrets)]
    if comparison is not None:
        figures.insert(0, _comparison(comparison))
    experts = [_calibration(name, levels) for name, levels in calibration.items()]
    drawn = [{"data": chart.data, "layout": chart.layout, "views": chart.views} for chart in figures + experts]
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
            ("Robust regret", *_regret_words(last["robust"], _round(last))),
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


def _regret(regrets: Sequence[Mapping[str, Any]]) -> _Chart:
    rows = _series(regrets, lambda r: (_round(r), r["robust"]["regret"], r["robust"]["bound"]))
    return _Chart(
        "Running robust regret",
        "How far the play falls behind the best robust rule, summed over the rounds. The bound is the theorem's; "
        "both axes are logarithmic at first, so that it can be seen next to the curve.",
        ("Round", "Regret", "Bound"),
        rows,
        [_line(rows, 1, "Robust regret", "--one"), _line(rows, 2, "Theorem's bound", "--quiet", dash="dash")],
        _axes("rounds", "regret (sum)"),
        [
            {"label": "With the bound", "layout": _both("log"), "hide": []},
            {"label": "Regret alone", "layout": _both("linear"), "hide": [1]},
        ],
    )


def _realized(regrets: Sequence[Mapping[str, Any]]) -> _Chart:
    keys = ("payoff", "expected_payoff", "optimal_in_hindsight", "contextual")

    def point(record: Mapping[str, Any]) -> Point:
        real = record["realized"]
        return (real["states"], *(_per(real.get(key), real["states"]) for key in keys))

    rows = _series(regrets, point)
    return _Chart(
        "Realised payoff per event",
        "Means over the events whose state is known. The two benchmarks were chosen with hindsight: the best map from "
        "one expert's reports to actions, and the best map from whole profiles.",
        ("States seen", "Payoff", "Expected payoff", "Best single expert", "Best map of profiles"),
        rows,
        [
            _line(rows, 1, "Payoff", "--one"),
            _line(rows, 3, "Best single expert", "--two", dash="dash"),
            _line(rows, 4, "Best map of profiles", "--three", dash="dot"),
        ],
        _axes("states seen", "payoff per event"),
    )


def _value(regrets: Sequence[Mapping[str, Any]]) -> _Chart:
    def point(record: Mapping[str, Any]) -> Point:
        robust = record["robust"]
        value, worst = robust["value"] - robust["value_penalty"], robust["worst_case"] - robust["penalty"]
        return (_round(record), value, worst, robust["value_penalty"], robust["penalty"])

    rows = _series(regrets, point)
    return _Chart(
        "Guaranteed payoff per round",
        "What the best robust rule earns and what was played earns, were the states as bad as the calibrated forecasts "
        "allow. The penalties for miscalibration in either worst case are no payoff and are taken off; regret compares "
        "the two with them.",
        ("Round", "Robust value", "Worst case of what was played", "Penalty taken off the value", "off the worst case"),
        rows,
        [
            _line(rows, 1, "Robust value", "--two", dash="dash"),
            _line(rows, 2, "Worst case of what was played", "--one"),
        ],
        _axes("rounds", "payoff per round"),
    )


def _comparison(comparison: Mapping[str, Any]) -> _Chart:
    rows: list[Point] = []
    drawn: list[tuple[str, float, float, float]] = []
    for line in comparison["lines"]:
        payoff, gain = line["payoff"], line["over_mean"]
        rows.append((line["name"], *(part[end] for part in (payoff, gain) for end in ("mean", "low", "high"))))
        if line["kind"] == "policy" and gain["low"] is not None:  # their names are no users' text
            drawn.append((line["name"], gain["mean"], gain["high"] - gain["mean"], gain["mean"] - gain["low"]))
    names, means, up, down = (list(column) for column in zip(*drawn, strict=True)) if drawn else ([], [], [], [])
    data = {
        "x": means,
        "y": names,
        "error_x": {"symmetric": False, "array": up, "arrayminus": down, "color": "--one"},
        "mode": "markers",
        "marker": {"size": 10, "color": "--one"},
    }
    return _Chart(
        "Every policy on these events",
        f"Payoff per event over the {comparison['events']:,} events with an outcome, and what that is more than acting "
        "on the mean forecast. Policies knew each outcome only after its delay; what is called best was chosen knowing "
        f"all. Intervals (95 %) resample blocks of {comparison['block']} of the {comparison['times']:,} times, because "
        "events near each other go together.",
        ("Decided by", "Payoff", "from", "to", "Over the mean forecast", "from", "to"),
        rows,
        [data],
        {"xaxis": {"title": {"text": "payoff per event over the mean forecast"}}, "yaxis": {"autorange": "reversed"}},
    )


def _calibration(expert: str, levels: Sequence[tuple[float, int, int]]) -> _Chart:
    rows: list[Point] = []
    for level, n0, n1 in levels:
        if n0 + n1:
            rows.append((level, n0, n1, n1 / (n0 + n1), *wilson(n0, n1)))
    most = max((n0 + n1 for _, n0, n1 in levels), default=1) or 1
    frequencies = {
        "x": [row[0] for row in rows],
        "y": [row[3] for row in rows],
        "error_y": {
            "symmetric": False,
            "array": [high - p for *_, p, _, high in rows],  # type: ignore[operator] # never None here
            "arrayminus": [p - low for *_, p, low, _ in rows],  # type: ignore[operator]
            "color": "--one",
        },
        # Areas, not diameters, are what eyes compare.
        "marker": {"size": [5 + 13 * ((n0 + n1) / most) ** 0.5 for _, n0, n1 in levels if n0 + n1], "color": "--one"},
        "mode": "markers",
        "name": "Observed",
    }
    diagonal = {
        "x": [0, 1],
        "y": [0, 1],
        "mode": "lines",
        "line": {"color": "--quiet", "dash": "dash"},
        "hoverinfo": "skip",
    }
    axis = {"range": [-0.04, 1.04], "dtick": 0.25}
    layout = {
        "xaxis": {"title": {"text": "level"}, **axis},
        "yaxis": {"title": {"text": "observed frequency"}, **axis},
        "showlegend": False,
    }
    head = ("Level", "State 0", "State 1", "Frequency", "95 % from", "to")
    return _Chart(expert, "", head, rows, [diagonal, frequencies] if rows else [], layout)


def _round(record: Mapping[str, Any]) -> int:
    """The round that the robust numbers are of: the last solve's, not that of later states."""
    return int(record["robust"].get("round", record["round"]))


def _series(regrets: Sequence[Mapping[str, Any]], point: Callable[[Mapping[str, Any]], Point]) -> list[Point]:
    """Points by their first number, a count: the last report of each but 0, thinned to `POINTS` with both ends kept."""
    by_count = {row[0]: row for row in map(point, regrets)}
    rows = [row for count, row in by_count.items() if count]
    if len(rows) <= POINTS:
        return rows
    return [rows[i * (len(rows) - 1) // (POINTS - 1)] for i in range(POINTS)]


def _line(rows: Sequence[Point], column: int, name: str, color: str, dash: str = "solid") -> dict[str, Any]:
    return {
        "x": [row[0] for row in rows],
        "y": [row[column] for row in rows],
        "name": name,
        "mode": "lines+markers" if len(rows) < 3 else "lines",
        "line": {"color": color, "dash": dash, "width": 2},
    }


def _axes(x: str, y: str) -> dict[str, Any]:
    return {"xaxis": {"title": {"text": x}, "type": "log"}, "yaxis": {"title": {"text": y}}}


def _both(kind: str) -> dict[str, Any]:
    return {"xaxis": {"type": kind}, "yaxis": {"type": kind}}


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


def _figure(index: int, chart: _Chart, heading: str) -> str:
    title = escape(chart.title)
    buttons = "".join(
        f'<button type="button" data-chart="{index}" data-view="{i}">{escape(view["label"])}</button>'
        for i, view in enumerate(chart.views)
    )
    drawing = (
        f'<div class="chart" id="chart-{index}" role="img" aria-label="{title}: numbers in the table below"></div>'
    )
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in chart.head)
    body = "\n".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in chart.rows)
    return (
        f"<figure><figcaption><{heading}>{title}</{heading}><p>{escape(chart.note)}</p></figcaption>"
        f'<div class="views">{buttons}</div>{drawing if chart.rows else "<p>Nothing to show yet.</p>"}'
        f'<details><summary>Table</summary><div class="scroll" role="region" tabindex="0" aria-label="{title}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div></details></figure>"
    )
