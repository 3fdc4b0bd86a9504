"""The charts of a watched session, and the calibration of its experts. Pure."""

from __future__ import annotations

from stream_agg.monitor.view import Watched
from stream_agg.replay.charts import Chart, Row, expert, frequencies, payoff, regret

_ROWS = 50  # the latest of a curve's table: a table is read, not looked at, and is sent anew with every change


def charts(session: Watched) -> list[Chart]:
    """Regret and payoff over the rounds, then calibration by expert."""
    curves = [regret(session.points), payoff(session.points)]
    experts = [expert(i, name, rows) for i, (name, rows) in enumerate(calibration(session).items())]
    return [*({**curve, "rows": curve["rows"][-_ROWS:]} for curve in curves), *experts]


def calibration(session: Watched) -> dict[str, list[Row]]:
    """expert -> its rows, of the latest report."""
    found = session.report.calibration if session.report else {}
    return {name: frequencies(levels) for name, levels in sorted(found.items())}
