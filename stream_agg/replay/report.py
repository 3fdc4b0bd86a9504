"""One HTML page about a session: key figures in words, charts by plotly, a table under each. Reads and writes no file.

The page is complete in itself: its policy forbids every request, and all text of users is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    data = json.dumps([asdict(chart) for chart in figures + experts], allow_nan=False, default=str)
    sections = [_figure(i, chart) for i, chart in enumerate(figures)]
    multiples = [_figure(i, chart) for i, chart in enumerate(experts, len(figures))]
    return _PAGE.format(
        title=escape(title),
        style=_STYLE,
        summary=_summary(rounds, regrets),
        sections="\n".join(f"<section>{section}</section>" for section in sections),
        multiples="\n".join(multiples) or "<p>No expert.</p>",
        spec=escape(json.dumps(spec, indent=1, ensure_ascii=False)),
        data=data.replace("<", "\\u003c"),
        plotly=get_plotlyjs(),
        script=_SCRIPT,
    )


def _summary(rounds: int, regrets: Sequence[Mapping[str, Any]]) -> str:
    if not regrets:
        return _items([("Rounds", _text(rounds), "decided; no report was made yet.")])
    last = regrets[-1]
    robust, real = last["robust"], last["realized"]
    states, at = real["states"], robust.get("round", last["round"])
    known = f"decided; the state of {_text(states)} is known, {_text(last['open'])} still wait for theirs."
    items = [("Rounds", _text(rounds), known)]
    if states:
        each = f"over the {_text(states)} known rounds, {_text(_per(real['payoff'], states))} a round."
        hindsight = [
            f"{name} {_text(real[key])}"
            for key, name in (
                ("optimal_in_hindsight", "the best single expert"),
                ("contextual", "the best map of profiles"),
            )
            if real[key] is not None
        ]
        items.append(("Payoff", _text(real["payoff"]), each + (_hindsight(hindsight))))
    else:
        items.append(("Payoff", "–", "not known before a state arrives."))
    allowed = "" if robust["bound"] is None else f" The theorem allows {_text(robust['bound'])}."
    exact = "exact" if robust["exact"] else "not exact: calibration is violated or at its price limit"
    items.append(
        (
            "Robust regret",
            _text(robust["regret"]),
            f"after {_text(at)} rounds, {_text(_per(robust['regret'], at))} a round.{allowed} The penalty is {exact}.",
        )
    )
    epsilon = robust["epsilon_min"]
    # Solvers leave dust: below it nobody could tell the forecasts from consistent ones.
    meaning = (
        "The forecasts are consistent: some course of states calibrates every expert at once."
        if epsilon is not None and epsilon < 1e-9
        else "The forecasters cannot all be calibrated within less than this, whatever the states turn out to be."
    )
    items.append(("Smallest calibration error (epsilon_min)", _text(epsilon), meaning))
    return _items(items)


def _hindsight(parts: Sequence[str]) -> str:
    return f" In hindsight: {', '.join(parts)}." if parts else ""


def _items(items: Iterable[tuple[str, str, str]]) -> str:
    return "\n".join(f"<div><dt>{a}</dt><dd><b>{b}</b> {c}</dd></div>" for a, b, c in items)


def _regret(regrets: Sequence[Mapping[str, Any]]) -> _Chart:
    rows = _series(
        regrets, lambda r: (r["robust"].get("round", r["round"]), r["robust"]["regret"], r["robust"]["bound"])
    )
    return _Chart(
        "Running robust regret",
        "How far what was played falls behind the best robust rule, summed over the rounds. The bound is the theorem's: "
        "both axes are logarithmic at first, so that it can be seen next to the curve.",
        ("Round", "Regret", "Bound"),
        rows,
        [_line(rows, 1, "Robust regret", "--one"), _line(rows, 2, "Theorem's bound", "--quiet", dash="dash")],
        _axes("rounds", "regret (sum)", log_x=True),
        [
            {"label": "With the bound", "layout": {"xaxis.type": "log", "yaxis.type": "log"}, "hide": []},
            {"label": "Regret alone", "layout": {"xaxis.type": "linear", "yaxis.type": "linear"}, "hide": [1]},
        ],
    )


def _realized(regrets: Sequence[Mapping[str, Any]]) -> _Chart:
    keys = ("payoff", "expected_payoff", "optimal_in_hindsight", "contextual")

    def point(record: Mapping[str, Any]) -> Point:
        real = record["realized"]
        return (real["states"], *(_per(real.get(key), real["states"]) for key in keys))

    rows = [row for row in _series(regrets, point) if row[0]]
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
        _axes("states seen", "payoff per event", log_x=True),
    )


def _value(regrets: Sequence[Mapping[str, Any]]) -> _Chart:
    def point(record: Mapping[str, Any]) -> Point:
        robust = record["robust"]
        penalty, worst = robust["penalty"], robust["worst_case"]
        value = None if penalty is None or robust["value"] is None else robust["value"] - penalty
        return (
            robust.get("round", record["round"]),
            value,
            None if penalty is None or worst is None else worst - penalty,
            penalty,
        )

    rows = _series(regrets, point)
    return _Chart(
        "Guaranteed payoff per round",
        "What the best robust rule guarantees and what was played guarantees, against every course of states that fits the "
        "calibrated forecasts. The penalty for miscalibration is taken off both; the table has it.",
        ("Round", "Robust value", "Worst case of what was played", "Penalty taken off"),
        rows,
        [
            _line(rows, 1, "Robust value", "--two", dash="dash"),
            _line(rows, 2, "Worst case of what was played", "--one"),
        ],
        _axes("rounds", "payoff per round", log_x=True),
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


def _series(regrets: Sequence[Mapping[str, Any]], point: Callable[[Mapping[str, Any]], Point]) -> list[Point]:
    """The points by their first number, the last report of each, thinned to `POINTS` with both ends kept."""
    rows = list({row[0]: row for row in map(point, regrets)}.values())
    if len(rows) <= POINTS:
        return rows
    return [rows[i * (len(rows) - 1) // (POINTS - 1)] for i in range(POINTS)]
