"""The charts of one session as plotly reads them, with the numbers for the table under each: the same on the report of
a replay and on the live page. Pure.

No text of users goes into `data` or `layout`: plotly reads markup in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from stream_agg.learn.calibration import wilson

Chart = dict[str, Any]
"""`id`, `title`, `note`, `head` and `rows` of the table, `data` and `layout` for plotly, `small` for one of many."""

T = TypeVar("T")

Row = tuple[float, int, float, float, float]
"""(level, known rounds, frequency of state 1, from, to): Wilson's 95 % interval."""

POINTS = 200
"""Points of a chart at most: more cannot be told apart on half a screen."""

_NOISE = 0.05  # the first twentieth of the events is not drawn: means of a few would set the scale


@dataclass(frozen=True, slots=True)
class Point:
    """What a report adds to the charts. Sums, as in the record; None where the record has none."""

    time: str
    round: int
    robust_round: int
    """The round that the robust numbers are of: the last solve's, not that of later states."""
    regret: float
    bound: float | None
    states: int
    payoff: float
    expected_payoff: float | None
    single: float | None
    contextual: float | None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Point:
        """Of a regret record; fields that older workers did not write may be missing. `KeyError`, `TypeError` or
        `ValueError` where it has no such shape."""
        robust, real = record["robust"], record["realized"]
        return cls(
            time=str(record["time"]),
            round=count(record["round"]),
            robust_round=count(robust.get("round", record["round"])),
            regret=float(robust["regret"]),
            bound=number(robust["bound"]),
            states=count(real["states"]),
            payoff=float(real["payoff"]),
            expected_payoff=number(real.get("expected_payoff")),
            single=number(real["optimal_in_hindsight"]),
            contextual=number(real["contextual"]),
        )


def number(value: Any) -> float | None:
    """A number of a record, or its null."""
    return None if value is None else float(value)


def count(value: Any) -> int:
    """A count of a record; `ValueError` where it is none."""
    found = int(value)
    if not 0 <= found < 2**53:  # what JSON holds exactly
        raise ValueError(f"{value!r} is no count")
    return found


def regret(points: Sequence[Point]) -> Chart:
    """Running robust regret and its bound."""
    rows = series(points, lambda p: (p.robust_round, p.time, p.regret, p.bound))
    # Regret may be 0 or a little below, which no logarithm shows: it is drawn at 1 at least.
    curves = [line(rows, 2, "Robust regret", "--one", least=1.0)]
    if any(row[3] is not None for row in rows):  # learners have none
        curves.append(line(rows, 3, "Theorem's bound", "--quiet", "dash", least=1.0))
    return {
        "id": "regret",
        "title": "Running robust regret",
        "note": "How far the play falls behind the best robust rule, summed over the rounds, and what the theorem "
        "allows. The scale is logarithmic above 1.",
        "head": ["Round", "Event time", "Regret", "Bound"],
        "rows": rows,
        "data": curves,
        "layout": {
            "xaxis": {"title": {"text": "rounds"}},
            "yaxis": {"title": {"text": "sum"}, "type": "log", "dtick": 1},
        },
    }


def payoff(points: Sequence[Point]) -> Chart:
    """Realised payoff per event, beside what hindsight would have earned."""
    rows = series(points, lambda p: (p.states, p.time, *_means(p)))
    settled = [row for row in rows if row[0] >= rows[-1][0] * _NOISE]
    return {
        "id": "payoff",
        "title": "Realised payoff per event, against the benchmarks",
        "note": "Means over the events whose state is known. The two benchmarks were chosen with hindsight: the best "
        "map from one expert's reports to actions, and the best map from whole profiles.",
        "head": ["States seen", "Event time", "Payoff", "Best single expert", "Best map of profiles"],
        "rows": rows,
        "data": [
            line(settled, 2, "Payoff", "--one"),
            line(settled, 3, "Best single expert", "--two", "dash"),
            line(settled, 4, "Best map of profiles", "--three", "dot"),
        ],
        "layout": {"xaxis": {"title": {"text": "states seen"}}, "yaxis": {"title": {"text": "payoff per event"}}},
    }


def frequencies(levels: Mapping[float, tuple[int, int]]) -> list[Row]:
    """Rows of an expert: level -> known rounds with state 0 and 1; without the levels of which none is known."""
    return [
        (level, zeros + ones, ones / (zeros + ones), *wilson(zeros, ones))
        for level, (zeros, ones) in levels.items()
        if zeros + ones
    ]


def expert(index: int, name: str, rows: Sequence[Row]) -> Chart:
    """How calibrated an expert was, level by level."""
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


def series(points: Sequence[Any], row: Callable[[Any], tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows that begin with a count: the last of each but 0, thinned to `POINTS` with both ends kept."""
    rows = list({found[0]: found for found in map(row, points) if found[0]}.values())
    while len(rows) > POINTS:
        rows = thinned(rows)
    return rows


def thinned(rows: list[T]) -> list[T]:
    """Every second one, counted from the last; and the first."""
    kept = rows[::-1][::2][::-1]
    return kept if kept[0] is rows[0] else [rows[0], *kept]


def line(
    rows: Sequence[tuple[Any, ...]], column: int, name: str, color: str, dash: str = "solid", least: float | None = None
) -> dict[str, Any]:
    """A curve of one column over the first; drawn at `least` at least."""
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


def _means(point: Point) -> tuple[float | None, ...]:
    totals = (point.payoff, point.single, point.contextual)
    return tuple(total / point.states if total is not None and point.states else None for total in totals)
