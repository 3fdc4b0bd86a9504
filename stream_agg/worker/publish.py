"""Outputs to Kafka, every delivery awaited: at least once, or each batch exactly once in a transaction of its own.

When to publish, and what, is the loop's business. A publisher only knows that a batch reaches up to an offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, MessageSizeTooLargeError, UnknownError

from stream_agg.errors import RefusedError, UnavailableError
from stream_agg.worker import kafka
from stream_agg.worker.failpoints import reach
from stream_agg.worker.marks import Marks, read_marks
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Outputs, Row

_log = logging.getLogger(__name__)

SHORT = 64 << 10
"""Bytes that are kept of a dead letter too large for its topic: less than any broker's limit, enough to tell by."""

PARCEL = 256 << 10
"""Bytes that are sent to a partition at once: hundreds of actions, and a quarter of what brokers take by default."""

LARGEST = 16 << 20
"""Bytes of the largest value that is sent: a rule of 64 experts, or a dead letter as large as brokers take."""

_CLOSE_S = 5.0  # a producer whose broker is away is given up after that


class Publisher(Protocol):
    """Where the outputs go. Every method raises `UnavailableError` where the broker does not do it now: ask again."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Let go of the connections."""

    async def claim(self, partition: int) -> Marks:
        """Become the one who publishes for an input partition: how far outputs are known to have been published."""

    async def publish(self, partition: int, outputs: Outputs) -> None:
        """Deliver every row, in order per key.

        A dead letter that is larger than its topic takes goes without its end, and says so in a header; for any other
        record that is a `RefusedError`.
        """


def publisher_of(settings: Settings) -> Publisher:
    """The publisher of `settings.delivery`."""
    return ExactlyOnce(settings) if settings.delivery == "exactly_once" else AtLeastOnce(settings)


class AtLeastOnce:
    """One producer for all partitions. What was not acknowledged is sent again, the same to the byte."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._producer = _producer(settings)

    async def start(self) -> None:
        await kafka.start(self.settings, self._producer)

    async def stop(self) -> None:
        await self._producer.stop()

    async def claim(self, partition: int) -> Marks:
        return {}

    async def publish(self, partition: int, outputs: Outputs) -> None:
        refused = await _deliver(self.settings, self._producer, outputs.rows)
        if refused:
            refused = await _deliver(self.settings, self._producer, refused, alone=True)
            await _deliver(self.settings, self._producer, [_short(self.settings, row) for row in refused], alone=True)


class ExactlyOnce:
    """A producer for each partition, and with every batch, in one transaction, a mark of how far it reaches.

    A mark is a committed offset of an input topic under a group of its own. A transactional id belongs to one
    partition of the app: whoever claims it last shuts the others out. A producer that failed is replaced, and the new
    one reads the marks before it sends anything: what had been published after all is not published again.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._group = f"{settings.app}.published"
        self._producers: dict[int, AIOKafkaProducer] = {}
        self._admin = kafka.admin(settings)

    async def start(self) -> None:
        probe = _producer(self.settings, f"{self.settings.app}.check")
        try:
            await kafka.start(self.settings, self._admin)
            await probe.start()
        except (UnknownError, IncompatibleBrokerVersion) as e:
            raise RefusedError(
                f"the broker at {self.settings.brokers} has no transactions, which delivery exactly_once needs: use "
                "Apache Kafka, or set STREAM_AGG_DELIVERY=at_least_once and drop repeated ids where you read"
            ) from e
        except (KafkaError, OSError) as e:
            raise kafka.denied(self.settings, e) or await kafka.knock(self.settings) from e
        finally:
            await _close(probe)

    async def stop(self) -> None:
        await asyncio.gather(*(self._drop(partition) for partition in list(self._producers)))
        await self._admin.close()

    async def claim(self, partition: int) -> Marks:
        await self._drop(partition)
        producer = _producer(self.settings, f"{self.settings.app}.{partition}")
        try:
            await producer.start()  # ends, one way or the other, what its predecessor left open
            marks = await read_marks(self._admin, self._group, self.settings.inputs, partition)
        except (KafkaError, OSError, TimeoutError) as e:
            await _close(producer)
            raise kafka.denied(self.settings, e) or UnavailableError(
                f"Kafka gives no transactions for partition {partition}: {e!r}"
            ) from e
        except BaseException:
            await _close(producer)
            raise
        self._producers[partition] = producer
        return marks

    async def publish(self, partition: int, outputs: Outputs) -> None:
        refused = await self._once(partition, outputs)
        if refused:  # a transaction in which something was refused is none
            refused = await self._once(partition, outputs, alone=True)
        if refused:
            rows = [_short(self.settings, row) if row in refused else row for row in outputs.rows]
            await self._once(partition, replace(outputs, rows=rows), alone=True)

    async def _once(self, partition: int, outputs: Outputs, alone: bool = False) -> Sequence[Row]:
        """One transaction, committed unless rows are too large: those are returned."""
        if partition not in self._producers:
            marks = await self.claim(partition)
            if outputs.next <= marks.get(outputs.topic, 0):
                return ()
        try:
            refused = await self._transact(partition, outputs, alone)
        except BaseException:
            await self._drop(partition)
            raise
        if refused:
            await self._drop(partition)
        return refused

    async def _transact(self, partition: int, outputs: Outputs, alone: bool) -> Sequence[Row]:
        producer = self._producers[partition]
        mark = {TopicPartition(outputs.topic, partition): outputs.next}
        try:
            await producer.begin_transaction()
            refused = await _deliver(self.settings, producer, outputs.rows, alone)
            if refused:
                return refused
            await producer.send_offsets_to_transaction(mark, self._group)
            reach("during_publish")
            async with asyncio.timeout(self.settings.kafka_timeout_s):
                await producer.commit_transaction()
        except (KafkaError, OSError, TimeoutError) as e:
            raise kafka.denied(self.settings, e, "WRITE") or UnavailableError(
                f"Kafka did not take a transaction of partition {partition}: {e!r}"
            ) from e
        return ()

    async def _drop(self, partition: int) -> None:
        producer = self._producers.pop(partition, None)
        if producer is not None:
            await _close(producer)


