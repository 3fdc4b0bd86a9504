"""From event appended to action appended, by the broker's own clock, under offered load; beside a bare aiokafka echo.

    python benchmarks/latency.py                 100, 1,000 and 10,000 events/s, 20 s each
    python benchmarks/latency.py --smoke --json

The broker stamps the records of both topics (LogAppendTime, whole milliseconds). One worker with all defaults, sessions
with the default schedule, so that solves count. The echo sends each record on as it is, on the same broker in the same
run. The first tenth of each load warms up and does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from _figure import options, show
from _servers import missing
from _speed.contenders import ours, peer
from _speed.lab import Lab
from _speed.machine import machine
from _speed.records import by_partition, forecasts, spec
from _speed.window import Ends, watched
from _topics import Item, create, fill, reader, whole
from _workers import Child
from aiokafka import AIOKafkaProducer, TopicPartition

PARTITIONS, SESSIONS = 4, 100
LOADS = (100, 1_000, 10_000)
WARM_EVENTS = 10_000
SHARES = (0.5, 0.99, 0.999)
TOGETHER = 1_000
"""Events that are appended at once, at most, when the pace was lost: a batch holds them."""
MOST_MS = {1_000: (5.0, 25.0)}
"""What is claimed of stream_agg, by load: the median, and the 99th percentile."""


async def offer(brokers: str, topic: str, records: Iterator[tuple[int, Item]], rate: float, events: int) -> float:
    """Append the events one by one at an even pace; how far, in seconds, it ever fell behind that."""
    behind, sent = 0.0, 0
    async with AIOKafkaProducer(bootstrap_servers=brokers, max_batch_size=1 << 20) as producer:
        start = time.perf_counter()
        while sent < events:
            now = time.perf_counter() - start
            due = min(events, int(now * rate) + 1)
            behind = max(behind, (due - sent - 1) / rate)
            due = min(due, sent + TOGETHER)
            batches = {}
            for _ in range(due - sent):
                k, (key, value) = next(records)
                batch = batches.setdefault(k % PARTITIONS, producer.create_batch())
                batch.append(key=key, value=value, timestamp=None)
            for partition, batch in batches.items():
                batch.close()
                await producer.send_batch(batch, topic, partition=partition)
            sent = due
            await asyncio.sleep(max(0.0, start + sent / rate - time.perf_counter()))
        await producer.flush()
    return behind


async def stamps(brokers: str, topic: str) -> dict[str, int]:
    """Event -> when the broker took the first record of it, in milliseconds."""
    found: dict[str, int] = {}
    async with reader(brokers) as consumer:
        async for record in whole(consumer, [TopicPartition(topic, p) for p in range(PARTITIONS)]):
            found.setdefault(orjson.loads(record.value)["event"], record.timestamp)
    return found


async def loads(lab: Lab, start: Any, inputs: str, plan: Mapping[int, int]) -> list[dict[str, Any]]:
    """A program under each load in turn (events/s -> how many): what it took, event by event."""
    source = f"forecasts-{inputs}"
    await create(lab.brokers, [source], PARTITIONS, message_timestamp_type="LogAppendTime")
    await fill(lab.brokers, source, by_partition(forecasts(WARM_EVENTS, SESSIONS), PARTITIONS))
    child, sink = await start(lab, inputs)
    try:
        return await _loads(lab, child, source, sink, plan)
    finally:
        child.kill()


async def _loads(lab: Lab, child: Child, source: str, sink: str, plan: Mapping[int, int]) -> list[dict[str, Any]]:
    parts, first = [], WARM_EVENTS
    async with reader(lab.brokers, "read_uncommitted") as consumer:
        done = Ends(consumer, sink, PARTITIONS)
        await watched(child, done, first)
        for rate, events in plan.items():
            cpu_s = child.cpu_s()
            behind = await offer(lab.brokers, source, forecasts(events, SESSIONS, first=first), rate, events)
            await watched(child, done, first + events)
            parts.append((rate, first + events // 10, first + events, behind, (child.cpu_s() - cpu_s) / events))
            first += events
    came, went = await stamps(lab.brokers, source), await stamps(lab.brokers, sink)
    rows = []
    for rate, start, end, behind, cpu_s in parts:
        took = np.array([went[f"e{n}"] - came[f"e{n}"] for n in range(start, end)], dtype=float)
        p50, p99, p999 = np.quantile(took, SHARES).tolist()
        row = {"rate": rate, "events": end - start, "p50_ms": p50, "p99_ms": p99, "p99.9_ms": p999}
        rows.append({**row, "mean_ms": float(took.mean()), "cpu_us": cpu_s * 1e6, "offered_late_s": behind})
    return rows


async def run(lab: Lab, plan: Mapping[int, int]) -> list[dict[str, Any]]:
    """The echo, then the worker."""
    rows = []
    for name, start in (("echo", peer("echo.py")), ("stream_agg", ours("at_least_once"))):
        inputs = lab.fresh()
        await create(lab.brokers, [f"{t}-{inputs}" for t in ("sessions", "states")], PARTITIONS)
        specs = by_partition(((k, spec(k, {"certified": 0.1})) for k in range(SESSIONS)), PARTITIONS)
        await fill(lab.brokers, f"sessions-{inputs}", specs)
        rows += [{"program": name, **row} for row in await loads(lab, start, inputs, plan)]
    return rows


def claims(rows: list[dict[str, Any]]) -> dict[str, bool]:
    """At the load that something is said of."""
    held = {}
    for row in rows:
        if row["program"] == "stream_agg" and row["rate"] in MOST_MS:
            p50, p99 = MOST_MS[row["rate"]]
            held[f"at {row['rate']:,} events/s the median is at most {p50:g} ms"] = row["p50_ms"] <= p50
            held[f"at {row['rate']:,} events/s the 99th percentile is at most {p99:g} ms"] = row["p99_ms"] <= p99
    return held


def draw(figure: Any, found: Mapping[str, Any]) -> None:
    """Percentiles by load."""
    axes = figure.add_subplot(title="event appended to action appended", xlabel="events/s offered", ylabel="ms")
    for name, style in (("echo", "--"), ("stream_agg", "-")):
        rows = [row for row in found["rows"] if row["program"] == name]
        for colour, key in zip(("C0", "C1", "C2"), ("p50_ms", "p99_ms", "p99.9_ms"), strict=True):
            label = f"{name} {key.removesuffix('_ms')}"
            axes.plot([r["rate"] for r in rows], [r[key] for r in rows], f"{colour}o{style}", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()


def main() -> int:
    """Parse, run, print."""
    parser = options(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load")
    args = parser.parse_args()
    if problem := missing():
        print(problem, file=sys.stderr)
        return 2
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    plan = {100: 200, 1_000: 2_000} if args.smoke else {rate: int(rate * args.seconds) for rate in LOADS}
    topics = {"message_timestamp_type": "LogAppendTime"}
    with tempfile.TemporaryDirectory(prefix="latency-") as home, Lab(Path(home), PARTITIONS, **topics) as lab:
        rows = asyncio.run(run(lab, plan))
    found = {
        "machine": machine(),
        "sessions": SESSIONS,
        "partitions": PARTITIONS,
        "seconds": args.seconds,
        "rows": rows,
        "claims": {} if args.smoke else claims(rows),
    }
    return show(args, found, {"milliseconds": rows}, draw)


if __name__ == "__main__":
    sys.exit(main())
