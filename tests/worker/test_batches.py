"""The worker's way of records against a real broker: order, nothing lost, nothing skipped, whoever joins or leaves."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any
from unittest.mock import AsyncMock

import aiokafka
import faust
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.consumer.fetcher import Fetcher

from stream_agg.embedded import Broker
from stream_agg.errors import FencedError, RefusedError, UnavailableError
from stream_agg.worker import batches
from stream_agg.worker.app import build_app, run

_DEADLINE_S = 25.0
_MOVES = 0  # of two partitions, the one that Faust's assignor gives to a second worker
_names = itertools.count()


class Store:
    """What the real store promises, in memory: epochs, next offsets, all or nothing."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = defaultdict(int)
        self.next: dict[tuple[str, int], int] = {}
        self.applied: dict[tuple[str, int], list[int]] = defaultdict(list)


class Keeper:
    """A handler over a store that several of them may share. It fails where a record was skipped."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.epochs: dict[int, int] = {}
        self.hints: list[Mapping[tuple[str, int], int | None]] = []
        self.starts: list[tuple[str, int, int]] = []
        self.worked: set[tuple[str, int]] = set()
        self.at: tuple[str, int, int] | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.fenced = 0

    async def claim(
        self, partitions: frozenset[int], committed: Mapping[tuple[str, int], int | None]
    ) -> Mapping[tuple[str, int], int]:
        assert self.at is None, "a claim and a process at the same time"
        assert committed.keys() == set(itertools.product({t for t, _ in committed}, partitions))
        assert len(committed) == 2 * len(partitions), "partition p of both topics must be with the same worker"
        self.hints.append(dict(committed))
        self.worked.clear()
        for p in partitions:
            self.store.epochs[p] += 1
        self.epochs = {p: self.store.epochs[p] for p in partitions}
        return {tp: self.store.next[tp] for tp in committed if tp in self.store.next}

    async def revoke(self, partitions: frozenset[int]) -> None:
        for p in partitions:
            self.epochs.pop(p, None)

    async def process(self, topic: str, partition: int, records: Sequence[aiokafka.ConsumerRecord]) -> None:
        epoch, first = self.epochs[partition], records[0].offset
        expected = self.store.next.get((topic, partition), first)
        self.at = (topic, partition, first)
        self.starts.append(self.at)
        try:
            await self.open.wait()
            self.check(records)
        finally:
            self.at = None
        if self.store.epochs[partition] != epoch:
            self.fenced += 1
            raise FencedError(f"partition {partition} is claimed by another")
        assert first <= expected or self.gaps, f"{topic}[{partition}]: {expected} to {first} were skipped"
        self.store.applied[topic, partition] += [int(r.value) for r in records if r.offset >= expected]
        self.store.next[topic, partition] = max(expected, records[-1].offset + 1)
        self.worked.add((topic, partition))
        await asyncio.sleep(self.pause_s)

    gaps = False
    pause_s = 0.0

    def check(self, records: Sequence[aiokafka.ConsumerRecord]) -> None:
        """For a test to add its own."""


class Kafka:
    """A topic set of one test, and what the test does to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.group = f"group-{next(_names)}"
        self.topics = [f"{self.group}-a", f"{self.group}-b"]
        self.sent: dict[tuple[str, int], int] = defaultdict(int)

    async def __aenter__(self) -> Kafka:
        self.admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        self.producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self.address)
        await self.admin.start()
        await self.producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.producer.stop()
        await self.admin.close()

    async def create(self, partitions: int) -> None:
        await self.admin.create_topics([NewTopic(t, partitions, 1) for t in self.topics])

    async def send(self, count: int, *, topic: int = 0, partition: int = 0, size: int = 0) -> None:
        """Send the next `count` numbers; a partition's records are numbered from 0."""
        name = self.topics[topic]
        for _ in range(count):
            number = self.sent[name, partition]
            await self.producer.send(name, str(number).zfill(size).encode(), partition=partition)
            self.sent[name, partition] += 1
        await self.producer.flush()

    async def committed(self, topic: int = 0, partition: int = 0) -> int | None:
        tp = aiokafka.TopicPartition(self.topics[topic], partition)
        offset = (await self.admin.list_consumer_group_offsets(self.group, partitions=[tp]))[tp].offset
        return None if offset == -1 else offset

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """As an earlier worker of the group would have."""
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self.address, group_id=self.group)
        await consumer.start()
        tps = {p: aiokafka.TopicPartition(self.topics[0], p) for p in offsets}
        consumer.assign(list(tps.values()))
        await consumer.commit({tps[p]: offset for p, offset in offsets.items()})
        await consumer.stop()

    def app(self, handler: Any, **options: Any) -> faust.App:
        return build_app(
            app_id=self.group,
            brokers=[self.address],
            topics=self.topics,
            handler=handler,
            **{"session_timeout_s": 6.0, "rebalance_timeout_s": 4.0, "commit_interval_s": 0.2, **options},
        )

    @asynccontextmanager
    async def worker(self, handler: Any, **options: Any) -> AsyncIterator[faust.App]:
        app, stop = self.app(handler, **options), asyncio.Event()
        running = asyncio.create_task(run(app, stop))
        try:
            yield app
        finally:
            stop.set()
            await running

    def all_applied(self, store: Store) -> bool:
        return all(len(store.applied[tp]) >= n for tp, n in self.sent.items())

    def check_once(self, store: Store) -> None:
        assert store.applied == {tp: list(range(n)) for tp, n in self.sent.items()}


