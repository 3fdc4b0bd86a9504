"""The view of a running deployment, kept up to date: owns the Kafka clients that read. Writes nothing anywhere.

No consumer group is joined: a monitor can come and go, and any number of them. The workers' group is asked how far it
is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import orjson
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from stream_agg.errors import StreamAggError, UnavailableError
from stream_agg.monitor.view import Kind, View
from stream_agg.worker import kafka
from stream_agg.worker.broker import count_partitions
from stream_agg.worker.settings import Settings

MEASURE_S = 1.0
"""How often lag is asked for: the worker commits as often."""
ANSWER_S = 5.0
"""How long an answer about lag may take before Kafka is said to be away."""
LOOK_BACK = {"regret": 5000, "rule": 20_000, "action": 2000, "dead": 500}
"""Records that are read back per partition at the start. The rules topic is compacted: that is all of it where sessions
are fewer. Regret makes the charts; of actions only the latest of each session shows."""


class Reader:
    """Reads the output topics into `view` from a look back on; `ready` is set when that is done, `measured` after
    the first look at the lag."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings, self.view, self.clock = settings, View(), clock
        self.ready, self.measured = asyncio.Event(), asyncio.Event()
        self._ending = asyncio.Event()
        self._admin: AIOKafkaAdminClient | None = None
        self._inputs: list[TopicPartition] = []
        self._kinds: dict[str, Kind] = {
            settings.topic_actions: "action",
            settings.topic_regret: "regret",
            settings.topic_rules: "rule",
        }

    async def start(self) -> None:
        """Connect and go to where the look back begins. `UnavailableError` where no broker answers, `RefusedError`
        where a topic is missing."""
        partitions = await count_partitions(self.settings, "monitor")
        outputs = (*self._kinds, self.settings.topic_dead_letters)
        to = self.settings
        # The workers' group commits no offsets of the sessions topic, which it reads by itself.
        self._inputs = [
            TopicPartition(t, p) for t in (to.topic_forecasts, to.topic_states) for p in range(partitions[t])
        ]
        self._consumer = kafka.consumer(
            to,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,  # a broker waits as long before it says that there is nothing
        )
        try:
            await kafka.start(to, self._consumer)
            at = [TopicPartition(topic, p) for topic in outputs for p in range(partitions[topic])]
            self._consumer.assign(at)
            first, ends = await self._consumer.beginning_offsets(at), await self._consumer.end_offsets(at)
        except (KafkaError, OSError, StreamAggError) as e:
            await self._consumer.stop()
            if isinstance(e, StreamAggError):
                raise
            raise kafka.denied(to, e) or UnavailableError(f"no Kafka broker answers at {to.brokers}: {e}") from e
        for tp in at:
            back = LOOK_BACK[self._kinds.get(tp.topic, "dead")]
            self._consumer.seek(tp, max(first[tp], ends[tp] - back))

    async def stop(self) -> None:
        """Let go of the connections."""
        # In a task: where the broker is away, aiokafka lets the cancellation of its own fetch out of this.
        await asyncio.gather(asyncio.ensure_future(self._consumer.stop()), return_exceptions=True)
        if self._admin is not None:
            await self._admin.close()

    async def run(self) -> None:
        """Read and measure until `end`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._measure())

    def end(self) -> None:
        """Let `run` end, after what it is at: clients that are cancelled leave connections behind."""
        self._ending.set()

    async def _read(self) -> None:
        while not self._ending.is_set():
            try:
                got = await self._consumer.getmany(timeout_ms=300)
            except (KafkaError, OSError) as e:
                self.view.progress.lost(self.clock(), str(e) or type(e).__name__)
                await asyncio.sleep(MEASURE_S)
                continue
            for tp, records in got.items():
                self.take(tp.topic, records)
            if not got or (not self.ready.is_set() and await self._read_up()):
                self.ready.set()

    async def _read_up(self) -> bool:
        """Whether nothing is left of what was there: after a fetch of each, the broker's ends are known exactly."""
        ends = {tp: self._consumer.highwater(tp) for tp in self._consumer.assignment()}
        return all([end is not None and await self._consumer.position(tp) >= end for tp, end in ends.items()])

    def take(self, topic: str, records: Iterable[ConsumerRecord]) -> None:
        """Fold in records of one output topic. Of actions and rules only the last of every session tells anything."""
        kind = self._kinds.get(topic)
        if kind in ("action", "rule"):
            records = {record.key: record for record in records}.values()
        for record in records:
            time_s, key = record.timestamp / 1000, (record.key or b"").decode("utf-8", "replace")
            if kind is None:
                headers = {name: text.decode("utf-8", "replace") for name, text in record.headers}
                place = "/".join(headers.get(name, "?") for name in ("topic", "partition", "offset"))
                self.view.take_dead(place, headers.get("reason", "unknown"), headers.get("detail", ""), time_s)
            elif record.value is not None:
                try:
                    value = orjson.loads(record.value)
                except orjson.JSONDecodeError:
                    self.view.take_unreadable()
                else:
                    self.view.take(kind, key, value, time_s)

    async def _measure(self) -> None:
        while not self._ending.is_set():
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._look()
            except (KafkaError, OSError, TimeoutError) as e:
                self.view.progress.lost(self.clock(), str(e) or "it did not answer in time")
                await self._drop_admin()
            self.view.version += 1
            self.measured.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), MEASURE_S)

    async def _look(self) -> None:
        if self._admin is None:
            admin = kafka.admin(self.settings, request_timeout_ms=5000)
            self._admin = admin
            await admin.start()
        group, at = self.settings.app, self._inputs
        committed = await self._admin.list_consumer_group_offsets(group, partitions=at)
        first, ends = await self._consumer.beginning_offsets(at), await self._consumer.end_offsets(at)
        (described,) = await self._admin.describe_consumer_groups([group])
        members = described.to_object()["groups"][0]["members"]
        applied = {tp: max(committed[tp].offset, first[tp]) for tp in at}
        lag = sum(max(ends[tp] - applied[tp], 0) for tp in at)
        self.view.progress.measured(self.clock(), sum(ends.values()), sum(applied.values()), lag, len(members))

    async def _drop_admin(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()


@asynccontextmanager
async def watching(settings: Settings) -> AsyncIterator[Reader]:
    """A reader that has looked back, and goes on within the context; what ended it early is raised at the end."""
    reader = Reader(settings)
    await reader.start()
    running = asyncio.create_task(reader.run())
    running.add_done_callback(lambda task: reader.view.progress.lost(reader.clock(), "the reader has ended"))
    ready = asyncio.create_task(reader.ready.wait())
    try:
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        yield reader
    finally:
        ready.cancel()
        reader.end()
        await asyncio.wait({running, ready}, timeout=2 * ANSWER_S)
        running.cancel()
        (ended, _) = await asyncio.gather(running, ready, return_exceptions=True)
        await reader.stop()
    if isinstance(ended, Exception):
        raise ended
