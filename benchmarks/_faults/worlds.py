"""A made-up world for the worker's loop: a log, a store, output topics and a clock that a seed drives.

The loop is the real one, and so is the store's twin; here they are made slow, deaf and mortal.
"""

from __future__ import annotations

import asyncio
import json
import random
import selectors
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from stream_agg.errors import FencedError, UnavailableError
from stream_agg.store.memory import MemoryStore
from stream_agg.store.tables import Claim, Commit, Committed, Outcome, Tables
from stream_agg.watch.observer import Observer
from stream_agg.worker import loop as loops
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Outputs


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
    headers: tuple[tuple[str, bytes], ...] = ()


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


@cache
def _observer() -> Observer:
    """One for all: what is counted is not looked at, and to make one takes long."""
    return Observer()


class Worker:
    """A loop with its view of the world, fed as the consumer feeds it: runs in offset order, some of them again."""

    def __init__(self, world: World) -> None:
        self.world, self.life = world, Life(world)
        self.store = Chaos(world, self.life)
        output, specs = Output(world, self.life), Specs(world)
        self.loop = loops.Loop(world.settings, self.store, output, specs, _observer())  # type: ignore[arg-type]
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
