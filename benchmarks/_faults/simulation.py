"""Case 22: the worker's loop and the sessions in a world that is made up: log, store, clock, crashes. All from a seed.

The loop, the batches and the engine are the real ones; the store is the twin of the one in Redis. Two workers share
the log; the schedule decides who claims what, who is fenced, which answers are lost, when a worker dies. What must
hold is said by the oracle, as for the real servers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import selectors
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from _faults.bugs import BUGS
from _faults.check import Held
from _faults.fold import Fold, Published
from _faults.lab import Lab
from stream_agg.errors import FencedError, RefusedError, UnavailableError
from stream_agg.store.memory import MemoryStore
from stream_agg.store.tables import Claim, Commit, Committed, Outcome, Tables
from stream_agg.worker import loop as loops
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Outputs

LIMIT_S = 10_000.0
"""Of the made-up clock: a world that is not done by then stands still."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes when everybody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Patient(self))

    def time(self) -> float:
        return self.now


class _Patient(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop_ = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            self._loop_.now += timeout
        return ()


class DiedError(BaseException):
    """A worker is gone in the middle of what it did."""


@dataclass
class Life:
    """Of one worker: when it ends, nothing of it does another thing."""

    world: World
    over: bool = False

    def end(self, when: str) -> None:
        """Die."""
        self.over = True
        self.world.did[f"died {when}"] += 1
        raise DiedError

    def go_on(self) -> None:
        """Stop what belongs to a life that is over."""
        if self.over:
            raise DiedError


@dataclass(frozen=True)
class Entry:
    """A record of the made-up log, with the fields that the loop looks at."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    timestamp: int = 0


@dataclass
class World:
    """What outlives workers: the log, the store, what was published; and what breaks invariants by itself."""

    seed: int
    rng: random.Random = field(init=False)
    store: MemoryStore = field(default_factory=MemoryStore)
    log: dict[tuple[str, int], list[Entry]] = field(default_factory=lambda: defaultdict(list))
    out: dict[tuple[str, str], bytes] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)
    epochs: dict[int, int] = field(default_factory=dict)
    calm: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.settings = Settings(batch=self.rng.choice((1, 3, 10)))

    def chance(self, p: float) -> bool:
        """Whether something that may go wrong does, this time."""
        return not self.calm and self.rng.random() < p


class Chaos:
    """The store as one worker sees it: slow, away at times, its answers lost; and the end of the worker in between."""

    def __init__(self, world: World, life: Life) -> None:
        self.world, self.life = world, life
        self.frozen = asyncio.Event()
        self.frozen.set()

    async def _around(self, ask: Any, *, writes: bool) -> Any:
        world = self.world
        if world.chance(0.02):
            self.life.end("before a call")
        if world.chance(0.2):
            await asyncio.sleep(world.rng.random())
        await self.frozen.wait()
        self.life.go_on()
        if world.chance(0.02):
            world.did["not reached"] += 1
            raise UnavailableError("the store is away")
        answer = await ask()
        self.life.go_on()
        if writes and world.chance(0.02):
            world.did["answer lost"] += 1
            raise UnavailableError("the answer is lost")
        if world.chance(0.02):
            self.life.end("after a call")
        return answer

    async def claim(self, partition: int) -> Claim:
        claim: Claim = await self._around(lambda: self.world.store.claim(partition), writes=True)
        return claim

    async def peek(self, partition: int) -> Claim:
        claim: Claim = await self._around(lambda: self.world.store.peek(partition), writes=False)
        return claim

    async def load(self, partition: int, session: str) -> Tables | None:
        tables: Tables | None = await self._around(lambda: self.world.store.load(partition, session), writes=False)
        return tables

    async def trim(self, partition: int, epoch: int, number: int) -> Outcome:
        outcome: Outcome = await self._around(lambda: self.world.store.trim(partition, epoch, number), writes=True)
        return outcome

    async def commit(self, commit: Commit) -> Committed:
        async def ask() -> Committed:
            now = (await self.world.store.peek(commit.partition)).epoch
            done = await self.world.store.commit(commit)
            self.world.did[f"commit {done.outcome.value}"] += 1
            if done.outcome is Outcome.OK and commit.epoch != now:
                self.world.faults.append(f"I6: a commit under epoch {commit.epoch} was taken, the epoch is {now}")
            return done

        done: Committed = await self._around(ask, writes=True)
        return done

    async def sessions(self, partition: int) -> list[str]:
        return await self.world.store.sessions(partition)

    async def close(self) -> None:
        """Nothing is held."""


class Output:
    """The output topics: every record goes somewhere, even when its acknowledgement does not come back."""

    def __init__(self, world: World, life: Life) -> None:
        self.world, self.life = world, life

    async def claim(self, partition: int) -> Mapping[str, int]:
        return {}

    async def publish(self, partition: int, outputs: Outputs) -> None:
        world = self.world
        if world.chance(0.03):
            world.did["not published"] += 1
            raise UnavailableError("the broker is away")
        for row in outputs.rows:
            self.life.go_on()
            if world.chance(0.005):
                self.life.end("between two records")
            name = row.topic, dict(row.headers)["ce_id"]
            before = world.out.setdefault(name, row.value)
            world.did["published"] += 1
            if before != row.value:
                world.faults.append(f"I3: {name} was {before!r}, then {row.value!r}")
        if world.chance(0.05):
            world.did["not acknowledged"] += 1
            raise UnavailableError("no acknowledgement")
        if world.chance(0.2):
            await asyncio.sleep(world.rng.random())

    async def start(self) -> None:
        """There is no connection."""

    async def stop(self) -> None:
        """There is no connection."""


class Specs:
    """The sessions topic as one worker reads it."""

    def __init__(self, world: World) -> None:
        self.world, self.topic = world, world.settings.topic_sessions
        self._at: dict[int, int] = {}

    async def earliest(self, topics: Sequence[str], partition: int) -> dict[str, int]:
        return dict.fromkeys(topics, 0)

    def read_from(self, offsets: Mapping[int, int]) -> None:
        self._at = dict(offsets)

    async def poll(self, partition: int, timeout_ms: int = 0) -> list[Entry]:
        found = self.world.log[self.topic, partition][self._at.get(partition, 10**9) :]
        self._at[partition] = self._at.get(partition, 0) + len(found)
        return found

    async def rest(self, partition: int) -> Any:
        yield await self.poll(partition)


class Worker:
    """A loop with its view of the world, fed as the consumer feeds it: runs in offset order, some of them again."""

    def __init__(self, world: World) -> None:
        self.world, self.life = world, Life(world)
        self.store = Chaos(world, self.life)
        self.loop = loops.Loop(world.settings, self.store, Output(world, self.life), Specs(world))  # type: ignore[arg-type]
        self.at: dict[tuple[str, int], int] = {}
        self.claimed: frozenset[int] | None = None
        self.watching = asyncio.ensure_future(self._living(self.loop.watch_specs()))

    def revoke(self) -> None:
        """The first half of a rebalance."""
        self.at, self.claimed = {}, None

    async def own(self, partitions: frozenset[int]) -> None:
        """The second half: what is ours now is claimed."""
        topics = (self.world.settings.topic_forecasts, self.world.settings.topic_states)
        hints = {(t, p): None for t in topics for p in (0, 1)}
        await self._living(self._own(partitions, hints))

    async def _own(self, partitions: frozenset[int], hints: Mapping[tuple[str, int], None]) -> None:
        await self.loop.revoke(frozenset(self.loop.owned))
        self.at = dict(await self.loop.claim(partitions, hints))
        self.claimed = partitions

    async def work(self) -> None:
        """One run, if there is one."""
        behind = [tp for tp, at in self.at.items() if at < len(self.world.log[tp])]
        if behind:
            await self._living(self._process(*self.world.rng.choice(behind)))

    async def _process(self, topic: str, partition: int) -> None:
        rng, at = self.world.rng, self.at[topic, partition]
        if self.world.chance(0.1):
            at = max(0, at - rng.randint(0, 5))  # fetched again
        records = self.world.log[topic, partition][at : at + rng.randint(1, 12)]
        try:
            await self.loop.process(topic, partition, records)  # type: ignore[arg-type]
        except FencedError:
            if (topic, partition) in self.at:  # shut out of what is ours by the late claim of another
                self.life.end("when it was shut out")
            return
        if (topic, partition) in self.at:
            self.at[topic, partition] = max(self.at[topic, partition], at + len(records))

    async def _living(self, doing: Awaitable[None]) -> None:
        with suppress(DiedError):
            await doing


def records_of(world: World) -> tuple[dict[str, dict[str, Any]], Iterator[tuple[str, int, bytes, bytes]]]:
    """Two sessions, one a partition, and what is sent: (topic, partition, key, value)."""
    rng, days = world.rng, 2
    specs = {
        f"s{p}": {
            "session": f"s{p}",
            "experts": {"a": {"levels": 3}, "b": {"levels": 2}},
            "actions": {"stay": [1.0, 0.0], "go": [0.0, 2.0]},
            "feedback": "state",
            "gamma": 2.0,
            "schedule": {"growth": 3.0},
            "seed": world.seed,
            "state_deadline": f"P{days}D",
        }
        for p in (0, 1)
    }

    def sent() -> Iterator[tuple[str, int, bytes, bytes]]:
        for name, spec in specs.items():
            yield "sessions", int(name[1]), name.encode(), json.dumps(spec).encode()
        states: list[tuple[int, bytes]] = []
        for k in range(rng.randint(6, 14)):
            p = rng.randrange(2)
            event = f"e{k - (rng.random() < 0.1)}"
            base = {
                "session": f"s{p}",
                "event": event,
                "time": f"2026-01-{1 + k // 2:02d}T{rng.randint(0, 23):02d}:00:00Z",
            }
            reports = {"a": rng.random(), "b": rng.choice((0, 1, None))}
            forecast = ("forecasts", p, base["session"].encode(), json.dumps(base | {"forecasts": reports}).encode())
            for _ in range(rng.choice((0, 1, 1, 1, 2))):
                day = min(31, 1 + k // 2 + rng.choice((0, 0, 1, 1, 2, 5)))
                late = base | {"time": f"2026-01-{day:02d}T23:59:00Z", "state": rng.randrange(2)}
                states.append((p, json.dumps(late).encode()))
            if rng.random() < 0.05:
                forecast = (*forecast[:3], b"{no json")
            parts: list[tuple[str, int, bytes, bytes]] = [forecast]
            while states and rng.random() < 0.6:
                q, value = states.pop(rng.randrange(len(states)))
                parts.insert(rng.randrange(2), ("states", q, f"s{q}".encode(), value))
            yield from parts
        for q, value in states:
            yield "states", q, f"s{q}".encode(), value

    return specs, sent()


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


def many(seeds: range) -> tuple[Counter[str], dict[int, list[str]]]:
    """What happened in all these worlds, and the faults of those that have some."""
    quiet()
    did, faults = Counter[str](), {}
    for seed in seeds:
        world = simulate(seed, programs=seed % 20 == 0)
        did += world.did
        if world.faults:
            faults[seed] = world.faults
    return did, faults


async def simulated(lab: Lab) -> Held:
    """Worlds from many seeds on two processes; then five bugs, planted one by one, and the seeds that show them."""
    seeds, held, did, start = lab.size(200, 10_000), Held(), Counter[str](), time.monotonic()
    first, part = lab.seed * 1_000_000, 50
    ranges = [range(first + k, first + min(k + part, seeds)) for k in range(0, seeds, part)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for done, faults in pool.map(many, ranges):
            did += done
            for seed, texts in faults.items():
                for text in texts:
                    held.claim(text.partition(":")[0], False, f"seed {seed}: {text}")
        took = round(time.monotonic() - start)
        names = [bug.name for bug in BUGS]
        found = dict(zip(names, pool.map(seeds_until_found, names, [first] * len(BUGS)), strict=True))
    for name in ("I1", "I2", "I3", "I4", "I5", "I6"):
        held.invariants.setdefault(name, [])
    for name, after in found.items():
        held.claim("planted bugs are found", after is not None, f"{name}: not in {_ENOUGH} worlds")
    held.figures = {"seeds": seeds, "took_s": took, "did": dict(did.most_common()), "bug_found_after_seeds": found}
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
