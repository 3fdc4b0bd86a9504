"""The commands that a user has, run on a case's deployment: `verify` and what it took, `session`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _workers import PROGRAM, environment

from _faults.bed import Bed
from _faults.held import Held

BIG = 100_000
"""Events from which on memory and speed are claimed: below, a start of seconds is most of it."""
SPEED = 20_000
"""Events per second of wall clock that `verify` is to reach."""


@dataclass
class Ran:
    """A command that has ended, with its resident memory (and its children's) as it went, in MB."""

    code: int
    out: str
    err: str
    took_s: float
    cpu_s: float
    rss_mb: list[int]


async def run(bed: Bed, *command: str, **env: str) -> Ran:
    """Run `stream-agg COMMAND` with the settings of the deployment."""
    return await asyncio.to_thread(_run, {**environment(bed.settings), **env}, bed.home, command)


def _run(env: Mapping[str, str], home: Path, command: tuple[str, ...]) -> Ran:
    out, err, start, rss = home / "out", home / "err", time.monotonic(), list[int]()
    before = os.times()
    with out.open("wb") as to_out, err.open("wb") as to_err:
        process = subprocess.Popen(
            [*PROGRAM, *command], stdin=subprocess.DEVNULL, stdout=to_out, stderr=to_err, env=env
        )
        while process.poll() is None:
            rss.append(_tree_mb(process.pid))
            time.sleep(0.1)
    took, after = time.monotonic() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Ran(process.returncode, out.read_text(), err.read_text(), took, cpu, rss)


def _tree_mb(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return (pages * os.sysconf("SC_PAGE_SIZE") >> 20) + sum(_tree_mb(int(child)) for child in children)


async def verified(bed: Bed, held: Held, *, rewound: bool) -> None:
    """What `verify` says of the deployment: that all is equal, unless Redis went back in time.

    An action that was published before that is derived anew from states that may come at another time.
    """
    ran = await run(bed, "verify", "--json")
    if not ran.out.startswith("{"):
        held.claim("verify", False, f"it ended with {ran.code}: {ran.err[-500:]}")
        return
    verdict: dict[str, Any] = json.loads(ran.out)
    if rewound:
        bed.figures["verify"] = "equal" if verdict["equal"] else "names the first that was derived anew"
        return
    held.claim("verify", verdict["equal"] and ran.code == 0, f"{verdict['divergence'] or verdict}")
    held.claim("verify", not verdict["pending"], f"{verdict['pending']} not published")
    events, third = verdict["events"], len(ran.rss_mb) // 3
    middle, last = max(ran.rss_mb[third : 2 * third] or [0]), max(ran.rss_mb[2 * third :] or [0])
    told = {
        "events": events,
        "repeats": verdict["repeats"],
        "took_s": round(ran.took_s, 1),
        "cpu_s": round(ran.cpu_s, 1),
    }
    if events >= BIG:
        told |= {"events_per_s": round(events / ran.took_s), "mb": [middle, last]}
        held.claim(f"verify: {SPEED:,} events/s", events / ran.took_s >= SPEED, f"{events / ran.took_s:,.0f}")
        held.claim("verify: flat memory", last <= middle * 1.2 + 20, f"{middle} MB, then {last} MB")
    bed.figures["verify"] = told
