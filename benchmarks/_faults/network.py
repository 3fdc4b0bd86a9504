"""Cuts, delays and lost answers on the way to Kafka and Redis; servers that die (cases 5 to 9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from pathlib import Path

from _servers import Kafka, Redis
from _workers import Worker, until
from redis import Redis as Client

from _faults.bed import Bed, patiently
from _faults.check import check
from _faults.feed import feed
from _faults.held import Held
from _faults.lab import Lab
from _faults.proxy import Proxy
from stream_agg.embedded.servers import free_port


async def broken_ways(bed: Bed, proxy: Proxy, tries: int) -> Counter[str]:
    """One fault after another while records come in; what was done."""
    did = Counter[str]()
    for _ in range(tries):
        what = bed.rng.choice(("reset", "cut", "silence", "latency"))
        did[what] += 1
        if what == "reset":
            proxy.reset()
        elif what == "cut":
            proxy.cut()
        elif what == "silence":
            proxy.silence()
        else:
            proxy.delay_s = 0.2
        await asyncio.sleep(bed.rng.uniform(0.5, 3.0))
        proxy.heal()
        await asyncio.sleep(bed.rng.uniform(0.2, 1.0))
    return did


async def kafka_cut(lab: Lab) -> Held:
    """The network between worker and Kafka: cut, slow, silent, reset."""
    side = free_port()
    async with Proxy(side) as proxy:
        kafka = await lab.own(Kafka(lab.home / "kafka-5", side=(side, proxy.port)))
        async with lab.bed("kafka-cut", kafka=kafka, batch=50) as bed:
            await bed.open()
            worker = bed.worker({"brokers": f"127.0.0.1:{proxy.port}"})
            await until(lambda: worker.said("is ours"), "the worker to own")
            feeding = asyncio.ensure_future(bed.send(feed(lab.seed, bed.sessions, 10**6), pause_s=0.005))
            bed.figures["cuts"] = dict(await broken_ways(bed, proxy, lab.size(4, 20)))
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await _kept(bed, {"brokers": f"127.0.0.1:{proxy.port}"})
            return await check(bed, exactly_once=lab.exactly_once)


async def redis_cut(lab: Lab) -> Held:
    """The network between worker and Redis, and answers lost after the commit was applied."""
    home = lab.home / "redis-6"
    redis = await lab.own(Redis(home))
    async with (
        Proxy(redis.port, lose=b"EVALSHA", every=7) as proxy,
        lab.bed("redis-cut", redis=redis, batch=20, redis_timeout_s=2.0) as bed,
    ):
        await bed.open()
        worker = bed.worker({"redis_url": f"redis://127.0.0.1:{proxy.port}/0"})
        await until(lambda: worker.said("is ours"), "the worker to own")
        feeding = asyncio.ensure_future(bed.send(feed(lab.seed, bed.sessions, 10**6), pause_s=0.005))
        bed.figures["cuts"] = dict(await broken_ways(bed, proxy, lab.size(4, 20)))
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        held = await check(bed, exactly_once=lab.exactly_once)
    held.claim("one worker all along", len(bed.workers) == 1, "it had to be started again")
    held.claim("answers were lost", proxy.lost > 0, "none was")
    held.figures["answers_lost"] = proxy.lost
    return held


async def _kept(bed: Bed, changes: dict[str, str] | None = None) -> Worker:
    """The last worker, started again if it has ended, as a supervisor would."""
    worker = bed.workers[-1]
    return worker if worker.process.poll() is None else bed.worker(changes)


async def kafka_killed(lab: Lab) -> Held:
    """The broker dies by SIGKILL and comes back, under load."""
    kafka = await lab.own(Kafka(lab.home / "kafka-7"))
    async with lab.bed("kafka-kill", kafka=kafka, batch=50) as bed:
        await bed.open()
        worker = bed.worker()
        await until(lambda: worker.said("is ours"), "the worker to own")
        feeding = asyncio.ensure_future(bed.send(feed(lab.seed, bed.sessions, lab.size(1500, 6000)), pause_s=0.005))
        kills, restarts = lab.size(1, 4), 0
        for _ in range(kills):
            await asyncio.sleep(2.0)
            kafka.kill()
            await asyncio.to_thread(kafka.stop)
            await asyncio.to_thread(kafka.start)
            await patiently(bed.lag)
            restarts += worker.process.poll() is not None
            worker = await _kept(bed)
        await feeding
        worker = await _kept(bed)
        held = await check(bed, exactly_once=lab.exactly_once)
    held.figures |= {"broker_kills": kills, "workers_that_ended": restarts}
    return held


async def redis_killed(lab: Lab) -> Held:
    """Redis dies by SIGKILL: nothing lost with `always`; with `everysec` what was not synced is cut off the file, as a
    power cut would; with no file at all it comes back empty, and the worker refuses until told to rebuild."""
    every = Held()
    for sync in ("always", "everysec", "no"):
        options = ("--appendonly", "no") if sync == "no" else ("--appendonly", "yes", "--appendfsync", sync)
        home = lab.home / f"redis-8-{sync}"
        redis = await lab.own(Redis(home, options))
        async with lab.bed(f"redis-{sync}", redis=redis, batch=20) as bed:
            await bed.open()
            records = feed(lab.seed, bed.sessions, 10**6)
            worker = bed.worker()
            await bed.send(islice(records, lab.size(500, 3000)))
            await bed.settle()
            before = _tail_size(home)
            await bed.send(islice(records, 300))
            await bed.settle()
            redis.kill()
            await asyncio.to_thread(redis.stop)
            if sync == "everysec":
                _cut_tail(home, before)
            await asyncio.to_thread(redis.start)
            await bed.send(islice(records, 300))
            if sync == "no":
                refusal = await _refused(bed, worker, "--rebuild")
                every.claim("refused with the remedy", bool(refusal), "an empty Redis was not refused")
                bed.worker({"rebuild": True})
            elif sync == "everysec":
                await until(lambda w=worker: w.process.poll() is not None, "the worker to see it")  # type: ignore[misc]
                every.claim("said", worker.said("went back in time"), f"no word of it: {worker.text()[-300:]}")
                heir = bed.worker()
                await until(lambda h=heir: h.said("applied again"), "the heir to go back")  # type: ignore[misc]
            held = await check(bed, rewound=sync != "always", exactly_once=lab.exactly_once and sync == "always")
        _merge(every, held, sync)
    return every


async def failover(lab: Lab) -> Held:
    """A replica that was behind becomes the primary."""
    old = await lab.own(Redis(lab.home / "redis-9a"))
    new = await lab.own(Redis(lab.home / "redis-9b"))
    async with (
        Proxy(old.port) as proxy,
        lab.bed("failover", redis=old, batch=20) as bed,
    ):
        await bed.open()
        through = {"redis_url": f"redis://127.0.0.1:{proxy.port}/0"}
        records = feed(lab.seed, bed.sessions, 10**6)
        worker = bed.worker(through)
        await bed.send(islice(records, lab.size(500, 3000)))
        await bed.settle()
        replica = _client(new)
        replica.replicaof("127.0.0.1", str(old.port))
        await until(lambda: replica.info("replication").get("master_link_status") == "up", "the replica to follow")
        await until(lambda: replica.dbsize() == bed.redis.dbsize(), "the replica to have it all")
        replica.replicaof("NO", "ONE")  # it misses what follows
        await bed.send(islice(records, 400))
        await bed.settle()
        old.kill()
        proxy.target, bed.redis = new.port, replica
        proxy.reset()
        await bed.send(islice(records, 300))
        await until(lambda: worker.process.poll() is not None, "the worker to see it")
        said = worker.said("went back in time")
        heir = bed.worker(through)
        await until(lambda: heir.said("applied again"), "the heir to go back")
        held = await check(bed, rewound=True)
    held.claim("said", said, f"no word of it: {worker.text()[-300:]}")
    return held


async def _refused(bed: Bed, worker: Worker, word: str) -> str:
    """Wait until that worker has ended; the last line of the next one, which must refuse and name the remedy."""
    await until(lambda: worker.process.poll() is not None, "the worker to stop")
    heir = bed.worker()
    code = await heir.ended()
    line = heir.text().strip().splitlines()[-1]
    return line if code == 1 and word in line and "Traceback" not in heir.text() else ""


def _client(redis: Redis) -> Client:
    return Client.from_url(redis.url, decode_responses=True)


def _files(home: Path) -> list[Path]:
    return sorted(home.glob("appendonlydir/*.incr.aof"))


def _tail_size(home: Path) -> int:
    return sum(file.stat().st_size for file in _files(home)[-1:])


def _cut_tail(home: Path, size: int) -> None:
    with _files(home)[-1].open("r+b") as file:
        file.truncate(size)


def _merge(every: Held, held: Held, name: str) -> None:
    for invariant, found in held.invariants.items():
        every.invariants.setdefault(invariant, []).extend(f"{name}: {text}" for text in found)
    every.figures[name] = {
        k: v for k, v in held.figures.items() if k in ("records", "actions", "repeats", "told_otherwise")
    }