async def until(condition: Callable[[], Any], seconds: float = _DEADLINE_S) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in Faust, which sets no event of ours
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
async def kafka(broker: Broker) -> AsyncIterator[Kafka]:
    async with Kafka(broker.address) as kafka:
        yield kafka


def test_pins() -> None:
    """Before you move a pin, read in the new version what `batches.py` overrides or touches:

    - faust `Consumer`: `_drain_messages`, `perform_seek` and who calls it, `on_partitions_revoked/assigned`,
      `commit`, `_filter_committable_offsets`, `_committed_offset`, `stop_flow`; the order of calls in
      `Recovery._resume_streams`; `App.on_stop`; `AIOKafkaConsumerThread._create_worker_consumer` and `on_thread_stop`;
      `Topic._compile_decode`; the fields of `ConsumerMessage`; the co-partitioning of `PartitionAssignor`.
    - mode: `CrashingSupervisor`, `QueueServiceThread.call_thread`, `Service.wait_until_stopped`.
    - aiokafka: `Fetcher.fetched_records` (with timeout 0 it must not yield), `_create_fetch_waiter`, `_subscriptions`,
      `AIOKafkaConsumer._isolation_level`, `_fetch_max_wait_ms`.
    """
    assert version("faust-streaming") == "0.15.3"
    assert version("mode-streaming") == "0.7.1"
    assert version("aiokafka") == "0.14.0"


async def test_every_record_is_handed_over_once_in_order(kafka: Kafka) -> None:
    await kafka.create(2)
    for topic, partition in itertools.product((0, 1), (0, 1)):
        await kafka.send(700, topic=topic, partition=partition)
    keeper, before = Keeper(), asyncio.all_tasks()
    async with kafka.worker(keeper, run_records=100):
        await until(lambda: kafka.all_applied(keeper.store))
        await kafka.send(5, topic=1)  # and what comes later
        await until(lambda: kafka.all_applied(keeper.store))
    kafka.check_once(keeper.store)
    assert [await kafka.committed(t, p) for t, p in ((0, 0), (0, 1), (1, 0), (1, 1))] == [700, 700, 705, 700]
    assert len(keeper.hints) == 1
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}


async def test_the_claim_decides_where_to_read(kafka: Kafka) -> None:
    await kafka.create(3)
    for partition in range(3):
        await kafka.send(60, partition=partition)
    await kafka.commit({0: 50, 1: 20, 2: 50})
    keeper = Keeper()
    a = kafka.topics[0]
    keeper.store.next = {(a, 0): 20, (a, 1): 50}
    async with kafka.worker(keeper):
        await until(lambda: [keeper.store.next.get((a, p)) for p in range(3)] == [60, 60, 60])
    assert [keeper.hints[0][a, p] for p in range(3)] == [50, 20, 50]
    assert [min(first for _, q, first in keeper.starts if q == p) for p in range(3)] == [20, 50, 0]
    assert [await kafka.committed(partition=p) for p in range(3)] == [60, 60, 60]


async def test_an_unfinished_run_is_not_committed_past(kafka: Kafka) -> None:
    """Faust alone commits 104 where 101 to 103 are acknowledged while 100 is under way (its issue 606)."""
    await kafka.create(1)
    await kafka.send(104)
    await kafka.commit({0: 100})
    keeper = Keeper()
    keeper.store.next = {(kafka.topics[0], 0): 100}
    keeper.open.clear()
    async with kafka.worker(keeper, run_records=1) as app:
        await until(lambda: keeper.at)
        await app.consumer.commit()
        assert await kafka.committed() == 100
        keeper.check = lambda records: keeper.open.clear()  # type: ignore[method-assign]
        keeper.open.set()
        await until(lambda: keeper.at and keeper.at[2] == 101)
        await app.consumer.commit()
        assert await kafka.committed() == 101
        keeper.open.set()
        await until(lambda: keeper.at and keeper.at[2] == 102)
        keeper.pause_s = 0.1

        async def release() -> None:
            await until(lambda: not app.consumer.flow_active)
            keeper.open.set()

        releasing = asyncio.create_task(release())
    await releasing
    assert await kafka.committed() == 103, "a stop lets the run under way end, and begins no other"


