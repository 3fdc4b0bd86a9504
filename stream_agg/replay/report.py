"""One HTML page about a session: key figures in words, charts by plotly, a table under each. Reads and writes no file.

The page is complete in itself: its policy forbids every request, and all text of users is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

Calibration = Mapping[str, Sequence[tuple[float, int, int]]]
Point = tuple[float | None, ...]

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
) -> str:
    """The page. `spec` and `regrets` as in the contract's JSON, the latest report last; `rounds` decided in all.

    `calibration`: expert -> [(level, known rounds with state 0, with state 1)].
    """
    from plotly.offline import get_plotlyjs  # slow to import

    figures = [_regret(regrets), _realized(regrets), _value(regrets)]
    experts = [_calibration(name, levels) for name, levels in calibration.items()]
    drawn = [{"data": chart.data, "layout": chart.layout, "views": chart.views} for chart in figures + experts]
    return _PAGE.format(
        title=escape(title),
        style=_STYLE,
        summary=_summary(rounds, regrets),
        sections="\n".join(_figure(i, chart, "h2") for i, chart in enumerate(figures)),
        multiples="\n".join(_figure(i, chart, "h3") for i, chart in enumerate(experts, len(figures))),
        spec=escape(json.dumps(spec, indent=1, ensure_ascii=False)),
        data=json.dumps(drawn, allow_nan=False).replace("<", "\\u003c"),
        plotly=get_plotlyjs(),
        script=_SCRIPT,
    )


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
        penalty = robust["penalty"]
        return (_round(record), robust["value"] - penalty, robust["worst_case"] - penalty, penalty)

    rows = _series(regrets, point)
    return _Chart(
        "Guaranteed payoff per round",
        "What the best robust rule earns and what was played earns, were the states as bad as the calibrated forecasts "
        "allow. The penalty for miscalibration in that worst case is no payoff and is taken off both, "
        "so that their distance is the regret per round.",
        ("Round", "Robust value", "Worst case of what was played", "Penalty taken off"),
        rows,
        [
            _line(rows, 1, "Robust value", "--two", dash="dash"),
            _line(rows, 2, "Worst case of what was played", "--one"),
        ],
        _axes("rounds", "payoff per round"),
    )


def _calibration(expert: str, levels: Sequence[tuple[float, int, int]]) -> _Chart:
    from scipy.stats import binomtest  # slow to import

    rows: list[Point] = []
    for level, n0, n1 in levels:
        if n0 + n1:
            interval = binomtest(n1, n0 + n1).proportion_ci(method="wilson")
            rows.append((level, n0, n1, n1 / (n0 + n1), float(interval.low), float(interval.high)))
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


def _text(number: float | None) -> str:
    if number is None:
        return "unknown"
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


_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2430; --grid: #dfe3e8; --quiet: #6b7480;
  --one: #0b5cad; --two: #b3500b; --three: #17795a; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181e; --ink: #e4e8ee; --grid: #333b46; --quiet: #98a2af;
  --one: #6cb2ff; --two: #ffa45c; --three: #5fd0a5; } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 70rem; padding: 1rem; }
h1 { line-height: 1.2; } h2 { margin: 2rem 0 0; } h3 { margin: 0; font-size: 1rem; }
h1, h3, dd, pre { overflow-wrap: anywhere; }
p { max-width: 46rem; margin: .25rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); gap: 1rem; }
dt { color: var(--quiet); } dd { margin: 0; } dd b { display: block; font-size: 1.6rem; line-height: 1.2; }
figure { margin: 0; min-width: 0; }
.chart { height: 24rem; }
.multiples { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: 1rem; }
.multiples .chart { height: 17rem; }
button { font: inherit; color: inherit; background: none; border: 1px solid var(--quiet); padding: .2rem .7rem; }
button[aria-pressed=true] { background: var(--ink); color: var(--paper); }
.scroll { overflow: auto; max-height: 24rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .15rem .7rem; border-bottom: 1px solid var(--grid); }
"""

_SCRIPT = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const tone = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const paint = v => typeof v === "string" ? (v.startsWith("--") ? tone(v) : v) : Array.isArray(v) ? v.map(paint)
  : v && typeof v === "object" ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, paint(x)])) : v;
const buttons = [...document.querySelectorAll("button[data-view]")];
function draw(i) {
  const place = document.getElementById("chart-" + i), chart = charts[i], view = chart.views[chart.view || 0] || {};
  if (!place) return;
  const axis = name => ({automargin: true, zeroline: false, gridcolor: "--grid", linecolor: "--grid",
    ...chart.layout[name], ...(view.layout || {})[name]});
  const layout = {...chart.layout, xaxis: axis("xaxis"), yaxis: axis("yaxis"), margin: {l: 8, r: 12, t: 8, b: 8},
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: "--ink", size: 13},
    legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0}, hovermode: "closest", dragmode: false,
    hoverlabel: {bgcolor: "--paper", font: {color: "--ink"}}};
  const data = chart.data.filter((_, k) => !(view.hide || []).includes(k));
  Plotly.react(place, paint(data), paint(layout), {responsive: true, displayModeBar: false});
  buttons.filter(b => b.dataset.chart == i)
    .forEach(b => b.setAttribute("aria-pressed", b.dataset.view == (chart.view || 0)));
}
const all = () => charts.forEach((_, i) => draw(i));
buttons.forEach(b => b.addEventListener("click", () => {
  charts[b.dataset.chart].view = +b.dataset.view; draw(b.dataset.chart); }));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
all();
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1>
<dl>
{summary}
</dl></header>
<noscript><p>The charts need JavaScript; the tables do not.</p></noscript>
<main>
{sections}
<section><h2>Calibration by level</h2>
<p>How often state 1 came when the expert reported a level, with 95 % Wilson intervals; larger marks are more rounds.
On the dashed line the expert is calibrated.</p>
<div class="multiples">
{multiples}
</div></section>
<section><h2>Session spec</h2>
<details><summary>As it was run</summary><pre>{spec}</pre></details></section>
</main>
<script type="application/json" id="charts">{data}</script>
<script>{plotly}</script>
<script>{script}</script>
</body>
</html>
"""
