"""What is sent: sessions, their forecasts and states, seeded, with all that goes wrong on the way. No server here."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any

Record = tuple[str, str, bytes]
"""Topic ("forecasts" or "states"), session, value."""

START = datetime(2026, 1, 1, tzinfo=UTC)
DEADLINE_DAYS = 5
POLICIES = ("robust", "hybrid", "hedge")


def specs(seed: int, count: int, policies: Sequence[str] = POLICIES) -> dict[str, dict[str, Any]]:
    """Session -> spec, the policies in turn. Rules are solved seldom: a worker's time is to go into what is tried."""
    return {
        f"s{k}": {
            "session": f"s{k}",
            "experts": {"north": {"levels": 5}, "south": {"levels": 5}, "sea": {"levels": 3}},
            "actions": {"stay": [1.0, 0.0], "go": [0.0, 2.0], "wait": [0.4, 0.7]},
            "feedback": "state",
            "policy": policies[k % len(policies)],
            "gamma": 4.0,
            "schedule": {"growth": 0.2},
            "seed": seed + k,
            "state_deadline": f"P{DEADLINE_DAYS}D",
        }
        for k in range(count)
    }


def feed(seed: int, sessions: int, events: int, *, mishaps: float = 1.0, minutes: int = 10) -> Iterator[Record]:
    """`events` events in order of time, their states 1 to 4 days later; of all, shares of `mishaps` times a few
    per cent are sent twice, out of order, contradicted, too late, early, never known, or no event at all."""
    rng = random.Random(seed)
    step, waiting = timedelta(minutes=minutes), list[tuple[datetime, int, Record]]()
    for k in range(events):
        now = START + step * (k // sessions)
        while waiting and waiting[0][0] <= now:
            yield heappop(waiting)[2]
        name, p = f"s{rng.randrange(sessions)}", rng.random()
        event, outcome = f"e{k}", int(rng.random() < p)
        reports = {x: _near(rng, p) for x in ("north", "south", "sea") if rng.random() > 0.03}
        record = _forecast(name, event, now + step * rng.randint(-3, 3), reports)
        state = _state(name, event, now + timedelta(days=rng.randint(1, 4)), outcome)
        fate = rng.random() / mishaps if mishaps else 1.0
        if fate < 0.01:  # never known
            yield record
            continue
        if fate < 0.03:  # early
            yield state
            state = None
        yield record
        if rng.random() < 0.01 * mishaps:
            yield record
        if state is None:
            continue
        after = now + step * rng.randint(0, 40) if rng.random() < 0.5 else now + timedelta(days=1)
        if 0.03 < fate < 0.04:
            state = _state(name, event, now + timedelta(days=DEADLINE_DAYS + 1), outcome)  # late
        heappush(waiting, (after, k, state))
        if 0.04 < fate < 0.06:
            heappush(waiting, (after + step, k, _state(name, event, now + timedelta(days=1), 1 - outcome)))
        if 0.06 < fate < 0.07:
            heappush(waiting, (after + step, k, state))
        if 0.07 < fate < 0.08:
            yield rng.choice(_broken(name, event))
        if 0.08 < fate < 0.09:  # its forecast never comes
            yield _state(name, f"ghost{k}", now, outcome)
    yield from (due[2] for due in sorted(waiting))


def _near(rng: random.Random, p: float) -> float | None:
    return round(min(max(rng.gauss(p, 0.2), 0.0), 1.0), 3)


def _forecast(session: str, event: str, time: datetime, reports: dict[str, Any]) -> Record:
    value = {"session": session, "event": event, "time": _text(time), "forecasts": reports}
    return "forecasts", session, json.dumps(value).encode()


def _state(session: str, event: str, time: datetime, state: int) -> Record:
    value = {"session": session, "event": event, "time": _text(time), "state": state}
    return "states", session, json.dumps(value).encode()


def _broken(name: str, event: str) -> list[Record]:
    time = _text(START)
    whole: dict[str, Any] = {"session": name, "event": f"broken-{event}", "time": time, "forecasts": {"north": 0.5}}
    return [
        ("forecasts", name, b"{no json"),
        ("forecasts", name, b'{"session": "\xff"}'),
        ("forecasts", name, json.dumps(whole | {"forecasts": {"north": 1.5}}).encode()),
        ("forecasts", name, json.dumps(whole | {"forecasts": {"west": 0.5}}).encode()),
        ("forecasts", name, json.dumps(whole | {"session": "nobody"}).encode()),
        ("states", name, json.dumps(whole | {"state": 2}).encode()),
    ]


def _text(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