async def test_what_stops_the_worker(broker: Broker) -> None:
    class SpoiledError(ValueError):
        pass

    class Fails(Keeper):
        def check(self, records: Sequence[aiokafka.ConsumerRecord]) -> None:
            if records[-1].offset >= 25:
                raise SpoiledError

    class Unclaimable(Keeper):
        async def claim(self, partitions: Any, committed: Any) -> Any:
            raise SpoiledError

    class Ahead(Keeper):
        async def claim(self, partitions: Any, committed: Any) -> Any:
            return {tp: 41 for tp in committed if tp[0].endswith("-a")}

    class Gone(Keeper):
        async def claim(self, partitions: Any, committed: Any) -> Any:
            return {tp: 3 for tp in committed if tp[0].endswith("-a")}

    class Fenced(Keeper):
        def check(self, *_: Any) -> None:
            raise FencedError("by a worker that this group does not know")

    async def outcome(handler: Keeper) -> tuple[str, int | None]:
        async with Kafka(broker.address) as kafka:
            await kafka.create(1)
            await kafka.send(40)
            app = kafka.app(handler, run_records=10)
            if isinstance(handler, Gone):  # the embedded broker deletes nothing
                app.consumer._thread.offsets_earliest = AsyncMock(side_effect=lambda tps: dict.fromkeys(tps, 10))
            with pytest.raises((SpoiledError, RefusedError)) as caught:
                await asyncio.wait_for(run(app, asyncio.Event()), _DEADLINE_S)
            return f"{caught.typename} {caught.value}", await kafka.committed()

    async def stopped_at_once() -> None:
        kafka, stop = Kafka(broker.address), asyncio.Event()
        stop.set()
        await run(kafka.app(Keeper()), stop)

    threads = threading.active_count()
    handlers = [Fails(), Unclaimable(), Ahead(), Gone(), Fenced()]
    stopping = asyncio.create_task(stopped_at_once())
    fails, unclaimable, ahead, gone, fenced = await asyncio.gather(*map(outcome, handlers))
    await stopping
    assert fails == ("SpoiledError ", 20)
    assert unclaimable == ("SpoiledError ", None)
    assert "offset 41 is next, and the topic ends before" in ahead[0]
    assert "7 records are gone: offset 3 is next" in gone[0]
    assert fenced[0].startswith("FencedError")
    assert threading.active_count() == threads


