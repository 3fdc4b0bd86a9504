"""Outputs to Kafka, every delivery awaited: at least once, or each batch exactly once in a transaction of its own.

When to publish, and what, is the loop's business. A publisher only knows that a batch reaches up to an offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

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
        too_large = await _deliver(self.settings, self._producer, outputs.rows)
        if too_large:
            await _deliver(self.settings, self._producer, [_short(self.settings, row) for row in too_large])


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
        if partition not in self._producers:
            marks = await self.claim(partition)
            if outputs.next <= marks.get(outputs.topic, 0):
                return
        try:
            too_large = await self._transact(partition, outputs)
        except BaseException:
            await self._drop(partition)
            raise
        if too_large:
            await self._drop(partition)
            rows = [_short(self.settings, row) if row in too_large else row for row in outputs.rows]
            await self.publish(partition, replace(outputs, rows=rows))

    async def _transact(self, partition: int, outputs: Outputs) -> Sequence[Row]:
        """One transaction, committed unless rows are too large: those are returned."""
        producer = self._producers[partition]
        mark = {TopicPartition(outputs.topic, partition): outputs.next}
        try:
            await producer.begin_transaction()
            too_large = await _deliver(self.settings, producer, outputs.rows)
            if too_large:
                return too_large
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
        linger_ms=1,  # one batch of outputs goes out together; a lone one waits no longer
        request_timeout_ms=int(settings.kafka_timeout_s * 1000),
        max_request_size=16 << 20,  # a rule of 64 experts, or a dead letter as large as brokers take
        transactional_id=transactional_id,
    )


async def _close(producer: AIOKafkaProducer) -> None:
    closing = asyncio.ensure_future(producer.stop())
    with suppress(KafkaError, OSError, TimeoutError):
        await asyncio.wait_for(closing, _CLOSE_S)


async def _deliver(settings: Settings, producer: AIOKafkaProducer, rows: Sequence[Row]) -> Sequence[Row]:
    """Send rows and await them all; returns those that are too large for client or broker."""
    sent: list[tuple[Row, Awaitable[object]]] = []
    too_large: list[Row] = []
    try:
        for row in rows:
            try:
                sent.append((row, await _send(producer, row)))
            except MessageSizeTooLargeError:  # for the client
                too_large.append(row)
    except (KafkaError, OSError) as e:
        await asyncio.gather(*(delivery for _, delivery in sent), return_exceptions=True)
        raise kafka.denied(settings, e, "WRITE") or UnavailableError(f"Kafka takes no records: {e}") from e
    answers = await asyncio.gather(*(delivery for _, delivery in sent), return_exceptions=True)
    for (row, _), answer in zip(sent, answers, strict=True):
        if isinstance(answer, MessageSizeTooLargeError):  # for the broker
            too_large.append(row)
        elif isinstance(answer, (KafkaError, OSError, TimeoutError)):
            raise kafka.denied(settings, answer, "WRITE") or UnavailableError(
                f"Kafka did not acknowledge a record of {row.topic}: {answer!r}"
            ) from answer
        elif isinstance(answer, BaseException):
            raise answer
    return too_large


async def _send(producer: AIOKafkaProducer, row: Row) -> Awaitable[object]:
    headers = [(name, text.encode()) for name, text in row.headers]
    delivery: Awaitable[object] = await producer.send(row.topic, row.value, key=row.key.encode(), headers=headers)
    return delivery


def _short(settings: Settings, row: Row) -> Row:
    size = len(row.value)
    if row.topic != settings.topic_dead_letters or size <= SHORT:
        raise RefusedError(
            f"a record of {size} bytes is larger than topic {row.topic} takes: raise its max.message.bytes"
        )
    _log.warning("a dead letter of %d bytes is larger than its topic takes: its end is left out", size)
    return replace(row, value=row.value[:SHORT], headers=(*row.headers, ("truncated", str(size))))
