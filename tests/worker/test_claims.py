"""What the loop decides at a claim and after a batch that failed, without servers: the store's twin, and a publisher
that remembers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from stream_agg.errors import FencedError, RefusedError, UnavailableError
from stream_agg.store.memory import MemoryStore
from stream_agg.store.tables import Commit
from stream_agg.worker.loop import Loop
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Outputs, Row

SPEC = {"session": "s", "experts": {"a": {"levels": 3}}, "actions": {"stay": [1, 0], "go": [0, 2]}}
NONE: dict[tuple[str, int], int | None] = {}


@dataclass
class Record:
    topic: str
    offset: int
    value: bytes
    key: bytes = b"s"
    partition: int = 0
    timestamp: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


def forecast(k: int) -> Record:
    value = {"session": "s", "event": f"e{k}", "time": "2026-01-01T00:00:00Z", "forecasts": {"a": 0.5}}
    return Record("forecasts", k, json.dumps(value).encode())


@dataclass
class Publisher:
    """Keeps what it is given; `marks` is what it claims to have published before."""

    marks: dict[str, int] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    away: int = 0

    async def claim(self, partition: int) -> Mapping[str, int]:
        return self.marks

    async def publish(self, partition: int, outputs: Outputs) -> None:
        if self.away:
            self.away -= 1
            raise UnavailableError("away")
        self.sent += [dict(row.headers)["ce_id"] for row in outputs.rows if row.topic == "actions"]

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@dataclass
class Specs:
    topic: str = "sessions"
    records: list[Record] = field(default_factory=lambda: [Record("sessions", 0, json.dumps(SPEC).encode())])

    async def earliest(self, topics: Sequence[str], partition: int) -> dict[str, int]:
        return dict.fromkeys(topics, 0)

    def read_from(self, offsets: Mapping[int, int]) -> None: ...

    async def poll(self, partition: int, timeout_ms: int = 0) -> list[Record]:
        return self.records

    async def rest(self, partition: int) -> Any:
        yield self.records


def loop(store: MemoryStore, publisher: Publisher | None = None, **settings: Any) -> Loop:
    return Loop(Settings(**settings), store, publisher or Publisher(), Specs())  # type: ignore[arg-type]


async def own(
    worker: Loop, committed: dict[tuple[str, int], int | None] | None = None
) -> Mapping[tuple[str, int], int]:
    return await worker.claim(frozenset({0}), committed or NONE)


async def work(worker: Loop, *offsets: int) -> None:
    await worker.process("forecasts", 0, [forecast(k) for k in offsets])  # type: ignore[arg-type]


async def test_topics_other_than_those_of_the_store_are_refused_before_anything_is_touched() -> None:
    store = MemoryStore()
    first = loop(store)
    await own(first)
    await work(first, 0, 1)
    before = await store.peek(0)
    with pytest.raises(RefusedError, match=r"was read from forecasts.*STREAM_AGG_TOPIC_"):
        await own(loop(store, topic_forecasts="others"))
    assert await store.peek(0) == before


async def test_a_store_behind_the_group_is_said_and_gone_back_to(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    first = loop(store)
    await own(first)
    await work(first, 0, 1)
    offsets = await own(loop(store), {("forecasts", 0): 9})
    assert offsets["forecasts", 0] == 2
    assert "Redis went back in time: it has applied the records before 2, those before 9 had been" in caplog.text


async def test_what_was_published_before_the_store_went_back_is_applied_without_a_word() -> None:
    store, publisher = MemoryStore(), Publisher(marks={"forecasts": 2})
    worker = loop(store, publisher)
    await own(worker)
    await work(worker, 0, 1, 2, 3)
    assert publisher.sent == ["s/e2", "s/e3"]
    assert (await store.peek(0)).next_offsets["forecasts"] == 4


async def test_an_outbox_that_its_mark_covers_is_not_published_again() -> None:
    store = MemoryStore()
    first = loop(store)
    await own(first)
    await work(first, 0)
    epoch = (await store.peek(0)).epoch
    rows = [Row("actions", "s", b"x", (("ce_id", "s/e1"),))]
    blob = Outputs("forecasts", 2, rows).pack()
    await store.commit(Commit(0, epoch, "forecasts", 1, 2, outbox=blob))
    for marks, sent in (({"forecasts": 1}, ["s/e1"]), ({"forecasts": 2}, [])):
        publisher = Publisher(marks=marks)
        claim = await store.peek(0)
        await own(loop(store, publisher))
        assert publisher.sent == sent
        store._partitions[0].outbox = dict(claim.outbox)


async def test_a_batch_that_failed_is_the_last_under_its_claim() -> None:
    store = MemoryStore()
    worker = loop(store)
    await own(worker)

    async def broken(commit: Commit) -> Any:
        raise ZeroDivisionError

    commit, store.commit = store.commit, broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await work(worker, 0)
    store.commit = commit  # type: ignore[method-assign]
    with pytest.raises(FencedError, match="was given up"):
        await work(worker, 0)  # its sessions hold what was not committed
    await own(worker)
    await work(worker, 0, 1)
    tables = await store.load(0, "s")
    assert tables is not None
    assert json.loads(tables["state"]["counters"])["round"] == 2


async def test_who_waits_for_kafka_is_told_that_another_has_claimed() -> None:
    store, publisher = MemoryStore(), Publisher(away=10**9)
    worker = loop(store, publisher)
    await own(worker)
    publish = publisher.publish

    async def meanwhile(partition: int, outputs: Outputs) -> None:
        await store.claim(0)  # by another, right after our commit
        await publish(partition, outputs)

    publisher.publish = meanwhile  # type: ignore[method-assign]
    with pytest.raises(FencedError, match="while Kafka was away"):
        await work(worker, 0)


async def test_published_outputs_are_let_go_at_a_rebalance() -> None:
    store = MemoryStore()
    worker = loop(store)
    await own(worker)
    await work(worker, 0)
    assert (await store.peek(0)).outbox
    await worker.revoke(frozenset({0}))
    assert not (await store.peek(0)).outbox
