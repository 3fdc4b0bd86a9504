"""A Redis that is empty, full, foreign or restored, and records that are gone (cases 10, 11, 18, 24)."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from _servers import Redis
from _workers import until
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete

from _faults.bed import Bed
from _faults.check import check
from _faults.feed import Record, feed
from _faults.held import Held
from _faults.lab import Lab
from _faults.tools import run
from stream_agg.store.tables import TABLES


async def emptied(lab: Lab) -> Held:
    """Redis emptied under a running worker; a schema of another version; other topics than were read."""
    async with lab.bed("empty", batch=20) as bed:
        await bed.open()
        records = feed(lab.seed, bed.sessions, 10**6)
        worker = bed.worker()
        await bed.send(islice(records, lab.size(500, 3000)))
        await bed.settle()
        held = Held()
        await worker.stop()
        for p in range(bed.settings.partitions):
            bed.redis.hset(f"{bed._tag(p)}:meta", "schema", "99")
        await refuses(bed, held, "another schema", "schema version 99")
        for p in range(bed.settings.partitions):
            bed.redis.hset(f"{bed._tag(p)}:meta", "schema", bed.schema)
        await refuses(
            bed,
            held,
            "other topics",
            "STREAM_AGG_TOPIC_",
            {"topic_states": f"other-{bed.settings.app}", "create_topics": True},
        )
        worker = bed.worker()
        await until(lambda: worker.said("is ours"), "the worker to own")
        bed.redis.flushall()
        await bed.send(islice(records, 200))
        code = await worker.ended()
        held.claim("the running worker stops", code == 1 and worker.said("went back in time"), worker.text()[-300:])
        await refuses(bed, held, "an empty Redis", "--rebuild")
        bed.worker({"rebuild": True})
        return _with(await check(bed, rewound=True), held)


async def refuses(
    bed: Bed, held: Held, name: str, word: str, changes: dict[str, Any] | None = None, **env: str
) -> None:
    """A worker that starts now must stop at once, in one line that holds the word, and change nothing."""
    before = dump(bed)
    await refused(bed, held, name, word, changes, **env)
    held.claim(f"{name}: nothing was touched", dump(bed) == before, "something was written")


async def refused(
    bed: Bed, held: Held, name: str, word: str, changes: dict[str, Any] | None = None, **env: str
) -> None:
    """The same, while others work."""
    worker = bed.worker(changes, **env)
    code = await worker.ended()
    last = worker.text().strip().splitlines()[-1]
    held.claim(f"{name}: refused", code == 1 and word in last and "Traceback" not in worker.text(), last)


def dump(bed: Bed) -> dict[str, Any]:
    """All keys of the deployment, but for the count of claims."""
    found: dict[str, Any] = {}
    for key in bed.redis.scan_iter(match=f"{{{bed.settings.app}:*"):
        kind = bed.redis.type(key)
        value = bed.redis.smembers(key) if kind == "set" else bed.redis.hgetall(key)
        found[key] = {k: v for k, v in value.items() if k != "epoch"} if kind == "hash" else value  # type: ignore[union-attr]
    return {key: value for key, value in found.items() if value and set(value) != {"schema"}}


def _with(held: Held, more: Held) -> Held:
    for name, found in more.invariants.items():
        held.invariants.setdefault(name, []).extend(found)
    held.figures |= more.figures
    return held


async def out_of_retention(lab: Lab) -> Held:
    """Records deleted that were not applied yet."""
    async with lab.bed("retention", batch=20) as bed:
        await bed.open()
        records = feed(lab.seed, bed.sessions, 10**6)
        worker = bed.worker()
        await bed.send(islice(records, lab.size(300, 2000)))
        await bed.settle()
        await worker.stop()
        await bed.send(islice(records, 400))
        at = bed.sent["forecasts", 0]
        applied = int(bed.meta(0)[f"next:{bed.topic('forecasts')}"])
        gone = next(offset for offset, _ in at if offset >= applied + 20)
        admin = AIOKafkaAdminClient(bootstrap_servers=bed.brokers)
        await admin.start()
        where = TopicPartition(bed.topic("forecasts"), 0)
        await admin.delete_records({where: RecordsToDelete(before_offset=gone)})
        await admin.close()
        held = Held()
        await refuses(bed, held, "deleted records", f"{gone - applied} records are gone")
        held.figures = {"deleted": gone - applied}
        return held


async def full(lab: Lab) -> Held:
    """Redis at its maxmemory, then a disk that is full for its append-only file: a pause each, then on."""
    held = Held()
    async with lab.bed("maxmemory", batch=20) as bed:
        await bed.open()
        records = feed(lab.seed, bed.sessions, 10**6)
        worker = bed.worker()
        await bed.send(islice(records, lab.size(300, 2000)))
        await bed.settle()
        bed.redis.config_set("maxmemory", str(int(bed.redis.info("memory")["used_memory"]) // 2))  # type: ignore[index]
        await bed.send(islice(records, 400))
        await until(lambda: worker.said("has no memory left"), "the worker to say what is wrong")
        behind = bed.behind()
        bed.redis.config_set("maxmemory", "0")
        await until(lambda: worker.said("resumed"), "the worker to go on")
        _with(held, await check(bed, exactly_once=lab.exactly_once))
        held.claim("paused", behind > 0, "nothing was waiting")
    if os.geteuid() != 0:
        held.figures["full disk"] = "left out: a small file system can only be mounted by root"
        return held
    small = lab.home / "small-disk"
    small.mkdir()
    _run("/bin/mount", "-t", "tmpfs", "-o", "size=4m", "none", str(small))
    redis = Redis(small)
    try:
        await asyncio.to_thread(redis.start)
        async with lab.bed("full-disk", redis=redis, batch=20) as bed:
            await bed.open()
            records = feed(lab.seed, bed.sessions, 10**6)
            worker = bed.worker()
            await bed.send(islice(records, 300))
            await bed.settle()
            with (small / "ballast").open("wb", buffering=0) as file:
                _fill(file.write)
            await bed.send(islice(records, 400))
            await until(lambda: worker.said("cannot write to its disk"), "the worker to say what is wrong")
            (small / "ballast").unlink()
            await until(lambda: worker.said("resumed"), "the worker to go on")
            _with(held, await check(bed, exactly_once=lab.exactly_once))
            held.claim("one worker all along", len(bed.workers) == 1, "it had to be started again")
    finally:
        await asyncio.to_thread(redis.stop)
        _run("/bin/umount", "-l", str(small))
    return held


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _fill(write: Callable[[bytes], int]) -> None:
    try:
        while True:
            write(b"\0" * 4096)
    except OSError:
        return


async def restored(lab: Lab) -> Held:
    """A backup of Redis, records after it, everything wiped, the backup restored: the tail is applied again. Once by an
    RDB file, once by `session export` and `import --catch-up`, after which even `verify` sees no difference."""
    held = await _from_rdb(lab)
    more = await _from_export(lab)
    held.figures["session import --catch-up"] = more.figures
    more.figures = {}
    return _with(held, more)


async def _from_rdb(lab: Lab) -> Held:
    home = lab.home / "redis-24"
    redis = await lab.own(Redis(home, ("--appendonly", "no")))
    # What a learner decides depends on which states it has seen; the robust rule gives the same whenever they come.
    async with lab.bed("restore", redis=redis, policies=("robust",), batch=20) as bed:
        records = await _begun(bed, lab)
        bed.redis.save()
        shutil.copy(home / "dump.rdb", home / "backup.rdb")
        before = await _went_on(bed, records, lab)
        bed.redis.flushall()
        redis.kill()
        await asyncio.to_thread(redis.stop)
        shutil.copy(home / "backup.rdb", home / "dump.rdb")
        await asyncio.to_thread(redis.start)
        heir = bed.worker()
        await until(lambda: heir.said("applied again"), "the heir to go back")
        await bed.settle()
        after = dump(bed)
        held = await check(bed, rewound=True)
    _same(held, "the counts are those of one that never failed", before, after, (":profiles",))
    return held


async def _from_export(lab: Lab) -> Held:
    file = str(lab.home / "backup.jsonl")
    async with lab.bed("import", batch=20) as bed:
        records = await _begun(bed, lab)
        saved = await run(bed, "session", "export", file)
        before = await _went_on(bed, records, lab)
        bed.redis.flushall()
        back = await run(bed, "session", "import", file, "--catch-up")
        bed.worker()
        await bed.settle()
        after = dump(bed)
        held = await check(bed, exactly_once=lab.exactly_once)
    held.claim("exported and put back", saved.code == back.code == 0, (saved.err + back.err)[-500:])
    tables = tuple(f":{table}" for table in TABLES)
    _same(held, "the state is that of one that never failed, to the byte", before, after, tables)
    return held


async def _begun(bed: Bed, lab: Lab) -> Iterator[Record]:
    await bed.open()
    records = feed(lab.seed, bed.sessions, 10**6)
    bed.worker()
    await bed.send(islice(records, lab.size(500, 3000)))
    await bed.settle()
    return records


async def _went_on(bed: Bed, records: Iterator[Record], lab: Lab) -> dict[str, Any]:
    """All keys after some more records, the worker stopped."""
    await bed.send(islice(records, lab.size(300, 1500)))
    await bed.settle()
    await bed.workers[-1].stop()
    return dump(bed)


def _same(held: Held, name: str, before: dict[str, Any], after: dict[str, Any], tables: tuple[str, ...]) -> None:
    keys = [key for key in before if key.endswith(tables)]
    differ = [key for key in keys if before[key] != after.get(key)]
    first = [(n, text, after.get(key, {}).get(n)) for key in differ[:1] for n, text in before[key].items()]
    held.claim(name, bool(keys) and not differ, f"{differ} differ: {[one for one in first if one[1] != one[2]][:2]}")
