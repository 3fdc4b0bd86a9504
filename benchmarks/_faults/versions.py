"""Versions of the program and of what it stores, side by side on one deployment (case 21)."""

from __future__ import annotations

import re
import shutil
from itertools import islice
from pathlib import Path

from _workers import PACKAGES, Worker, until

from _faults.bed import Bed
from _faults.check import check
from _faults.feed import feed
from _faults.held import Held
from _faults.lab import Lab
from _faults.stores import dump, refused, refuses
from _faults.tools import run
from stream_agg.store.tables import SCHEMA


def copy_of(home: Path, *, schema: int) -> str:
    """The package as its next version would be: another number, and maybe another one of what is stored."""
    package = home / f"schema-{schema}" / "stream_agg"
    shutil.copytree(Path(PACKAGES) / "stream_agg", package)
    _changed(package / "__init__.py", r'^__version__ = ".*"$', '__version__ = "999.0"')
    _changed(package / "store" / "tables.py", r"^SCHEMA = \d+$", f"SCHEMA = {schema}")
    return str(package.parent)


def _changed(file: Path, line: str, instead: str) -> None:
    text, count = re.subn(line, instead, file.read_text(), flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{file.name} has {count} lines like {line}")
    file.write_text(text)


async def upgraded(lab: Lab) -> Held:
    """From version N to N+1 and back under load where what is stored stays as it is; where it does not, N+1 refuses
    what N stored, N what N+1 stored, a backup too, and the workers of the right version go on meanwhile."""
    held = Held()
    async with lab.bed("versions", sessions=6, partitions=4, batch=20) as bed:
        await bed.open()
        alike = {"PYTHONPATH": copy_of(bed.home, schema=SCHEMA)}
        other = {"PYTHONPATH": copy_of(bed.home, schema=SCHEMA + 1)}
        records = feed(lab.seed, bed.sessions, 10**6)
        some = lab.size(300, 2000)
        workers = [bed.worker(), bed.worker()]
        for worker in workers:
            await _owns(worker)
        for env in (alike, {}):  # there, and back
            for i in (0, 1):
                await bed.send(islice(records, some))
                code, _ = await workers[i].stop()
                held.claim("I7", code == 0, f"a stop ended with {code}")
                workers[i] = bed.worker(**env)
                await _owns(workers[i])
        await bed.send(islice(records, some))
        await refused(bed, held, "N+1 beside N", f"schema version {SCHEMA}", **other)
        await bed.settle()
        for worker in workers:
            await worker.stop()
        await refuses(bed, held, "N+1 after N", f"schema version {SCHEMA}", **other)
        await _backup(bed, held, other)
        bed.worker()
        await bed.send(islice(records, some))
        done = await check(bed, exactly_once=lab.exactly_once)
    async with lab.bed("newer", batch=20) as newer:
        await newer.open()
        other = {"PYTHONPATH": copy_of(newer.home, schema=SCHEMA + 1)}
        worker = newer.worker(**other)
        await newer.send(islice(feed(lab.seed, newer.sessions, 10**6), some))
        await newer.settle()
        await worker.stop()
        await refuses(newer, held, "N after N+1", f"schema version {SCHEMA + 1}")
        newer.worker(**other)
        again = await check(newer, exactly_once=lab.exactly_once)
    for more in (done, again):
        for name, found in more.invariants.items():
            held.invariants.setdefault(name, []).extend(found)
    held.figures = done.figures | {"versions": "N, N+1, N; schema N+1 refused, and N by N+1"}
    return held


async def _owns(worker: Worker) -> None:
    await until(lambda: worker.said("is ours"), "a worker to have partitions")


async def _backup(bed: Bed, held: Held, other: dict[str, str]) -> None:
    """A backup of version N is refused by N+1, and put back by N."""
    file, before = str(bed.home / "backup.jsonl"), dump(bed)
    saved = await run(bed, "session", "export", file)
    held.claim("a backup", saved.code == 0, saved.err[-300:])
    tried = await run(bed, "session", "import", file, "--overwrite", **other)
    one_line = len(tried.err.strip().splitlines()) == 1 and f"schema version {SCHEMA}," in tried.err
    held.claim("a backup of N: N+1 refuses it", tried.code in (1, 2) and one_line, tried.err[-300:])
    held.claim("a backup of N: nothing was touched", dump(bed) == before, "something was written")
    back = await run(bed, "session", "import", file, "--overwrite")
    held.claim("a backup of N: N puts it back", back.code == 0 and dump(bed) == before, back.err[-300:])
