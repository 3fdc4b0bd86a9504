"""Topics as they stand now, for tools that read them from one end to the other: no group, and no sessions here.

Where a topic ends is asked once, before the first record is read: a deployment may run on. Calls wait for their answer,
so that what reads can be plain code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from stream_agg.errors import UnavailableError
from stream_agg.worker import kafka, wire
from stream_agg.worker.broker import count_partitions
from stream_agg.worker.rights import Side
from stream_agg.worker.settings import Settings

T = TypeVar("T")

FETCH = 2000
"""Records that are handed on at once: few enough to hold of every topic, many enough that asking costs nothing."""
PATIENCE_S = 30.0
"""How long a broker may give nothing although there is more."""


class At(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Record(wire.Record, Protocol):
    """What is used of a record as the client gives it."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


class Span(NamedTuple):
    """Offsets of a partition: the earliest that is kept, and the one after the last."""

    first: int
    end: int


class Log:
    """The topics of a deployment, to be read and never written, by the rights of a side. A context manager.

    Every method raises `UnavailableError` where the broker does not answer.
    """

    def __init__(self, settings: Settings, side: Side = "verify") -> None:
        self.settings, self._side = settings, side
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        try:
            self._consumer = self._ask(self._connect())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection; nothing is asked after. Where nobody asks for a minute it must be: what the client
        had sent before has timed out by then, and it cannot be stopped in order."""
        if self._loop.is_closed():
            return
        try:
            self._loop.run_until_complete(self._consumer.stop())
        finally:
            self._loop.close()

    def partitions(self) -> dict[str, int]:
        """topic -> partitions; `RefusedError` where one is missing."""
        return self._ask(count_partitions(self.settings, self._side))

    def spans(self, places: Iterable[At]) -> dict[At, Span]:
        """What partitions hold now."""
        return self._ask(self._spans([TopicPartition(*at) for at in places]))

    def committed(self, places: Iterable[At]) -> dict[At, int]:
        """The next offsets that the deployment's group has committed; partitions without one are left out."""
        return self._ask(self._committed([TopicPartition(*at) for at in places]))

    def at_time(self, places: Iterable[At], timestamp_ms: int) -> dict[At, int]:
        """The first offsets whose records are of that time or later; partitions without one are left out."""
        return self._ask(self._at_time([TopicPartition(*at) for at in places], timestamp_ms))

    def open(self, starts: Mapping[At, int]) -> None:
        """Read these partitions, and none else, from these offsets on."""
        self._ask(self._open(starts))

    def more(self, at: At, end: int) -> Sequence[Record]:
        """The next records of an open partition that are before `end`; none when there are no more."""
        return self._ask(self._more(TopicPartition(*at), end))

    def _ask(self, asking: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(asking)
        except (KafkaError, OSError, TimeoutError) as e:
            raise kafka.denied(self.settings, e) or UnavailableError(
                f"Kafka at {self.settings.brokers} does not give what it holds: {e!r}"
            ) from e

    async def _connect(self) -> AIOKafkaConsumer:
        consumer = kafka.consumer(
            self.settings,
            enable_auto_commit=False,
            auto_offset_reset="none",  # what is gone is to be said
            isolation_level="read_committed",  # what a producer aborted was never sent
            max_partition_fetch_bytes=4 << 20,
            fetch_max_wait_ms=50,  # where a topic ends, an answer with nothing is soon enough
        )
        try:
            await kafka.start(self.settings, consumer)
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    async def _spans(self, places: list[TopicPartition]) -> dict[At, Span]:
        first = await self._consumer.beginning_offsets(places)
        ends = await self._consumer.end_offsets(places)
        # The embedded broker places the end at the last batch: the answer to a fetch from there knows better.
        self._consumer.assign(places)
        for at in places:
            self._consumer.seek(at, ends[at])
        async with asyncio.timeout(PATIENCE_S):
            while any(self._consumer.last_stable_offset(at) in (None, -1) for at in places):
                await self._consumer.getmany(timeout_ms=20)
        return {At(*at): Span(first[at], max(ends[at], self._consumer.last_stable_offset(at))) for at in places}

    async def _committed(self, places: list[TopicPartition]) -> dict[At, int]:
        admin = kafka.admin(self.settings)
        await kafka.start(self.settings, admin)
        try:
            found = await admin.list_consumer_group_offsets(self.settings.app, partitions=places)
        finally:
            await admin.close()
        return {At(*at): found[at].offset for at in places if at in found and found[at].offset >= 0}

    async def _at_time(self, places: list[TopicPartition], timestamp_ms: int) -> dict[At, int]:
        found = await self._consumer.offsets_for_times(dict.fromkeys(places, timestamp_ms))
        return {At(*at): answer.offset for at, answer in found.items() if answer is not None}

    async def _open(self, starts: Mapping[At, int]) -> None:
        self._consumer.assign([TopicPartition(*at) for at in starts])
        for at, offset in starts.items():
            self._consumer.seek(TopicPartition(*at), offset)

    async def _more(self, at: TopicPartition, end: int) -> Sequence[Record]:
        async with asyncio.timeout(PATIENCE_S):
            while await self._consumer.position(at) < end:
                records = (await self._consumer.getmany(at, timeout_ms=1000, max_records=FETCH)).get(at)
                if records:
                    return [r for r in records if r.offset < end] if records[-1].offset >= end else list(records)
        return ()
