"""Both ends of a running deployment: records into its input topics, what comes out of its output topics.

The worker is somebody else; here one waits for what it gives and asks the store how far it has got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

import orjson
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from stream_agg.errors import ConfigError, StreamAggError, UnavailableError
from stream_agg.store.redis import RedisStore
from stream_agg.worker import kafka
from stream_agg.worker.broker import count_partitions
from stream_agg.worker.settings import Settings

PATIENCE_S = 60.0
"""How long nothing at all may move before it is said that no worker is there: longer than a worker's restart."""


class Tap:
    """Sends to the inputs and collects from the outputs, from now on. An async context manager.

    `on_output(topic, key, value, headers)` is called for every output record, repeats included.
    """

    def __init__(self, settings: Settings, on_output: Callable[[str, str, bytes, dict[str, str]], None]) -> None:
        self.settings = settings
        self.on_output = on_output
        self.moved = 0
        """Grows whenever an output or an offset moves: something is alive."""
        self._store = RedisStore(settings.redis_url, settings.app, settings.redis_timeout_s)
        self._producer = kafka.producer(settings, acks="all", linger_ms=5)
        self._consumer = kafka.consumer(settings, enable_auto_commit=False, auto_offset_reset="earliest")
        self._partitions: dict[str, int] = {}
        self._collecting: asyncio.Task[None] | None = None
        self._sending: list[asyncio.Future[Any]] = []
        self._ends: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> Tap:
        try:
            self._partitions = await count_partitions(self.settings, "replay")
            await kafka.start(self.settings, self._producer)
            await kafka.start(self.settings, self._consumer)
            await self._assign()
        except BaseException as e:
            await self.__aexit__(None, None, None)
            if isinstance(e, (KafkaError, OSError)):
                raise kafka.denied(self.settings, e) or UnavailableError(
                    f"the Kafka broker at {self.settings.brokers} failed: {e}"
                ) from e
            raise
        self._collecting = asyncio.create_task(self._collect())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)
        await self._consumer.stop()
        await self._producer.stop()
        await self._store.close()

    async def send(self, topic: str, session: str, record: dict[str, Any] | None) -> int:
        """Send one input record (None: the null that closes a session); its partition, once acknowledged."""
        value = None if record is None else orjson.dumps(record)
        delivery = await self._producer.send_and_wait(topic, value, key=session.encode())
        return int(delivery.partition)

    async def send_soon(self, topic: str, session: str, record: dict[str, Any]) -> None:
        """Send one input record without waiting for its acknowledgement: `flush` waits for all."""
        self._sending.append(await self._producer.send(topic, orjson.dumps(record), key=session.encode()))
        if len(self._sending) >= 10_000:
            await self.flush()

    async def flush(self) -> None:
        """Wait until the broker has all that was sent."""
        sending, self._sending = self._sending, []
        for delivery in await asyncio.gather(*sending):
            at = TopicPartition(delivery.topic, delivery.partition)
            self._ends[at] = max(self._ends.get(at, 0), delivery.offset + 1)

    async def refuse_running(self, session: str) -> None:
        """`ConfigError` where the deployment already runs a session of that name."""
        for partition in range(self._partitions[self.settings.topic_sessions]):
            if session in await self._store.sessions(partition):
                raise ConfigError(f"session {session!r} is running already: choose another name with --session")

    async def load(self, partition: int, session: str) -> dict[str, dict[str, bytes]] | None:
        """A session's tables as the store holds them."""
        return await self._store.load(partition, session)

    async def drained(self, topics: list[str], partition: int) -> bool:
        """Whether the store has applied all that was sent to these topics and flushed.

        Counted by the acknowledgements: the embedded broker answers the question for a topic's end with less.
        """
        try:
            applied = (await self._store.peek(partition)).next_offsets
        except UnavailableError:
            return False  # the worker waits for it too
        self.moved = max(self.moved, sum(applied.values()))
        return all(applied.get(topic, 0) >= self._ends.get(TopicPartition(topic, partition), 0) for topic in topics)

    async def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait until `done`; `StreamAggError` naming `what` when nothing has moved for a minute."""
        last, since = -1, 0.0
        while not done():
            if self._collecting is not None and self._collecting.done():
                self._collecting.result()
            if self.moved != last:
                last, since = self.moved, asyncio.get_running_loop().time()
            elif asyncio.get_running_loop().time() - since > PATIENCE_S:
                raise StreamAggError(
                    f"{what}: nothing moved for {PATIENCE_S:g} s; is a worker running on these topics?"
                )
            await asyncio.sleep(0.05)

    async def until_drained(self, topics: list[str], partition: int, tell: Callable[[], None]) -> None:
        """Wait until the store has applied all that was sent; `tell` is called now and then."""

        async def look() -> None:
            while not await self.drained(topics, partition):
                tell()
                await asyncio.sleep(0.1)

        looking = asyncio.create_task(look())
        try:
            await self.until(looking.done, "waiting for the worker to apply the records")
            await looking
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _assign(self) -> None:
        to = self.settings
        partitions = [
            TopicPartition(topic, p)
            for topic in (to.topic_actions, to.topic_regret, to.topic_dead_letters)
            for p in range(self._partitions[topic])
        ]
        self._consumer.assign(partitions)
        await self._consumer.seek_to_end(*partitions)
        # The embedded broker places the end too early, at the last batch: the answer to a fetch knows better.
        await self._consumer.getmany(timeout_ms=200)
        for tp in partitions:
            end = self._consumer.highwater(tp)
            if end is not None:
                self._consumer.seek(tp, end)

    async def _collect(self) -> None:
        async for record in self._consumer:
            self.moved += 1
            headers = {name: text.decode("utf-8", "replace") for name, text in record.headers}
            self.on_output(record.topic, (record.key or b"").decode(), record.value or b"", headers)
