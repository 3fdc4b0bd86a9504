"""Case 22: thousands of made-up worlds, each from its seed: deliveries, crashes, claims. What must hold is said by the
oracle, as for the real servers."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from _faults.bugs import BUGS
from _faults.fold import Fold, Published
from _faults.held import Held
from _faults.lab import Lab
from _faults.worlds import Entry, VirtualLoop, Worker, World, records_of
from stream_agg.errors import RefusedError
from stream_agg.store.tables import Tables
from stream_agg.worker.wire import Outputs


class Schedule:
    """Who does what next: two workers, one log, partitions that move between them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.specs, self._sending = records_of(world)
        self.names = {t: getattr(world.settings, f"topic_{t}") for t in ("sessions", "forecasts", "states")}
        self.owner = {0: 0, 1: 0}
        self.workers = [Worker(world), Worker(world)]
        self.owned: list[frozenset[int] | None] = [None, None]
        self.doing: list[asyncio.Task[None] | None] = [None, None]
        self.more = True

    async def live(self) -> None:
        """Everything that happens, until all is quiet and done."""
        world = self.world
        for _ in range(10_000):
            if self.more and world.rng.random() < 0.5:
                self._send(world.rng.randint(1, 4))
            if world.chance(0.05):
                self.owner[world.rng.randrange(2)] = world.rng.randrange(2)
                world.did["moved"] += 1
            for i in (0, 1):
                self._step(i)
            await asyncio.sleep(world.rng.random() * 0.3)
            world.calm = world.calm or (not self.more and world.rng.random() < 0.05)
            if world.calm and await self._settled():
                break
        else:
            world.faults.append("I5: it does not come to an end")
        for i in (0, 1):
            await self._bury(i)

    def _send(self, most: int) -> None:
        for _ in range(most):
            record = next(self._sending, None)
            if record is None:
                self.more = False
                return
            topic, p, key, value = record
            held = self.world.log[self.names[topic], p]
            held.append(Entry(self.names[topic], p, len(held), key, value))

    def _step(self, i: int) -> None:
        world, worker, task = self.world, self.workers[i], self.doing[i]
        if worker.life.over:
            worker.store.frozen.set()  # the dead wait for nothing
            if task is None or task.done():  # what it was at has come to its end, too
                self._again(i)
            return
        if worker.store.frozen.is_set() and world.chance(0.02):
            worker.store.frozen.clear()
            world.did["frozen"] += 1
        elif not worker.store.frozen.is_set() and (world.calm or world.rng.random() < 0.2):
            worker.store.frozen.set()
        mine = frozenset(p for p, owner in self.owner.items() if owner == i)
        if self.owned[i] != mine and worker.store.frozen.is_set():
            self.owned[i] = mine
            worker.revoke()  # what is under way goes on, and is fenced
        if task is None or task.done():
            self.doing[i] = asyncio.ensure_future(worker.work() if worker.claimed == mine else worker.own(mine))

    def _again(self, i: int) -> None:
        self.workers[i].watching.cancel()
        self.workers[i], self.owned[i], self.doing[i] = Worker(self.world), None, None
        self.world.did["deaths"] += 1

    async def _bury(self, i: int) -> None:
        self.workers[i].life.over = True
        ends = [task for task in (self.doing[i], self.workers[i].watching) if task is not None]
        for task in ends:
            task.cancel()
        for result in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _settled(self) -> bool:
        world = self.world
        for p in (0, 1):
            held = await world.store.peek(p)
            if any(held.next_offsets.get(name, 0) < len(world.log[name, p]) for name in self.names.values()):
                return False
            rows = [row for _, blob in held.outbox for row in Outputs.unpack(blob).rows]
            if any((row.topic, dict(row.headers)["ce_id"]) not in world.out for row in rows):
                return False
        return True


def simulate(seed: int, *, programs: bool = False) -> World:
    """One world from beginning to end; its faults are in it."""
    world = World(seed)
    loop = VirtualLoop()
    try:
        specs = loop.run_until_complete(_lived(world))
        stored = {name: loop.run_until_complete(world.store.load(int(name[1]), name)) or {} for name in specs}
    finally:
        loop.close()
    world.faults += _judge(world, specs, stored, programs)
    return world