def _producer(settings: Settings, transactional_id: str | None = None) -> AIOKafkaProducer:
    return kafka.producer(
        settings,
        acks="all",
        request_timeout_ms=int(settings.kafka_timeout_s * 1000),
        max_batch_size=PARCEL,
        max_request_size=LARGEST,
        transactional_id=transactional_id,
    )


async def _close(producer: AIOKafkaProducer) -> None:
    closing = asyncio.ensure_future(producer.stop())
    with suppress(KafkaError, OSError, TimeoutError):
        await asyncio.wait_for(closing, _CLOSE_S)


class _Parcel(NamedTuple):
    """Rows that go to one partition in one batch."""

    rows: Sequence[Row]
    delivery: Awaitable[object]


async def _deliver(
    settings: Settings, producer: AIOKafkaProducer, rows: Sequence[Row], alone: bool = False
) -> Sequence[Row]:
    """Send rows, in order per topic and key, and await them all; returns those that client or broker found too large,
    with all that went in one batch with them unless each goes `alone`."""
    refused = [row for row in rows if len(row.value) > LARGEST]
    parcels: list[_Parcel] = []
    try:
        for (topic, partition), some in (await _sorted(producer, rows)).items():
            for builder, packed in _packed(producer, some, alone):
                parcels.append(_Parcel(packed, await producer.send_batch(builder, topic, partition=partition)))
    except (KafkaError, OSError) as e:
        await asyncio.gather(*(parcel.delivery for parcel in parcels), return_exceptions=True)
        raise kafka.denied(settings, e, "WRITE") or UnavailableError(f"Kafka takes no records: {e}") from e
    answers = await asyncio.gather(*(parcel.delivery for parcel in parcels), return_exceptions=True)
    for parcel, answer in zip(parcels, answers, strict=True):
        if isinstance(answer, MessageSizeTooLargeError):
            refused += parcel.rows
        elif isinstance(answer, (KafkaError, OSError, TimeoutError)):
            topic = parcel.rows[0].topic
            raise kafka.denied(settings, answer, "WRITE") or UnavailableError(
                f"Kafka did not acknowledge a record of {topic}: {answer!r}"
            ) from answer
        elif isinstance(answer, BaseException):
            raise answer
    return refused


async def _sorted(producer: AIOKafkaProducer, rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    """(topic, partition) -> its rows in order, without those that no request can hold."""
    sizes = {topic: len(await producer.partitions_for(topic)) for topic in {row.topic for row in rows}}
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if len(row.value) <= LARGEST:
            found.setdefault((row.topic, kafka.partition_of(row.key.encode(), sizes[row.topic])), []).append(row)
    return found


def _packed(producer: AIOKafkaProducer, rows: Sequence[Row], alone: bool) -> Iterator[tuple[Any, Sequence[Row]]]:
    """Batches of at most `PARCEL` bytes, or of one row, with what is in them."""
    start, builder = 0, producer.create_batch()
    for at, row in enumerate(rows):
        headers = [(name, text.encode()) for name, text in row.headers]
        value, key = row.value, row.key.encode()
        full = alone and at > start
        if full or builder.append(timestamp=None, key=key, value=value, headers=headers) is None:
            builder.close()
            yield builder, rows[start:at]
            start, builder = at, producer.create_batch()
            builder.append(timestamp=None, key=key, value=value, headers=headers)  # the first one always fits
    builder.close()  # nothing is added: it need not wait for more
    if rows:
        yield builder, rows[start:]


def _short(settings: Settings, row: Row) -> Row:
    size = len(row.value)
    if row.topic != settings.topic_dead_letters or size <= SHORT:
        raise RefusedError(
            f"a record of {size} bytes is larger than topic {row.topic} takes: raise its max.message.bytes"
        )
    _log.warning("a dead letter of %d bytes is larger than its topic takes: its end is left out", size)
    return row._replace(value=row.value[:SHORT], headers=(*row.headers, ("truncated", str(size))))
