"""Exactly once, on a broker with transactions: what a reader of committed records is given, whatever happened."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from _servers import Kafka
from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_agg.errors import UnavailableError
from stream_agg.worker.broker import create_topics
from stream_agg.worker.publish import ExactlyOnce
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Outputs, Row

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


@pytest.fixture
async def settings(kafka: Kafka) -> Settings:
    name = uuid.uuid4().hex[:8]
    topics = {f: f"{f.removeprefix('topic_')}-{name}" for f in Settings.__slots__ if f.startswith("topic_")}
    settings = Settings(brokers=kafka.address, app=name, delivery="exactly_once", partitions=1, **topics)  # type: ignore[arg-type]
    await create_topics(settings)
    return settings


@pytest.fixture
async def worker(settings: Settings) -> AsyncIterator[Callable[[], object]]:
    async with AsyncExitStack() as stack:

        async def start() -> ExactlyOnce:
            publisher = ExactlyOnce(settings)
            await publisher.start()
            stack.push_async_callback(publisher.stop)
            await ready(publisher)
            return publisher

        yield start


async def ready(publisher: ExactlyOnce) -> None:
    """A broker makes the topic of its groups when it is first asked for one."""
    async with asyncio.timeout(30):
        while True:
            try:
                await publisher.claim(1)
            except UnavailableError:
                await asyncio.sleep(0.1)
            else:
                return


def batch(settings: Settings, reaches: int) -> Outputs:
    rows = [Row(settings.topic_actions, "s", f"{reaches} {k}".encode(), ()) for k in range(3)]
    return Outputs(settings.topic_forecasts, reaches, rows)


async def committed(settings: Settings) -> list[str]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.broker_list, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    tp = TopicPartition(settings.topic_actions, 0)
    consumer.assign([tp])
    end, found = (await consumer.end_offsets([tp]))[tp], []
    await consumer.seek_to_beginning(tp)
    while await consumer.position(tp) < end:
        found += [r.value.decode() for r in (await consumer.getmany(tp, timeout_ms=500)).get(tp, [])]
    await consumer.stop()
    return found


async def test_the_mark_comes_with_the_rows(settings: Settings, worker: Callable[[], object]) -> None:
    one = await worker()  # type: ignore[misc]
    assert await one.claim(0) == {}
    await one.publish(0, batch(settings, 10))
    await one.publish(0, batch(settings, 20))
    two = await worker()  # type: ignore[misc]
    assert await two.claim(0) == {settings.topic_forecasts: 20}
    assert await committed(settings) == [f"{n} {k}" for n in (10, 20) for k in range(3)]


async def test_a_new_owner_shuts_the_old_one_out(settings: Settings, worker: Callable[[], object]) -> None:
    old, new = await worker(), await worker()  # type: ignore[misc]
    await old.claim(0)
    await old.publish(0, batch(settings, 10))
    await new.claim(0)
    with pytest.raises(UnavailableError):
        await old.publish(0, batch(settings, 20))
    await new.publish(0, batch(settings, 20))
    await old.publish(0, batch(settings, 20))  # as it would if it were told that it is the owner after all
    assert await committed(settings) == [f"{n} {k}" for n in (10, 20) for k in range(3)]


async def test_what_was_left_open_is_sent_by_the_next_owner_alone(
    settings: Settings, worker: Callable[[], object]
) -> None:
    old, new = await worker(), await worker()  # type: ignore[misc]
    await old.claim(0)
    producer = old._producers[0]
    await producer.begin_transaction()
    for row in batch(settings, 10).rows:
        await producer.send_and_wait(row.topic, row.value, key=row.key.encode())
    assert await new.claim(0) == {}
    await new.publish(0, batch(settings, 10))
    assert await committed(settings) == [f"10 {k}" for k in range(3)]


async def test_an_end_that_nobody_heard_of_is_not_repeated(settings: Settings, worker: Callable[[], object]) -> None:
    one = await worker()  # type: ignore[misc]
    await one.claim(0)
    commit = one._producers[0].commit_transaction

    async def and_then_nothing() -> None:
        await commit()
        raise TimeoutError

    one._producers[0].commit_transaction = and_then_nothing
    with pytest.raises(UnavailableError):
        await one.publish(0, batch(settings, 10))
    await one.publish(0, batch(settings, 10))
    assert await committed(settings) == [f"10 {k}" for k in range(3)]
