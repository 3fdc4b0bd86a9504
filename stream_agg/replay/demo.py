"""The generated feed, at a living pace, through a deployment: what a newcomer watches. Prints nothing itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import orjson

from stream_agg.events import parse_time
from stream_agg.replay.tap import Tap
from stream_agg.replay.world import world
from stream_agg.session.engine import Session
from stream_agg.worker.settings import Settings

START_US = parse_time("2026-01-01T00:00:00Z")
SESSIONS = 3
EVENTS_PER_S = 60
"""Of all sessions together: fast enough that rules and regret visibly settle within half a minute."""
TICK_S = 0.1


@dataclass
class Seen:
    """What has come out so far."""

    started: float = field(default_factory=time.monotonic)
    first_action_s: float | None = None
    actions: dict[str, int] = field(default_factory=dict)
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    reports: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    dead_letters: int = 0
    calibration: dict[str, dict[str, list[tuple[float, int, int]]]] = field(default_factory=dict)
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def closed(self) -> bool:
        """Whether every session has given its final report."""
        return len(self.reports) == SESSIONS and all(r[-1]["reason"] == "close" for r in self.reports.values())


async def run(settings: Settings, seen: Seen, stop: asyncio.Event, tell: Callable[[Seen], None]) -> None:
    """Feed the generated world until `stop`, then close the sessions and wait for their final reports.

    `tell` is called ten times a second. Needs a worker on the same settings.
    """

    def take(topic: str, key: str, value: bytes, headers: dict[str, str]) -> None:
        if topic == settings.topic_actions:
            if seen.first_action_s is None:
                seen.first_action_s = time.monotonic() - seen.started
            seen.actions[key] = seen.actions.get(key, 0) + 1
            seen.latest[key] = orjson.loads(value)
        elif topic == settings.topic_regret:
            seen.reports.setdefault(key, []).append(orjson.loads(value))
        else:
            seen.dead_letters += 1

    topics = {
        "sessions": settings.topic_sessions,
        "forecasts": settings.topic_forecasts,
        "states": settings.topic_states,
    }
    async with Tap(settings, take) as tap:
        feed, at = world(7, SESSIONS, START_US), {}
        for _, session, spec in islice(feed, SESSIONS):
            seen.specs[session] = spec
            at[session] = await tap.send(topics["sessions"], session, spec)
        while not stop.is_set():
            sent = 0
            while sent < EVENTS_PER_S * TICK_S:
                kind, session, record = next(feed)
                await tap.send_soon(topics[kind], session, record)
                sent += kind == "forecasts"
            tell(seen)
            try:
                await asyncio.wait_for(stop.wait(), TICK_S)
            except TimeoutError:
                continue
        await tap.flush()
        for session, partition in at.items():
            await tap.until_drained([topics["forecasts"], topics["states"]], partition, lambda: tell(seen))
            tables = await tap.load(partition, session)
            if tables is not None:
                seen.calibration[session] = Session.from_tables(tables).calibration()
            await tap.send(topics["sessions"], session, None)
        await tap.until(seen.closed, "waiting for the final reports")
