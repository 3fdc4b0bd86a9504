"""Inputs that are repeated, poisoned, aborted, slow or too many, and clocks that jump (cases 12 to 17, 19, 20)."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from _workers import Worker, until
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from _faults.bed import Bed
from _faults.check import check
from _faults.feed import Record, feed, specs
from _faults.held import Held
from _faults.lab import Lab

_FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


async def twice(lab: Lab) -> Held:
    """Every record sent twice."""
    async with lab.bed("twice") as bed:
        await bed.open()
        bed.worker()
        records = feed(lab.seed, bed.sessions, lab.size(500, 5000))
        await bed.send(record for record in records for _ in (0, 1))
        held = await check(bed, exactly_once=lab.exactly_once)
        applied = held.figures["kinds"]["applied"]
        held.claim("I1", applied <= lab.size(500, 5000), f"{applied} applied of half as many events")
        return held


async def untimely(lab: Lab) -> Held:
    """States early, late, never, out of order, contradicting, five times as often as usual."""
    async with lab.bed("untimely") as bed:
        await bed.open()
        bed.worker()
        await bed.send(feed(lab.seed, bed.sessions, lab.size(1000, 20_000), mishaps=5.0, minutes=60))
        held = await check(bed, exactly_once=lab.exactly_once)
        kinds = held.figures["kinds"]
        missed = [kind for kind in ("duplicate", "late", "conflict", "unknown", "parked") if not kinds.get(kind)]
        held.claim("every kind came", not missed, f"none of: {missed}")
        return held


def poison(rng: random.Random, session: str, k: int) -> Record:
    """A record that is none."""
    time_ = "2026-01-01T00:00:00Z"
    whole = {"session": session, "event": f"p{k}", "time": time_, "forecasts": {"north": 0.5}}
    deep = "[" * 100_000
    values = [
        b"",
        b"null",
        b"{",
        b"\xff\xfe\x00",
        json.dumps(whole).encode("utf-16"),
        json.dumps(whole).replace("0.5", "NaN").encode(),
        json.dumps(whole).replace("0.5", "1e308").encode(),
        json.dumps(whole).replace("0.5", "1e400").encode(),
        json.dumps(whole | {"forecasts": {"north": -1e308}}).encode(),
        json.dumps(whole).replace("0.5", deep).encode(),
        (deep + "]" * 100_000).encode(),
        json.dumps(whole | {"session": 7}).encode(),
        json.dumps(whole | {"event": ["e"]}).encode(),
        json.dumps(whole | {"event": "x" * 100_000}).encode(),
        json.dumps(whole | {"event": ""}).encode(),
        json.dumps(whole | {"time": "yesterday"}).encode(),
        json.dumps(whole | {"time": 0}).encode(),
        json.dumps(whole | {"forecasts": []}).encode(),
        json.dumps(whole | {"forecasts": {"north": "0.5"}}).encode(),
        json.dumps(whole | {"forecasts": {"north": True}}).encode(),
        json.dumps(whole | {"forecasts": {"nobody": 0.5}}).encode(),
        json.dumps(whole | {"session": "no-such"}).encode(),
        rng.randbytes(rng.randint(1, 2000)),
    ]
    value = values[k % len(values)]
    if k % 5 == 0:  # and damage to it
        value = bytearray(value)
        for _ in range(3):
            if value:
                value[rng.randrange(len(value))] = rng.randrange(128, 256)
        value = b"\xff" + bytes(value)  # no UTF-8 in any case
    return ("forecasts" if rng.random() < 0.7 else "states"), session, value


async def poisoned(lab: Lab) -> Held:
    """Poison among good records, one of 10 MB."""
    rng = random.Random(lab.seed)
    async with lab.bed("poison") as bed:
        await bed.open()
        worker = bed.worker()
        most = lab.size(100, 1500)
        sent = 0
        for k, record in enumerate(feed(lab.seed, bed.sessions, most)):
            await bed.send([record])
            if k % 2:
                bad = poison(rng, f"s{k % bed.sessions}", sent)
                await bed.send([bad])
                sent += 1
        await bed.send([("forecasts", "s0", b"x" * (10 << 20)), ("states", "s1", b'{"event": "' + b"y" * (10 << 20))])
        held = await check(bed, exactly_once=lab.exactly_once)
        held.claim("the worker lives on", worker.process.returncode == 0, f"it ended with {worker.process.returncode}")
        held.figures["poisoned"] = sent + 2
        return held


async def aborted(lab: Lab) -> Held:
    """Inputs from a transactional producer, every third transaction aborted; a compacted sessions topic."""
    async with lab.bed("aborted") as bed:
        await bed.open()
        worker = bed.worker()
        await until(lambda: worker.said("is ours"), "the worker to own")
        producer = AIOKafkaProducer(bootstrap_servers=bed.brokers, transactional_id=f"in-{bed.settings.app}")
        await producer.start()
        records, left_out = feed(lab.seed, bed.sessions, 10**6), 0
        for k in range(lab.size(12, 100)):
            await producer.begin_transaction()
            sending = []
            for topic, session, value in islice(records, 20):
                future = await producer.send(bed.topic(topic), value, key=session.encode())
                sending.append((topic, value, future))
            if k % 3 == 1:
                await producer.abort_transaction()
                left_out += len(sending)
            else:
                await producer.commit_transaction()
                await bed._acked(sending)
        for k in range(lab.size(20, 60)):  # specs that only change what may change, so that old ones are compacted
            name = f"s{k % bed.sessions}"
            value = json.dumps(bed.specs[name] | {"solve_limit_s": 10.0}).encode()
            await bed.producer.send_and_wait(bed.topic("sessions"), value, key=name.encode())
        await producer.stop()
        held = await check(bed, exactly_once=lab.exactly_once)
        held.figures["aborted_records"] = left_out
        return held


async def slow_head(lab: Lab) -> Held:
    """The head of a partition is not done yet when what follows has been fetched; then the worker dies."""
    tries, held = lab.size(2, 8), Held()
    async with lab.bed("head", batch=1) as bed:
        await bed.open()
        records = feed(lab.seed, bed.sessions, 10**6)
        for _ in range(tries):
            worker = bed.worker(STREAM_AGG_FAIL_AT=f"before_commit:{bed.rng.randint(5, 40)}:stop")
            await bed.send(islice(records, 150))
            await until(lambda w=worker: w.state() == "T", "the worker to stop at the head")  # type: ignore[misc]
            await asyncio.sleep(1.5)  # the consumer's own thread is stopped, too: nothing can be committed by now
            past = await _committed_past(bed)
            held.claim("never committed past the head", not past, f"the group is past Redis: {past}")
            worker.send(signal.SIGKILL)
            await worker.ended()
        bed.worker()
        done = await check(bed, exactly_once=lab.exactly_once)
    done.invariants |= held.invariants
    done.figures["heads"] = tries
    return done


async def _committed_past(bed: Bed) -> list[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bed.brokers)
    await admin.start()
    at = [TopicPartition(bed.topic(t), p) for t in ("forecasts", "states") for p in range(bed.settings.partitions)]
    offsets = await admin.list_consumer_group_offsets(bed.settings.app, partitions=at)
    await admin.close()
    stored = {tp: int(bed.meta(tp.partition).get(f"next:{tp.topic}", 0)) for tp in at}
    return [f"{tp.topic}[{tp.partition}]" for tp in at if offsets[tp].offset > stored[tp]]


async def clocks(lab: Lab) -> Held:
    """The wall clock jumps forwards and back by an hour while the worker runs, and a worker has a wrong one."""
    if not _faketime():
        return Held({"ran": ["no libfaketime (Debian: apt-get install libfaketime)"]})
    async with lab.bed("clocks", batch=20) as bed:
        await bed.open()
        clock = bed.home / "clock"
        fake = {
            "LD_PRELOAD": str(_FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        clock.write_text("+0")
        worker = bed.worker(**fake)
        await until(lambda: worker.said("is ours"), "the worker to own")
        records, jumps = feed(lab.seed, bed.sessions, 10**6), ["+3600", "-3600", "+0", "-86400", "+1000000"]
        for jump in jumps:
            clock.write_text(jump)
            await bed.send(islice(records, lab.size(100, 600)))
            await bed.redis_until(lambda: not bed.behind(), "the records to be applied")
        held = await check(bed, exactly_once=lab.exactly_once)
        # A jump forwards makes Faust take the worker for dead, and claim anew: repeats, nothing else.
        held.figures |= {"jumps": len(jumps), "claims": worker.text().count("is ours")}
        return held


def _faketime() -> bool:
    return _FAKETIME.exists()


async def slow_solve(lab: Lab) -> Held:
    """Solves that take longer than a session timeout: the worker keeps its partitions."""
    async with lab.bed("slow", sessions=1, batch=400) as bed:
        bed.specs = _huge(bed, lab.size(14, 20))
        await bed.open()
        worker = bed.worker()
        await until(lambda: worker.said("is ours"), "the worker to own")
        rng, start = random.Random(lab.seed), time.monotonic()
        name, events = next(iter(bed.specs)), lab.size(1500, 6000)
        await bed.send(_random_forecasts(rng, name, list(bed.specs[name]["experts"]), events))
        longest = await _longest_silence(bed)
        held = await check(bed, exactly_once=lab.exactly_once, programs=False)
        claims = worker.text().count("is ours")
        held.claim("no eviction", claims == bed.settings.partitions, f"partitions were claimed {claims} times")
        held.claim("slower than the session timeout", longest > 3.0, f"the longest run took {longest:.1f} s")
        held.figures |= {"longest_run_s": round(longest, 1), "took_s": round(time.monotonic() - start)}
        return held


def _huge(bed: Bed, experts: int) -> dict[str, dict[str, object]]:
    spec = specs(bed.seed, 1)["s0"]
    names = {f"x{i}": {"levels": 11} for i in range(experts)}
    return {"s0": spec | {"experts": names, "schedule": {"every": 1}, "gamma": "auto", "solve_limit_s": 60.0}}


def _random_forecasts(rng: random.Random, session: str, experts: list[str], events: int) -> Iterator[Record]:
    for k in range(events):
        p = rng.random()
        reports = {x: round(min(max(rng.gauss(p, 0.25), 0.0), 1.0), 2) for x in experts}
        value = {"session": session, "event": f"e{k}", "time": f"2026-01-01T00:{k // 60 % 60:02d}:{k % 60:02d}Z"}
        yield "forecasts", session, json.dumps(value | {"forecasts": reports}).encode()


async def _longest_silence(bed: Bed) -> float:
    """Between two steps of the stored offsets, until all is applied, in seconds."""
    longest, last, since = 0.0, -1, time.monotonic()
    deadline = since + 300
    while (behind := bed.behind()) and time.monotonic() < deadline:
        if behind != last:
            longest, last, since = (
                max(longest, time.monotonic() - since) if last >= 0 else 0.0,
                behind,
                time.monotonic(),
            )
        await asyncio.sleep(0.05)
    return longest


async def backlog(lab: Lab) -> Held:
    """A worker that finds a backlog at its start: its memory stays bounded, the group's lag tells how far it is."""
    events = lab.size(3000, 50_000, 1_000_000)
    async with lab.bed("backlog", batch=1000) as bed:
        await bed.open()
        await bed.send(feed(lab.seed, bed.sessions, events, mishaps=0.2))
        total = sum(map(len, bed.sent.values()))
        worker = bed.worker()
        await until(lambda: worker.said("is ours"), "the worker to own")
        start = time.monotonic()
        rss: list[tuple[float, int]] = []
        while behind := bed.behind():
            rss.append((1 - behind / total, _rss_mb(worker)))
            await asyncio.sleep(0.2)
        took = time.monotonic() - start
        held = await check(bed, exactly_once=lab.exactly_once)
        early = max((mb for share, mb in rss if 0.1 <= share <= 0.4), default=0)
        late = max((mb for share, mb in rss if share >= 0.6), default=0)
        held.claim("memory bounded", late <= early * 1.3 + 30, f"{early} MB early, {late} MB late")
        held.figures |= {"backlog": total, "events_per_s": round(total / took), "rss_mb": [early, late]}
        return held


def _rss_mb(worker: Worker) -> int:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{worker.process.pid}/status").read_text().splitlines())
    return int(fields.get("VmRSS", "0 kB").split()[0]) // 1024
