"""What is sent when speed is measured: sessions of few experts, and their forecasts as the bytes of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
from _topics import Item
from _worlds import ACTIONS, latent

from stream_agg.events import format_time

EXPERTS, LEVELS = 3, 11
NEVER = 10**9
"""Events between solves where what is measured is not the solver."""


def session(k: int) -> str:
    """The name of session k."""
    return f"session-{k}"


def spec(k: int, schedule: dict[str, float]) -> Item:
    """The record that opens session k."""
    value = {
        "session": session(k),
        "experts": {name: {"levels": LEVELS} for name in names(EXPERTS)},
        "actions": ACTIONS,
        "schedule": schedule,
        "seed": k,
    }
    return session(k).encode(), orjson.dumps(value)


def names(experts: int) -> list[str]:
    """Of the experts."""
    return [f"expert {i}" for i in range(1, experts + 1)]


def forecasts(events: int, sessions: int, *, first: int = 0, seed: int = 0) -> Iterator[tuple[int, Item]]:
    """The session and the record of each of so many events, the sessions in turn; events are numbered from `first`."""
    profiles, experts = latent(EXPERTS, LEVELS, seed=seed), names(EXPERTS)
    for n in range(first, first + events):
        k = n % sessions
        reports = dict(zip(experts, (round(i / (LEVELS - 1), 3) for i in next(profiles)), strict=True))
        value = {"session": session(k), "event": f"e{n}", "time": format_time(n * 1_000_000), "forecasts": reports}
        yield k, (session(k).encode(), orjson.dumps(value))


def by_partition(records: Iterator[tuple[int, Item]], partitions: int) -> list[list[Item]]:
    """The records of each partition: session k goes to partition k modulo their number."""
    lists: list[list[Item]] = [[] for _ in range(partitions)]
    for k, item in records:
        lists[k % partitions].append(item)
    return lists


def prices(experts: int) -> list[dict[float, float]]:
    """A rule that does not change, for programs that only apply one: a price for each expert and level."""
    random = np.random.default_rng(0)
    return [{round(i / (LEVELS - 1), 3): float(p) for i, p in enumerate(random.random(LEVELS))} for _ in range(experts)]


def example() -> dict[str, Any]:
    """One forecast, as decoded."""
    _, (_, value) = next(forecasts(1, 1))
    decoded: dict[str, Any] = orjson.loads(value)
    return decoded
