"""The charts of one session as plotly reads them, with the numbers for the table under each. Pure.

No text of users goes into `data` or `layout`: plotly reads markup in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stream_agg.learn.calibration import wilson
from stream_agg.monitor.view import POINTS, Point, Watched, thinned

Chart = dict[str, Any]
"""`id`, `title`, `note`, `head` and `rows` of the table, `data` and `layout` for plotly, `small` for one of many."""

Row = tuple[float, int, float, float, float]

_NOISE = 0.05  # the first twentieth of the events is not drawn: means of a few would set the scale

_POINTS_OF_A_TABLE = 50  # the latest: a table is read, not looked at


def charts(session: Watched) -> list[Chart]:
    """Regret and payoff over the rounds, then calibration by expert."""
    points = session.points
    while len(points) > POINTS:
        points = thinned(points)
    experts = [_expert(i, name, rows) for i, (name, rows) in enumerate(calibration(session).items())]
    return [_regret(points), _payoff(points), *experts]


def _regret(points: Sequence[Point]) -> Chart:
    rows = _last([(p.robust_round, p.time, p.regret, p.bound) for p in points if p.robust_round])
    return {
        "id": "regret",
        "title": "Running robust regret",
        "note": "How far the play falls behind the best robust rule, summed over the rounds, and what the theorem "
        "allows. The scale is logarithmic above 1.",
        "head": ["Round", "Event time", "Regret", "Bound"],
        "rows": rows[-_POINTS_OF_A_TABLE:],
        # Regret may be 0 or a little below, which no logarithm shows: it is drawn at 1 at least.
        "data": [
            _line(rows, 2, "Robust regret", "--one", least=1.0),
            _line(rows, 3, "Theorem's bound", "--quiet", "dash", least=1.0),
        ],
        "layout": {
            "xaxis": {"title": {"text": "rounds"}},
            "yaxis": {"title": {"text": "sum"}, "type": "log", "dtick": 1},
        },
    }


def _payoff(points: Sequence[Point]) -> Chart:
    rows = _last([(p.states, p.time, *_means(p)) for p in points if p.states])
    settled = [row for row in rows if row[0] >= rows[-1][0] * _NOISE]
    return {
        "id": "payoff",
        "title": "Realised payoff per event, against the benchmarks",
        "note": "Means over the events whose state is known. The two benchmarks were chosen with hindsight: the best "
        "map from one expert's reports to actions, and the best map from whole profiles.",
        "head": ["States seen", "Event time", "Payoff", "Best single expert", "Best map of profiles"],
        "rows": rows[-_POINTS_OF_A_TABLE:],
        "data": [
            _line(settled, 2, "Payoff", "--one"),
            _line(settled, 3, "Best single expert", "--two", "dash"),
            _line(settled, 4, "Best map of profiles", "--three", "dot"),
        ],
        "layout": {"xaxis": {"title": {"text": "states seen"}}, "yaxis": {"title": {"text": "payoff per event"}}},
    }


def calibration(session: Watched) -> dict[str, list[Row]]:
    """expert -> rows of (level, known rounds, frequency of state 1, from, to): Wilson's 95 % interval."""
    found = session.report.calibration if session.report else {}
    return {
        name: [
            (level, zeros + ones, ones / (zeros + ones), *wilson(zeros, ones))
            for level, (zeros, ones) in levels.items()
            if zeros + ones
        ]
        for name, levels in sorted(found.items())
    }


def _expert(index: int, name: str, rows: Sequence[Row]) -> Chart:
    most = max((row[1] for row in rows), default=1)
    observed = {
        "x": [row[0] for row in rows],
        "y": [row[2] for row in rows],
        "error_y": {
            "symmetric": False,
            "array": [high - p for _, _, p, _, high in rows],
            "arrayminus": [p - low for _, _, p, low, _ in rows],
            "color": "--one",
        },
        # Areas, not diameters, are what eyes compare.
        "marker": {"size": [5 + 13 * (row[1] / most) ** 0.5 for row in rows], "color": "--one"},
        "mode": "markers",
    }
    diagonal = {"x": [0, 1], "y": [0, 1], "mode": "lines", "line": {"color": "--quiet", "dash": "dash"}}
    axis = {"range": [-0.04, 1.04], "dtick": 0.25}
    return {
        "id": f"calibration-{index}",
        "small": True,
        "title": name,
        "note": "",
        "head": ["Level", "Outcomes", "Frequency", "95 % from", "to"],
        "rows": rows,
        "data": [{**diagonal, "hoverinfo": "skip"}, observed],
        "layout": {
            "xaxis": {"title": {"text": "level"}, **axis},
            "yaxis": {"title": {"text": "frequency"}, **axis},
            "showlegend": False,
        },
    }


def _line(
    rows: Sequence[tuple[Any, ...]], column: int, name: str, color: str, dash: str = "solid", least: float | None = None
) -> dict[str, Any]:
    values = [row[column] for row in rows]
    if least is not None:
        values = [None if y is None else max(y, least) for y in values]
    return {
        "x": [row[0] for row in rows],
        "y": values,
        "name": name,
        "mode": "lines+markers" if len(rows) < 3 else "lines",
        "line": {"color": color, "dash": dash, "width": 2},
    }


def _last(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The last row of each first number."""
    return list({row[0]: row for row in rows}.values())


def _means(point: Point) -> tuple[float | None, ...]:
    totals = (point.payoff, point.single, point.contextual)
    return tuple(None if total is None else total / point.states for total in totals)