async def test_a_stop_without_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_COMMIT_S", 0.2)
    threads = threading.active_count()
    keeper = Keeper()
    with Broker() as broker:
        async with Kafka(broker.address) as kafka:
            await kafka.create(1)
            await kafka.send(10)
        async with asyncio.timeout(_DEADLINE_S), kafka.worker(keeper, commit_interval_s=1000.0):
            await until(lambda: kafka.all_applied(keeper.store))
            broker.kill()
    assert threading.active_count() == threads


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # Faust raises in its thread, too
async def test_a_start_without_a_broker() -> None:
    threads = threading.active_count()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        kafka = Kafka(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(UnavailableError, match="the broker failed"):
            await asyncio.wait_for(run(kafka.app(Keeper()), asyncio.Event()), _DEADLINE_S)
    await until(lambda: threading.active_count() == threads)


async def test_workers_join_and_leave_during_traffic(kafka: Kafka) -> None:
    await kafka.create(5)
    store, fed = Store(), asyncio.Event()
    a, b, c = (Keeper(store) for _ in range(3))

    async def feed() -> None:
        while not fed.is_set():
            for topic, partition in itertools.product((0, 1), range(5)):
                await kafka.send(5, topic=topic, partition=partition)

    def shared(*keepers: Keeper) -> bool:
        """Whether each has its share, and has worked on all of it."""
        parts = [set(k.epochs) for k in keepers]
        return (
            sum(map(len, parts)) == len(set().union(*parts)) == 5
            and max(map(len, parts)) - min(map(len, parts)) <= 1
            and all(len(k.worked) == 2 * len(p) for k, p in zip(keepers, parts, strict=True))
        )

    feeding = asyncio.create_task(feed())
    try:
        async with kafka.worker(a, run_records=20):
            await until(lambda: shared(a))
            async with kafka.worker(b, run_records=20), kafka.worker(c, run_records=20):
                await until(lambda: shared(a, b, c))
            await until(lambda: shared(a))
            fed.set()
            await feeding
            await until(lambda: kafka.all_applied(store))
    finally:
        feeding.cancel()
    kafka.check_once(store)


async def test_a_worker_without_a_partition_takes_over(kafka: Kafka) -> None:
    await kafka.create(1)
    store = Store()
    a, b = Keeper(store), Keeper(store)
    async with kafka.worker(a, run_records=20, finish_s=0.1) as first:
        await kafka.send(100)
        await until(lambda: kafka.all_applied(store))
        async with kafka.worker(b, run_records=20) as second:
            await until(lambda: second.unassigned and second.consumer.flow_active and not second.rebalancing)
            await kafka.send(100)
            await until(lambda: kafka.all_applied(store))
            assert b.hints == []
            a.open.clear()
            await kafka.send(100)
            stopping = asyncio.create_task(first.stop())
            await until(lambda: b.hints)
            await kafka.send(100)
            await until(lambda: kafka.all_applied(store))
            await stopping
    kafka.check_once(store)
    assert len(b.hints) == 1


async def test_what_waits_across_a_rebalance_is_not_lost(kafka: Kafka) -> None:
    await kafka.create(2)
    store = Store()
    a, b = Keeper(store), Keeper(store)
    async with kafka.worker(a, run_records=10, runs_ahead=3) as app:
        a.open.clear()
        await kafka.send(100, partition=_MOVES)
        await until(lambda: a.at and sum(r.waiting for r in app.consumer._readers.values()) >= 3)
        for topic, partition in ((0, 1 - _MOVES), (1, 0), (1, 1)):
            await kafka.send(100, topic=topic, partition=partition)
        async with kafka.worker(b, run_records=10):
            await until(lambda: len(store.applied[kafka.topics[1], _MOVES]) == 100)
            assert b.epochs.keys() == {_MOVES}
            assert len(a.hints) == 1, "the claim waits for the run under way"
            a.open.set()
            await until(lambda: kafka.all_applied(store))
    kafka.check_once(store)
    assert (a.fenced, len(a.hints)) == (1, 2)


async def test_a_backlog_waits_in_the_broker(kafka: Kafka) -> None:
    await kafka.create(2)
    for topic, partition in itertools.product((0, 1), (0, 1)):
        await kafka.send(1000, topic=topic, partition=partition, size=1000)
    keeper, handed, most = Keeper(), 0, 0
    keeper.pause_s = 0.005
    async with kafka.worker(keeper, run_records=50, runs_ahead=3) as app:
        callback = app.consumer.callback

        async def count(message: Any) -> None:
            nonlocal handed, most
            handed += len(message.value.records)
            most = max(most, handed - sum(map(len, keeper.store.applied.values())))
            await callback(message)

        app.consumer.callback = count
        await until(lambda: kafka.all_applied(keeper.store))
    kafka.check_once(keeper.store)
    assert 100 <= most <= 150
    assert len(keeper.hints) == 1


async def test_what_is_lost_on_the_way_is_read_again(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    await kafka.create(1)
    keeper = Keeper()
    async with kafka.worker(keeper, run_records=10) as app:
        fetch, callback = app.consumer._thread.fetch, app.consumer.callback
        lost = []

        async def lose_answer(expected: Any, most: int) -> Any:
            got = await fetch(expected, most)
            if got.moved and "answer" not in lost:
                lost.append("answer")
                return got._replace(moved={})
            return got

        async def lose_run(message: Any) -> None:
            if message.offset == 29:
                lost.append("run")
                return
            await callback(message)

        app.consumer._thread.fetch, app.consumer.callback = lose_answer, lose_run
        await kafka.send(50)
        await until(lambda: "run" in lost)
        app.consumer.callback = callback
        await until(lambda: kafka.all_applied(keeper.store))
    kafka.check_once(keeper.store)
    assert "got offset 30 where 20 is next: reading again" in caplog.text


async def test_offsets_without_records(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """As transactions leave them; the embedded broker has none."""

    class Gaps(Keeper):
        gaps = True

    fetched_records = Fetcher.fetched_records

    async def without(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = await fetched_records(self, *args, **kwargs)
        kept = {tp: [r for r in records if not 7 <= r.offset < 23] for tp, records in found.items()}
        return {tp: records for tp, records in kept.items() if records}

    monkeypatch.setattr(Fetcher, "fetched_records", without)
    await kafka.create(1)
    await kafka.send(40)
    keeper = Gaps()
    async with kafka.worker(keeper, run_records=10):
        await until(lambda: keeper.store.next.get((kafka.topics[0], 0)) == 40)
    assert keeper.store.applied == {(kafka.topics[0], 0): [*range(7), *range(23, 40)]}
    assert await kafka.committed() == 40
