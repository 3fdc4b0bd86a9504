"""Records as the output topics hold them, made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from stream_agg.monitor.view import View

NOW_S = 1_800_000_000.0


class Records:
    """Makes records and gives them to a view of its own."""

    def __init__(self) -> None:
        self.view = View()

    def action(self, session: str = "rain", round_: int = 1, at_s: float = NOW_S, **changes: Any) -> None:
        """An action record."""
        record = {
            "session": session,
            "event": f"e{round_}",
            "time": "2026-11-21T06:00:00Z",
            "round": round_,
            "profile": {"gfs": 0.7},
            "action": "prepare",
            "strategy": {"stay": 0.25, "prepare": 0.75},
            "policy": "robust",
            "rule": {"version": 9, "round": 400, "gap": 0.0031},
            "states_seen": 118,
        } | changes
        self.view.take("action", session, record, at_s)

    def rule(self, session: str = "rain", at_s: float = NOW_S, **changes: Any) -> None:
        """A rule record."""
        levels = {str(k / 10): 0.0 for k in range(11)}
        record = {
            "version": 9,
            "round": 400,
            "duals": {"gfs": levels, "icon": levels},
            "value": 1.6,
            "upper_bound": 1.6031,
            "gap": 0.0031,
            "unsolved": None,
        } | changes
        self.view.take("rule", session, record, at_s)

    def regret(
        self,
        session: str = "rain",
        round_: int = 412,
        states: int = 118,
        at_s: float = NOW_S,
        levels: dict[str, dict[str, tuple[int, int]]] | None = None,
        robust: dict[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        """A regret record; `levels` are the known rounds of its calibration."""
        record = {
            "session": session,
            "time": "2026-11-21T06:00:00Z",
            "round": round_,
            "reason": "states",
            "robust": {"round": round_, "value": 1.642, "regret": 13.2, "bound": 95.0, "epsilon_min": 0.0}
            | (robust or {}),
            "realized": {
                "states": states,
                "payoff": 1.5 * states,
                "expected_payoff": 1.45 * states,
                "optimal_in_hindsight": 1.4 * states,
                "contextual": 1.75 * states,
            },
            "calibration": {
                name: {"error": 0.0, "worst_level": 0.7, "levels": rows} for name, rows in (levels or {}).items()
            },
            "open": 294,
            "oldest_open": "2026-11-19T06:00:00Z",
            "counts": {},
            "drift": None,
        } | changes
        self.view.take("regret", session, record, at_s)


@pytest.fixture
def records() -> Records:
    """A maker of records with an empty view."""
    return Records()