async def _lived(world: World) -> dict[str, dict[str, Any]]:
    schedule = Schedule(world)
    await schedule.live()
    return schedule.specs


def _judge(world: World, specs: Mapping[str, Any], stored: Mapping[str, Tables], programs: bool) -> list[str]:
    to, out = world.settings, Published()
    for (topic, name), value in world.out.items():
        if topic == to.topic_actions:
            told = json.loads(value)
            out.actions[told["session"], told["event"]] = told
        elif topic == to.topic_regret:
            told = json.loads(value)
            moment = told["reason"], told["round"], told["realized"]["states"]
            out.regrets.setdefault(told["session"], {})[moment] = told
        elif topic == to.topic_dead_letters:
            source, partition, offset = name.rsplit("/", 2)
            out.dead[source, int(partition), int(offset)] = "", value
    log = {
        tp: [(e.offset, e.value) for e in entries] for tp, entries in world.log.items() if tp[0] != to.topic_sessions
    }
    fold = Fold(specs, log, out, programs, reasons=False).run()
    text = {n: {t: {k: v.decode() for k, v in f.items()} for t, f in tables.items()} for n, tables in stored.items()}
    fold.compare({name: tables for name, tables in text.items() if tables})
    found = [f"{name}: {t}" for name, texts in fold.faults.items() for t in texts]
    if out.actions:
        found.append(f"I3: actions of nothing: {sorted(out.actions)[:3]}")
    return found


def quiet() -> None:
    """Say nothing: the loop's warnings are about what is done to it here."""
    logging.getLogger("stream_agg").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def many(seeds: range) -> tuple[Counter[str], dict[int, list[str]], float]:
    """What happened in all these worlds, the faults of those that have some, and the seconds of processor time."""
    quiet()
    did, faults, since = Counter[str](), {}, time.process_time()
    for seed in seeds:
        world = simulate(seed, programs=seed % 20 == 0)
        did += world.did
        if world.faults:
            faults[seed] = world.faults
    return did, faults, time.process_time() - since


async def simulated(lab: Lab) -> Held:
    """Worlds from many seeds on two processes; then five bugs, planted one by one, and the seeds that show them."""
    seeds, held, did, start = lab.size(200, 10_000), Held(), Counter[str](), time.monotonic()
    first, part, cpu = lab.seed * 1_000_000, 50, 0.0
    ranges = [range(first + k, first + min(k + part, seeds)) for k in range(0, seeds, part)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for done, faults, spent in pool.map(many, ranges):
            did += done
            cpu += spent
            for seed, texts in faults.items():
                for text in texts:
                    held.claim(text.partition(":")[0], False, f"seed {seed}: {text}")
        took = time.monotonic() - start
        names = [bug.name for bug in BUGS]
        found = dict(zip(names, pool.map(seeds_until_found, names, [first] * len(BUGS)), strict=True))
    for name in ("I1", "I2", "I3", "I4", "I5", "I6"):
        held.invariants.setdefault(name, [])
    for name, after in found.items():
        held.claim("planted bugs are found", after is not None, f"{name}: not in {_ENOUGH} worlds")
    if not lab.smoke:
        held.claim("under 5 minutes of two processors", cpu / 2 < 300, f"{cpu:.0f} s of one")
    held.figures = {"seeds": seeds, "took_s": round(took), "cpu_s": round(cpu), "did": dict(did.most_common())}
    held.figures |= {"bug_found_after_seeds": found}
    return held


_ENOUGH = 2000


def seeds_until_found(bug: str, first: int) -> int | None:
    """How many worlds it takes until an invariant breaks, or the worker stops by itself."""
    quiet()
    with next(b for b in BUGS if b.name == bug):
        for k in range(_ENOUGH):
            try:
                if simulate(first + k).faults:
                    return k + 1
            except RefusedError:
                return k + 1
    return None
