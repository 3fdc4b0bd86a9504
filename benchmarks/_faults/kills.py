"""Workers that die, are stopped, are frozen, or come and go (cases 1 to 4)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from itertools import islice, pairwise

from _workers import StuckError, Worker, until

from _faults.bed import Bed
from _faults.check import check
from _faults.feed import POLICIES, feed
from _faults.held import CLEAN_STOP_S, Held
from _faults.lab import Lab

POINTS = {
    "after_claim": 2,
    "before_commit": 12,
    "after_commit": 12,
    "before_publish": 12,
    "during_publish": 12,
    "after_publish": 12,
    "before_trim": 2,
    "after_trim": 2,
    "before_ack": 3,
    "after_ack": 3,
}
"""Fail point -> how often it is passed at most before the worker dies there."""
_LIFE_S = 8.0
"""A worker that has not come to its fail point so long after its claim dies where it is."""


async def killed_in_a_loop(lab: Lab) -> Held:
    """SIGKILL at a random fail point, again and again, while records come in; of policy `robust` alone at full size,
    where the time that `verify` takes is measured."""
    kills, events = lab.kills or lab.size(6, 30, 100), lab.size(1500, 20_000, 100_000)
    policies = ("robust",) if lab.big else POLICIES
    async with lab.bed("kills", policies=policies, batch=lab.size(20, 50, 200)) as bed:
        await bed.open()
        records = feed(lab.seed, bed.sessions, events)
        share, deaths = -(-events * 2 // (kills + 1)), Counter[str]()
        sent, start = 0, time.monotonic()
        while sum(deaths.values()) < kills:
            sent += await bed.send(islice(records, share))
            deaths[await _live_and_die(bed, lab)] += 1
        sent += await bed.send(records)
        bed.worker()
        bed.figures |= {
            "kills": kills,
            "at": dict(sorted(deaths.items())),
            "killing_s": round(time.monotonic() - start),
        }
        return await check(bed, exactly_once=lab.exactly_once)


async def _live_and_die(bed: Bed, lab: Lab) -> str:
    points = [p for p in POINTS if p != "during_publish" or lab.exactly_once]
    point = bed.rng.choice(points)
    worker = bed.worker(STREAM_AGG_FAIL_AT=f"{point}:{bed.rng.randint(1, POINTS[point])}")
    try:
        await until(lambda: worker.process.poll() is not None or _claims(worker), "the worker to claim", 60.0)
        code = await worker.ended(_LIFE_S)
    except StuckError:
        worker.send(signal.SIGKILL)
        code, point = await worker.ended(), "anywhere"
    if code != -signal.SIGKILL:
        raise StuckError(f"the worker ended with {code} by itself: {worker.text()[-2000:]}")
    return point


async def stopped_in_a_loop(lab: Lab) -> Held:
    """SIGTERM, and a rolling restart of two workers under load: how long no action came, and how long it took until
    the partitions were claimed again."""
    async with lab.bed("stops", sessions=6, partitions=4, batch=50) as bed:
        await bed.open()
        workers = [bed.worker(), bed.worker()]
        await _shared(workers, [0, 0])
        feeding = asyncio.ensure_future(bed.send(feed(lab.seed, bed.sessions, 10**6), pause_s=0.005))
        stops, moves = list[tuple[int, float]](), list[float]()
        for k in range(2 * lab.size(1, 5)):
            i, claims, start = k % 2, [_claims(w) for w in workers], time.monotonic()
            stops.append(await workers[i].stop())
            await until(lambda c=claims, j=1 - i: _claims(workers[j]) > c[j], "the other to take over")  # type: ignore[misc]
            moves.append(time.monotonic() - start)
            workers[i] = bed.worker()
            await until(lambda i=i: workers[i].said("ready to take"), "the new one to join")  # type: ignore[misc]
            start, claims = time.monotonic(), [_claims(w) for w in workers]
            await _shared(workers, claims)
            moves.append(time.monotonic() - start)
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        times = sorted((await bed.collect()).action_times)
        held = await check(bed, exactly_once=lab.exactly_once)
    gap = max((b - a for a, b in pairwise(times)), default=0.0)
    for code, took in stops:
        held.claim("I7", code == 0 and took < CLEAN_STOP_S, f"a stop ended with {code} after {took:.1f} s")
    longest = max(moves)
    held.claim(
        "no gap longer than the rebalance",
        gap <= longest + _FIRST_S,
        f"{gap:.1f} s, the rebalance took {longest:.1f} s",
    )
    held.figures |= {"stops": len(stops), "slowest_stop_s": round(max(t for _, t in stops), 2)}
    held.figures |= {"longest_rebalance_s": round(longest, 2), "longest_without_an_action_s": round(gap, 2)}
    return held


_FIRST_S = 1.0
"""From a claim to the first action: a session is loaded and a first batch goes its way."""


def _claims(worker: Worker) -> int:
    return worker.text().count("is ours")


async def _shared(workers: list[Worker], before: list[int]) -> None:
    """Both have claimed since."""
    await until(lambda: all(_claims(w) > n for w, n in zip(workers, before, strict=True)), "both to have partitions")


async def frozen(lab: Lab) -> Held:
    """A worker stopped right before a commit, past its session timeout; another takes over; it goes on."""
    async with lab.bed("zombie", batch=20) as bed:
        await bed.open()
        refused = freezes = 0
        held = Held()
        records = feed(lab.seed, bed.sessions, 10**6)
        points = ["before_commit", "before_publish"] + (["during_publish"] if lab.exactly_once else [])
        for k in range(lab.size(2, 6)):
            point = points[k % len(points)]
            zombie = bed.worker(STREAM_AGG_FAIL_AT=f"{point}:{bed.rng.randint(3, 9)}:stop")
            await bed.send(islice(records, lab.size(600, 1500)))
            await until(lambda z=zombie: z.state() == "T", "the worker to freeze")  # type: ignore[misc]
            heir = bed.worker()
            await until(lambda h=heir: h.text().count("is ours") == bed.settings.partitions, "the heir to own")  # type: ignore[misc]
            await bed.settle()
            zombie.send(signal.SIGCONT)
            freezes += 1
            await bed.send(islice(records, 200))
            if point == "before_commit":
                await until(lambda z=zombie: z.said("was refused"), "the late commit to be refused")  # type: ignore[misc]
            await bed.settle()
            refused += zombie.text().count("was refused")
            for worker in (zombie, heir):
                await worker.stop()
        bed.worker()
        held = await check(bed, exactly_once=lab.exactly_once)
    held.claim("I6", refused > 0, "no late commit was seen to be refused")
    held.figures |= {"freezes": freezes, "late_commits_refused": refused}
    return held


async def storm(lab: Lab) -> Held:
    """Workers join and leave every 2 s, some killed while they claim."""
    async with lab.bed("storm", sessions=6, partitions=4, batch=50) as bed:
        await bed.open()
        feeding = asyncio.ensure_future(bed.send(feed(lab.seed, bed.sessions, 10**6), pause_s=0.01))
        alive, left = [bed.worker()], Counter[str]()
        for _ in range(lab.size(4, 25)):
            await asyncio.sleep(2.0)
            if len(alive) < 2 or (len(alive) < 4 and bed.rng.random() < 0.5):
                alive.append(bed.worker(**({"STREAM_AGG_FAIL_AT": "after_claim:2"} if bed.rng.random() < 0.4 else {})))
                left["joined"] += 1
            else:
                worker = alive.pop(bed.rng.randrange(len(alive)))
                worker.send(bed.rng.choice((signal.SIGTERM, signal.SIGKILL)))
                left["left"] += 1
            gone = [w for w in alive if w.process.poll() is not None]
            left["died in a claim"] += sum(w.process.returncode == -signal.SIGKILL for w in gone)
            left["ended by themselves"] += sum(w.process.returncode != -signal.SIGKILL for w in gone)
            alive = [w for w in alive if w not in gone]
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        bed.figures |= {"storm": dict(left)}
        bed.worker()
        return await check(bed, exactly_once=lab.exactly_once)
