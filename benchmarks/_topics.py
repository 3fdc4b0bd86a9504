"""Topics of a broker, read and filled as a whole. What is in the records is the business of others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

Item = tuple[bytes, bytes]
"""Key and value."""


@asynccontextmanager
async def reader(brokers: str, isolation: str = "read_committed") -> AsyncIterator[AIOKafkaConsumer]:
    """A reader without a group, of what is committed unless told otherwise."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=brokers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=isolation,
        max_partition_fetch_bytes=20 << 20,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def whole(consumer: AIOKafkaConsumer, at: Sequence[TopicPartition]) -> AsyncIterator[Any]:
    """Every record up to the ends as they are now, partition by partition."""
    ends = await consumer.end_offsets(at)
    for tp in at:
        consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        while await consumer.position(tp) < ends[tp]:
            for record in (await consumer.getmany(tp, timeout_ms=500)).get(tp, []):
                if record.offset < ends[tp]:
                    yield record


async def create(brokers: str, topics: Iterable[str], partitions: int, **settings: str) -> None:
    """Topics with so many partitions each; `settings` with _ for a dot."""
    configs = {name.replace("_", "."): value for name, value in settings.items()}
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(t, partitions, 1, topic_configs=configs) for t in topics])
    finally:
        await admin.close()


async def fill(brokers: str, topic: str, partitions: Sequence[Iterable[Item]]) -> None:
    """Append records to each partition, in batches made here: `send` takes ten times as long."""
    producer = AIOKafkaProducer(bootstrap_servers=brokers, max_request_size=4 << 20, max_batch_size=1 << 18)
    await producer.start()
    try:
        for partition, items in enumerate(partitions):
            batch = producer.create_batch()
            for key, value in items:
                if batch.append(key=key, value=value, timestamp=None) is None:
                    batch = await _sent(producer, batch, topic, partition)
                    batch.append(key=key, value=value, timestamp=None)
            await _sent(producer, batch, topic, partition)
        await producer.flush()
    finally:
        await producer.stop()


async def _sent(producer: AIOKafkaProducer, batch: Any, topic: str, partition: int) -> Any:
    batch.close()
    if batch.record_count():
        await producer.send_batch(batch, topic, partition=partition)
    return producer.create_batch()
