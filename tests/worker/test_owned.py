"""What a partition holds in memory and on its way: sessions that leave and come back, batches that overlap."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from stream_agg.errors import RefusedError
from stream_agg.store.memory import MemoryStore
from stream_agg.worker.loop import Loop
from stream_agg.worker.owned import OF_ITS_OWN
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Outputs, Row

SESSIONS = [f"s{k}" for k in range(12)]
ROUNDS = 40


@dataclass
class Record:
    topic: str
    offset: int
    value: bytes
    key: bytes
    partition: int = 0
    timestamp: int = 0


@dataclass
class Specs:
    """The sessions topic; all of it is there."""

    records: list[Record]
    topic: str = "sessions"

    async def earliest(self, topics: Sequence[str], partition: int) -> dict[str, int]:
        return dict.fromkeys(topics, 0)

    def read_from(self, offsets: Mapping[int, int]) -> None: ...

    async def rest(self, partition: int) -> Any:
        yield self.records


@dataclass
class Publisher:
    """Keeps the rows; waits for `open` before it takes any."""

    rows: list[Row] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def claim(self, partition: int) -> Mapping[str, int]:
        return {}

    async def publish(self, partition: int, outputs: Outputs) -> None:
        await self.open.wait()
        self.rows += outputs.rows


def topic(name: str, values: list[dict[str, Any]]) -> list[Record]:
    return [Record(name, k, json.dumps(v).encode(), v["session"].encode()) for k, v in enumerate(values)]


def specs(names: Sequence[str]) -> list[Record]:
    shared = {
        "experts": {"a": {"levels": 5}, "b": {"levels": 5}},
        "actions": {"stay": [1, 0], "go": [0, 2]},
        "feedback": "state",
        "state_deadline": "PT12H",
    }
    policies = ({"policy": "hybrid"}, {"policy": "robust"}, {"policy": "hedge"})
    return topic("sessions", [{"session": n, **shared, **policies[k % 3]} for k, n in enumerate(names)])


def feed() -> tuple[list[Record], list[Record]]:
    rng = random.Random(3)
    forecasts, states = [], []
    for k in range(ROUNDS * len(SESSIONS)):
        name = rng.choice(SESSIONS)
        event = {"session": name, "event": f"e{k}", "time": f"2026-01-{1 + k // 24:02d}T{k % 24:02d}:00:00Z"}
        forecasts.append({**event, "forecasts": {"a": rng.randrange(5) / 4, "b": rng.choice((rng.random(), None))}})
        states += [{**event, "state": rng.randrange(2)}] * rng.choice((0, 1, 1, 2))
    return topic("forecasts", forecasts), topic("states", states)


async def lived(most: int) -> tuple[list[Row], dict[str, Any], int]:
    """Rows published, tables stored, and the most sessions that were in memory after a run."""
    store, publisher, largest = MemoryStore(), Publisher(), 0
    publisher.open.set()
    worker = Loop(Settings(batch=7, memory_decisions=most), store, publisher, Specs(specs(SESSIONS)))  # type: ignore[arg-type]
    await worker.claim(frozenset({0}), {})
    forecasts, states = feed()
    for k in range(0, max(len(forecasts), len(states)), 20):
        await worker.process("forecasts", 0, forecasts[k : k + 20])  # type: ignore[arg-type]
        await worker.process("states", 0, states[max(k - 40, 0) : max(k - 20, 0)])  # type: ignore[arg-type]
        largest = max(largest, len(worker.owned[0].sessions))
    return publisher.rows, {name: await store.load(0, name) for name in SESSIONS}, largest


async def test_sessions_that_leave_memory_and_come_back_give_the_same_bytes() -> None:
    rows, tables, held = await lived(10**6)
    assert held == len(SESSIONS)
    assert {json.loads(row.value)["policy"] for row in rows if row.topic == "actions"} == {"hybrid", "robust", "hedge"}
    rows_of_few, tables_of_few, few = await lived(1)
    assert few <= 7  # those of the last batch
    assert (rows_of_few, tables_of_few) == (rows, tables)


async def test_a_flood_of_sessions_does_not_pile_up() -> None:
    names = [f"new{k}" for k in range(300)]
    publisher, most = Publisher(), 20 * (OF_ITS_OWN + 2)
    publisher.open.set()
    worker = Loop(Settings(batch=10, memory_decisions=most), MemoryStore(), publisher, Specs(specs(names)))  # type: ignore[arg-type]
    await worker.claim(frozenset({0}), {})
    for k, name in enumerate(names):
        value = {"session": name, "event": "e", "time": "2026-01-01T00:00:00Z", "forecasts": {"a": 0.5}}
        await worker.process("forecasts", 0, [Record("forecasts", k, json.dumps(value).encode(), name.encode())])  # type: ignore[list-item]
    held = worker.owned[0].sessions
    assert list(held) == names[-20:]
    assert held.size == sum(OF_ITS_OWN + len(s.events) + len(s.tallies) for s in held.values()) <= most
    assert sum(row.topic == "actions" for row in publisher.rows) == len(names)


@pytest.fixture
async def working() -> tuple[Loop, MemoryStore, Publisher]:
    store, publisher = MemoryStore(), Publisher()
    worker = Loop(Settings(batch=2, dead_letter_run=3), store, publisher, Specs(specs(["s0"])))  # type: ignore[arg-type]
    await worker.claim(frozenset({0}), {})
    return worker, store, publisher


def of_one(count: int, then: bytes | None = None) -> list[Record]:
    values = [
        {"session": "s0", "event": f"e{k}", "time": "2026-01-01T00:00:00Z", "forecasts": {"a": 0.5}}
        for k in range(count)
    ]
    records = topic("forecasts", values)
    return records if then is None else [*records, *(Record("forecasts", count + k, then, b"s0") for k in range(4))]


async def until_committed(store: MemoryStore, offset: int) -> None:
    async with asyncio.timeout(10):
        while (await store.peek(0)).next_offsets.get("forecasts") != offset:  # noqa: ASYNC110 # it can only be asked
            await asyncio.sleep(0)


async def test_the_next_batch_is_committed_while_outputs_are_on_their_way(
    working: tuple[Loop, MemoryStore, Publisher],
) -> None:
    worker, store, publisher = working
    doing = asyncio.ensure_future(worker.process("forecasts", 0, of_one(6)))  # type: ignore[arg-type]
    await until_committed(store, 4)  # the second of three batches; the third waits until the first is delivered
    for _ in range(100):
        await asyncio.sleep(0)
    assert (publisher.rows, doing.done()) == ([], False)
    assert [Outputs.unpack(blob).next for _, blob in (await store.peek(0)).outbox] == [2, 4]
    publisher.open.set()
    await doing
    events = [json.loads(row.value)["event"] for row in publisher.rows if row.topic == "actions"]
    assert events == [f"e{k}" for k in range(6)]
    await worker.finish()
    assert (await store.peek(0)).outbox == []


async def test_what_was_on_its_way_is_delivered_when_the_next_batch_is_refused(
    working: tuple[Loop, MemoryStore, Publisher],
) -> None:
    worker, store, publisher = working
    doing = asyncio.ensure_future(worker.process("forecasts", 0, of_one(2, b"no json")))  # type: ignore[arg-type]
    await until_committed(store, 4)
    publisher.open.set()
    with pytest.raises(RefusedError, match="in a row"):
        await doing
    assert [row.topic for row in publisher.rows].count("actions") == 2
    assert (await store.peek(0)).next_offsets["forecasts"] == 4


async def test_a_cancelled_run_takes_what_is_on_its_way_with_it(working: tuple[Loop, MemoryStore, Publisher]) -> None:
    worker, store, publisher = working
    doing = asyncio.ensure_future(worker.process("forecasts", 0, of_one(6)))  # type: ignore[arg-type]
    await until_committed(store, 4)
    doing.cancel()
    await asyncio.wait({doing})
    assert doing.cancelled()
    publisher.open.set()
    await asyncio.sleep(0)
    assert publisher.rows == []
    assert len((await store.peek(0)).outbox) == 2  # for the next owner
