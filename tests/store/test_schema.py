"""What is stored under the schema's number: whoever changes it gives it another one, so that no version misreads it."""

from __future__ import annotations

from typing import Any

import orjson

from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec
from stream_agg.store.tables import SCHEMA

STORED = {
    1: {
        "spec": "actions epsilon experts feedback gamma half_life horizon missing off_level policy pool schedule seed "
        "session solve_limit_s state_deadline window",
        "counters": "closed counts delay_cost expected_payoff failed forecast_us payoff proven_round reported_states "
        "resolve round rule_version settled_round spec_version state_us states states_seen tried_round tried_us",
        "rule": "epsilon epsilon_min exact gamma prices rounds upper_bound value violation",
        "certificate": "excess lower mass payoff residual rounds",
        "robust": "bound epsilon_min exact gamma penalty regret round value value_penalty worst_case",
        "drift": "latest past",
        "pool": "curvature members pull states",
        "recalibrated": "prices tried",
        "events": "action mix note payoff profile round state states_known time_us",
        "parked": "number origin payoff state time_us",
    }
}


def names(text: bytes) -> str:
    found = orjson.loads(text)
    return " ".join(sorted(found)) if isinstance(found, dict) else type(found).__name__


def stored() -> dict[str, Any]:
    """The names of the fields of every JSON text that a session leaves, one decision and one parked state in it."""
    spec = {"session": "s", "experts": {"a": {"levels": 3}}, "actions": {"x": [0, 1], "y": [1, 0]}, "feedback": "state"}
    session = Session(SessionSpec.from_dict(spec))
    session.decide("e", {"a": 0.5}, "2026-01-01T00:00:00Z")
    session.learn("later", 1, "2026-01-01T00:00:00Z")
    tables = session.tables()
    fields = {**tables["state"], "events": tables["events"]["e"], "parked": tables["parked"]["later"]}
    return {name: names(text) for name, text in fields.items()}


def test_another_shape_has_another_number() -> None:
    assert stored() == STORED[SCHEMA]
