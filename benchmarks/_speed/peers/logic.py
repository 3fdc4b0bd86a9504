"""What each program does with an event: count it in its session, and decide by the prices of a rule that is given.

It is less than what stream_agg does, which also counts profiles, proves a gap, keeps the decision until its state is
known, and draws from a strategy.
"""

from __future__ import annotations

from typing import Any

ACTIONS = {"stay": (1.0, 0.0), "wait": (0.6, 1.5), "prepare": (0.0, 3.0)}
PRICES = [[(3 * i + j * 7) % 11 / 11 for i in range(11)] for j in range(64)]
"""For each expert and level."""


def decide(round_: int, value: dict[str, Any]) -> dict[str, Any]:
    """The action of an event that is its session's `round_`-th, with the fields of stream_agg's."""
    reports = value["forecasts"]
    levels = [round(report * 10) for report in reports.values()]
    price = sum(PRICES[j][i] for j, i in enumerate(levels)) / len(levels)
    action = max(ACTIONS, key=lambda name: ACTIONS[name][0] * (1 - price) + ACTIONS[name][1] * price)
    return {
        "session": value["session"],
        "event": value["event"],
        "time": value["time"],
        "round": round_,
        "profile": dict(zip(reports, (i / 10 for i in levels), strict=True)),
        "action": action,
        "strategy": {name: float(name == action) for name in ACTIONS},
        "policy": "robust",
        "rule": {"version": 1, "round": 1, "gap": 0.0},
        "states_seen": 0,
    }
