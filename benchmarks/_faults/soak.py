"""Case 23: everything at once, for as long as it is told, on a broker and a Redis of its own."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path

from _servers import Kafka, Redis
from _workers import Worker

from _faults.bed import Bed, patiently
from _faults.check import check
from _faults.feed import feed
from _faults.held import Held
from _faults.lab import Lab
from _faults.proxy import Proxy
from stream_agg.embedded.servers import free_port


async def soak(lab: Lab) -> Held:
    """Kills, stops, cuts, lost answers and restarts of the servers; one worker that nobody kills tells of leaks."""
    side, seconds = free_port(), lab.size(25, 150, 3600)
    redis = await lab.own(Redis(lab.home / "redis-23", ("--appendonly", "yes", "--appendfsync", "always")))
    async with Proxy(side) as to_kafka, Proxy(redis.port, lose=b"EVALSHA", every=101) as to_redis:
        kafka = await lab.own(Kafka(lab.home / "kafka-23", side=(side, to_kafka.port)))
        async with lab.bed("soak", kafka=kafka, redis=redis, partitions=4, sessions=8, batch=200) as bed:
            await bed.open()
            through = {"brokers": f"127.0.0.1:{to_kafka.port}", "redis_url": f"redis://127.0.0.1:{to_redis.port}/0"}
            steady, other = bed.worker(through), bed.worker(through)
            feeding = asyncio.ensure_future(bed.send(feed(lab.seed, bed.sessions, 10**8), pause_s=0.01))
            did, sizes, deadline = Counter[str](), list[tuple[int, int]](), time.monotonic() + seconds
            while time.monotonic() < deadline:
                await asyncio.sleep(bed.rng.uniform(1, 6))
                what = bed.rng.choice(("kill", "stop", "kafka cut", "redis cut", "latency", "kafka kill", "redis kill"))
                other = await _do(what, bed, other, kafka, redis, to_kafka, to_redis, through)
                did[what] += 1
                if steady.process.poll() is not None:
                    did[f"the steady one ended with {steady.process.returncode}"] += 1
                    steady = bed.worker(through)
                sizes.append(_sizes(steady))
            for proxy in (to_kafka, to_redis):
                proxy.heal()
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            if other.process.poll() is not None:
                bed.worker(through)
            held = await check(bed, exactly_once=lab.exactly_once)
    half = len(sizes) // 2
    first, last = max(sizes[:half] or [(0, 0)]), max(sizes[half:] or [(0, 0)])
    descriptors = [max((s[1] for s in part), default=0) for part in (sizes[:half], sizes[half:])]
    if lab.big:
        held.claim("flat memory", last[0] <= first[0] * 1.3 + 30, f"{first[0]} MB, then {last[0]} MB")
        held.claim("flat descriptors", descriptors[1] <= descriptors[0] + 10, f"{descriptors}")
    held.figures |= {"seconds": seconds, "did": dict(did), "rss_mb": [first[0], last[0]], "descriptors": descriptors}
    return held


async def _do(
    what: str,
    bed: Bed,
    other: Worker,
    kafka: Kafka,
    redis: Redis,
    to_kafka: Proxy,
    to_redis: Proxy,
    through: dict[str, str],
) -> Worker:
    if what in ("kill", "stop"):
        other.send(signal.SIGKILL if what == "kill" else signal.SIGTERM)
        await other.ended(60)
    elif what.endswith("cut"):
        proxy = to_kafka if what.startswith("kafka") else to_redis
        proxy.cut()
        await asyncio.sleep(bed.rng.uniform(0.5, 3))
        proxy.heal()
    elif what == "latency":
        to_kafka.delay_s = to_redis.delay_s = 0.1
        await asyncio.sleep(2)
        to_kafka.heal()
        to_redis.heal()
    else:
        server: Kafka | Redis = kafka if what.startswith("kafka") else redis
        server.kill()
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        await patiently(bed.lag)
    return other if other.process.poll() is None else bed.worker(through)


def _sizes(worker: Worker) -> tuple[int, int]:
    """Resident memory in MB, open descriptors."""
    process = Path(f"/proc/{worker.process.pid}")
    pages = int((process / "statm").read_text().split()[1])
    return pages * 4096 >> 20, len(list((process / "fd").iterdir()))
