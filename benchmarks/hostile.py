"""A live feed with hostile records in between, and the same without: `python benchmarks/hostile.py`.

Twenty-odd kinds of records that nobody should send go to the three input topics, a hundred thousand of them by default,
between the forecasts of good sessions, as fast as the broker takes them. The actions of the good sessions must be the
same to the byte as in a run without; the worker must live, hold no more sessions than it may, and not grow. The
servers are embedded ones. The limits on dead letters are off: they would stop the worker, which is what they are for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from stream_agg.cli.local import WorkerProcess, servers
from stream_agg.replay.log import At, Log
from stream_agg.store.redis import RedisStore
from stream_agg.worker import kafka
from stream_agg.worker.broker import create_topics
from stream_agg.worker.settings import Settings

GOOD = ("oslo", "lima", "paris", "quito")
MOST, LARGEST = 40, 1 << 14
"""Sessions the partition may hold, bytes an event may have: small, so that the flood reaches both."""
SPEC = {
    "experts": {"a": {"levels": 11}, "b": {"levels": 5}},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
    "schedule": {"growth": 0.2},
}
Sent = tuple[str, bytes, bytes | None]
"""Topic by its role, key, value."""


def good(k: int) -> dict[str, Any]:
    """Forecast number k of the feed."""
    at = f"2026-01-01T{k // 3600 % 24:02d}:{k // 60 % 60:02d}:{k % 60:02d}Z"
    reports = {"a": k * 7 % 11 / 10, "b": k * 3 % 5 / 4}
    return {"session": GOOD[k % len(GOOD)], "event": f"e{k}", "time": at, "forecasts": reports}


def hostile(rng: random.Random, k: int) -> Sent:
    """Record number k of those that nobody should send. Its kind is k modulo the number of kinds."""
    name = GOOD[k % len(GOOD)]
    whole = {**good(0), "session": name, "event": f"x{k}"}
    deep = b"[" * 1000 + b"]" * 1000
    spec = {"session": f"flood{k}", **SPEC}
    other = f"flood{k}".encode()
    kinds: list[Sent] = [
        ("forecasts", other, b""),
        ("forecasts", name.encode(), b"null"),
        ("forecasts", b"\xff\xfe", rng.randbytes(200)),
        ("forecasts", name.encode(), json.dumps(whole).encode("utf-16")),
        ("forecasts", name.encode(), orjson.dumps(whole)[: rng.randrange(1, 80)]),
        ("forecasts", name.encode(), orjson.dumps(whole).replace(b'"time"', b'"time":NaN,"x"')),
        ("forecasts", name.encode(), orjson.dumps({**whole, "forecasts": "D"}).replace(b'"D"', deep)),
        ("states", name.encode(), orjson.dumps({**whole, "session": "D", "state": 1}).replace(b'"D"', deep)),
        ("forecasts", name.encode(), orjson.dumps({**whole, "event": "y" * LARGEST})),
        ("forecasts", name.encode(), orjson.dumps({**whole, "session": 7})),
        ("forecasts", name.encode(), orjson.dumps({**whole, "event": f"a\x1b[2J{k}"})),
        ("forecasts", name.encode(), orjson.dumps({**whole, "forecasts": {f"n{i}": 0.5 for i in range(500)}})),
        ("forecasts", name.encode(), orjson.dumps({**whole, "forecasts": {"a": 1e300}})),
        ("forecasts", name.encode(), orjson.dumps({**whole, "time": "9999-99-99T99:99:99Z"})),
        ("forecasts", other, orjson.dumps({**whole, "session": f"flood{k}"})),
        ("states", name.encode(), orjson.dumps({**whole, "state": 2})),
        ("states", other, orjson.dumps({**whole, "session": f"flood{k}", "payoff": 1e18})),
        ("sessions", other, orjson.dumps(spec)),
        ("sessions", other, orjson.dumps({**spec, "window": 1 << 60})),
        ("sessions", other, orjson.dumps({**spec, **{f"field{i}": i for i in range(300)}})),
        ("sessions", name.encode(), orjson.dumps({"session": name, **SPEC, "actions": {"steal": [9, 9]}})),
        ("sessions", b"\xff", orjson.dumps(spec)),
        ("sessions", other, b"\x80\x04\x95" + rng.randbytes(20)),
        ("sessions", other, None),
    ]
    return kinds[k % len(kinds)]


KINDS = 24


def records(goods: int, bads: int) -> Iterator[Sent]:
    """The whole feed, the hostile ones spread over it evenly."""
    rng, sent = random.Random(1), 0
    for k in range(goods):
        yield "forecasts", good(k)["session"].encode(), orjson.dumps(good(k))
        while sent * goods < bads * (k + 1):
            yield hostile(rng, sent)
            sent += 1


async def through(settings: Settings, goods: int, bads: int) -> float:
    """Send the feed and wait until it is applied; seconds."""
    started = time.monotonic()
    store = RedisStore(settings.redis_url, settings.app)
    producer = kafka.producer(settings, acks="all", linger_ms=5)
    await producer.start()
    ends: Counter[str] = Counter()
    try:
        for name in GOOD:
            await producer.send_and_wait(
                settings.topic_sessions, orjson.dumps({"session": name, **SPEC}), name.encode()
            )
        sending = []
        for role, key, value in records(goods, bads):
            sending.append(await producer.send(getattr(settings, f"topic_{role}"), value, key))
            if len(sending) == 5000:
                await _acknowledged(sending, ends)
        await _acknowledged(sending, ends)
        applied: Mapping[str, int] = {}
        while any(applied.get(topic, 0) < end for topic, end in ends.items()):
            await asyncio.sleep(0.1)
            applied = (await store.peek(0)).next_offsets
    finally:
        await producer.stop()
        await store.close()
    return time.monotonic() - started


async def _acknowledged(sending: list[Any], ends: Counter[str]) -> None:
    for delivery in await asyncio.gather(*sending):
        ends[delivery.topic] = max(ends[delivery.topic], delivery.offset + 1)
    sending.clear()


def published(settings: Settings) -> tuple[dict[tuple[str, str], bytes], Counter[str]]:
    """The actions of the good sessions by session and event, and the dead letters by reason."""
    actions: dict[tuple[str, str], bytes] = {}
    dead: Counter[str] = Counter()
    with Log(settings) as log:
        places = [At(settings.topic_actions, 0), At(settings.topic_dead_letters, 0)]
        spans = log.spans(places)
        log.open({at: span.first for at, span in spans.items()})
        for at in places:
            while rows := log.more(at, spans[at].end):
                for row in rows:
                    if at.topic == settings.topic_actions:
                        told = orjson.loads(row.value or b"")
                        if told["session"] in GOOD:
                            actions[told["session"], told["event"]] = row.value or b""
                    else:
                        dead[dict(row.headers)["reason"].decode()] += 1
    return actions, dead


def run(goods: int, bads: int) -> dict[str, Any]:
    """One run on servers of its own."""
    settings = replace(
        Settings(),
        partitions=1,
        max_sessions=MOST,
        max_event_bytes=LARGEST,
        dead_letter_run=0,
        dead_letter_ratio=0.0,
        http_port=0,
    )
    with servers(settings) as local, tempfile.TemporaryFile() as log:
        asyncio.run(create_topics(local))
        worker = WorkerProcess(local, log.fileno())
        try:
            asyncio.run(through(local, 50, 0))  # all that it ever loads is loaded
            before = memory_mb(worker.pid)
            seconds = asyncio.run(through(local, goods, bads))
            peak, starts = memory_mb(worker.pid), worker.starts
        finally:
            code = worker.stop()
        actions, dead = published(local)
        held = asyncio.run(_held(local))
    return {"actions": actions, "dead": dead, "seconds": seconds, "grown_mb": peak - before, "peak_mb": peak,
            "starts": starts, "code": code, "held": held}  # fmt: skip


async def _held(settings: Settings) -> int:
    store = RedisStore(settings.redis_url, settings.app)
    try:
        return len(await store.sessions(0))
    finally:
        await store.close()


def memory_mb(pid: int) -> float:
    """The most a process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hostile", type=int, default=100_000)
    parser.add_argument("--good", type=int, default=2000)
    asked = parser.parse_args()
    alone, mixed = run(asked.good, 0), run(asked.good, asked.hostile)
    told = {
        "good": asked.good,
        "hostile": asked.hostile,
        "kinds": KINDS,
        "same_actions": len(alone["actions"]) == asked.good and alone["actions"] == mixed["actions"],
        "worker_lived": (mixed["starts"], mixed["code"]) == (1, 0),
        "sessions_held": mixed["held"],
        "dead_letters": dict(mixed["dead"].most_common()),
        "seconds": round(mixed["seconds"], 1),
        "records_per_s": round((asked.good + asked.hostile) / mixed["seconds"]),
        "peak_mb": [round(alone["peak_mb"]), round(mixed["peak_mb"])],
        "grown_mb": [round(alone["grown_mb"], 1), round(mixed["grown_mb"], 1)],
    }
    print(json.dumps(told))
    return int(not (told["same_actions"] and told["worker_lived"] and mixed["held"] <= MOST))


if __name__ == "__main__":
    sys.exit(main())
