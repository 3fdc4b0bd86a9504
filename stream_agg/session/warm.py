"""What the first events of a process would otherwise wait for."""

from __future__ import annotations

from stream_agg.session import drift
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec

LITTLE = {
    "session": "warm-up",
    "experts": {"one": {"levels": [0.25, 0.75]}, "two": {"levels": [0.25, 0.75]}},
    "actions": {"stay": [1, 0], "go": [0, 1]},
}


def warm_up() -> None:
    """Load compiled code and slow imports, a second; where an installation starts for the first time, compile, which
    takes about a minute and is kept in the package's `__pycache__` (or where NUMBA_CACHE_DIR says)."""
    drift.warm_up()
    for schedule in ({"certified": 0.1}, {"every": 1}):
        session = Session(SessionSpec.from_dict({**LITTLE, "feedback": "state", "schedule": schedule}))
        for event, reports in enumerate([(0.25, 0.75), (0.75, 0.25), (0.75, 0.75), (0.25, 0.25), (0.25, 0.25)]):
            session.decide(str(event), dict(zip(LITTLE["experts"], reports, strict=True)), "1970-01-01T00:00:00Z")
            session.learn(str(event), 0, "1970-01-01T00:00:00Z")
