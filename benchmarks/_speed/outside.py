"""Workers on real servers: what an event costs with so many sessions, partitions and workers; a backlog; a file."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from _topics import create, fill, reader
from _workers import PACKAGES, Worker
from _worlds import latent

from _speed.lab import Lab
from _speed.records import EXPERTS, LEVELS, NEVER, by_partition, forecasts, names, spec
from _speed.window import Ends, Sample, watched, window
from stream_agg.embedded.servers import free_port
from stream_agg.events import format_time

FILES = {
    "robust": {"feedback": "none"},
    "robust, with outcomes": {"feedback": "state", "policy": "robust"},
    "hybrid, with outcomes": {"feedback": "state", "policy": "hybrid"},
}
"""What a file is replayed by, and what is added to the spec for that."""

ROUNDS_WARM = 3
"""Events of each session before what counts: its first solve, and its load, are behind it then."""


async def of_sessions(lab: Lab, sessions: int, warm: int, events: int) -> dict[str, Any]:
    """One worker on one core, the sessions in turn; microseconds an event after `warm` events, or three a session."""
    first = max(warm, ROUNDS_WARM * sessions)
    samples = await _run(lab, sessions, first + events)
    found = window(samples, first, first + events)
    at = next(s for s in samples if s.events >= first)
    return {
        "sessions": sessions,
        "cpu_us": found.cpu_us,
        "events_per_s": found.events_per_s,
        "rss_mb": at.rss_mb,
        "peak_mb": found.peak_mb,
    }


async def of_backlog(lab: Lab, sessions: int, events: int) -> dict[str, Any]:
    """A topic with so many records, from the first to the last: speed and memory on the way."""
    samples = await _run(lab, sessions, events)
    tenth = [next(s for s in samples if s.events >= events * k / 10) for k in range(1, 11)]
    start = next(s for s in samples if s.events)
    return {
        "events": events,
        "events_per_s": (tenth[-1].events - start.events) / (tenth[-1].time_s - start.time_s),
        "rss_mb": [s.rss_mb for s in tenth],
        "peak_mb": samples[-1].peak_mb,
        "at_s": [s.time_s - start.time_s for s in tenth],
        "cpu_us": [
            (b.cpu_s - a.cpu_s) / (b.events - a.events) * 1e6
            for a, b in zip([start, *tenth], tenth, strict=False)
            if b.events > a.events  # tenths that one look saw together
        ],
    }


async def _run(lab: Lab, sessions: int, events: int) -> list[Sample]:
    inputs = await _prepared(lab, sessions, events)
    lab.empty_redis()
    settings = await lab.settings(inputs)
    worker = Worker(settings, lab.home / f"{settings.app}.log", cores=lab.core)
    try:
        async with reader(lab.brokers, "read_uncommitted") as consumer:
            return await watched(worker, Ends(consumer, settings.topic_actions, lab.partitions), events)
    finally:
        worker.kill()


async def _prepared(lab: Lab, sessions: int, events: int) -> str:
    inputs = lab.fresh()
    await create(lab.brokers, [f"{t}-{inputs}" for t in ("sessions", "forecasts", "states")], lab.partitions)
    opened = by_partition(((k, spec(k, {"every": NEVER})) for k in range(sessions)), lab.partitions)
    await fill(lab.brokers, f"sessions-{inputs}", opened)
    for start in range(0, events, 200_000):  # not all of them in memory at once
        size = min(200_000, events - start)
        parts = by_partition(forecasts(size, sessions, first=start), lab.partitions)
        await fill(lab.brokers, f"forecasts-{inputs}", parts)
    return inputs


async def of_workers(lab: Lab, workers: int, sessions: int, warm: int, events: int) -> dict[str, Any]:
    """So many workers share the partitions of one topic: events/s in all, and microseconds an event in all of them."""
    inputs = await _prepared(lab, sessions, warm + events)
    lab.empty_redis()
    settings = await lab.settings(inputs)
    running = []
    try:
        for n in range(workers):
            mine = replace(settings, http_port=free_port())
            cores = [lab.every[-1 - n % len(lab.every)]]
            running.append(Worker(mine, lab.home / f"{settings.app}-{n}.log", cores=cores))
        async with reader(lab.brokers, "read_uncommitted") as consumer:
            done = Ends(consumer, settings.topic_actions, lab.partitions)
            await watched(running[0], done, warm)
            start, cpu_s = time.monotonic(), [w.cpu_s() for w in running]
            first = await done()
            await watched(running[0], done, warm + events)
            count = await done() - first
            wall_s = time.monotonic() - start
            used = [w.cpu_s() - before for w, before in zip(running, cpu_s, strict=True)]
    finally:
        for worker in running:
            worker.kill()
    return {
        "workers": workers,
        "partitions": lab.partitions,
        "events_per_s": count / wall_s,
        "cpu_us": sum(used) / count * 1e6,
        "shares": [s / sum(used) for s in used],
    }


def of_file(home: Path, rows: int, fields: dict[str, str]) -> dict[str, Any]:
    """`stream-agg replay` of a CSV: events/s from start to end, and without what it takes to start.

    `fields` are added to the spec; the file has outcomes if they are asked for.
    """
    few = _replayed(home, min(rows, 1000), fields)
    found = _replayed(home, rows, fields)
    start_s = few["wall_s"], few["cpu_s"]
    return {
        "rows": rows,
        **found,
        "events_per_s": rows / found["wall_s"],
        "events_per_cpu_s": rows / found["cpu_s"],
        "after_start_per_s": (rows - 1000) / (found["wall_s"] - start_s[0]) if rows > 1000 else None,
        "after_start_per_cpu_s": (rows - 1000) / (found["cpu_s"] - start_s[1]) if rows > 1000 else None,
        "cpu_us": (found["cpu_s"] - start_s[1]) / max(rows - 1000, 1) * 1e6,
    }


def _replayed(home: Path, rows: int, fields: dict[str, str]) -> dict[str, float]:
    home = home / f"{'-'.join(fields.values())}-{rows}"
    home.mkdir()
    source, told, out = home / "rows.csv", home / "spec.json", home / "out"
    told.write_bytes(orjson.dumps({**orjson.loads(spec(0, {"certified": 0.1})[1]), **fields}))
    with source.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["event_id", "time", "outcome", *names(EXPERTS)])
        writer.writerows(_rows(rows, fields["feedback"] != "none"))
    command = [sys.executable, "-P", "-m", "stream_agg", "replay", str(source), "--spec", str(told), "--out", str(out)]
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": PACKAGES})
    after, wall_s = os.times(), time.perf_counter() - start
    with (out / "actions.jsonl").open("rb") as file:
        written = sum(1 for _ in file)
    if written != rows:
        raise ValueError(f"{written} actions of {rows} rows")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return {"wall_s": wall_s, "cpu_s": cpu_s}


def _rows(count: int, known: bool) -> Iterator[list[Any]]:
    chance = np.random.default_rng(0)
    for n, profile in zip(range(count), latent(EXPERTS, LEVELS), strict=False):
        outcome = int(chance.random() < np.mean(profile) / (LEVELS - 1))
        yield [f"e{n}", format_time(n * 1_000_000), outcome if known else "", *(i / (LEVELS - 1) for i in profile)]
