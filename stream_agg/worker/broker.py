"""The worker's own clients of Kafka, beside Faust and the publisher: what checks the topics, and reads the specs.

The sessions topic is read here and not through Faust, because a forecast of an unknown session must be able to wait
for what its spec's topic holds by now: the two topics have no common order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

from stream_agg.errors import RefusedError, UnavailableError
from stream_agg.worker.settings import Settings

COMPACTED = frozenset({"topic_sessions", "topic_rules"})
"""Topics that keep the last record of every key; the others are deleted by age."""

_KNOWN_S = 20.0

SPECS_WAIT_S = 10.0
"""How long a forecast of an unknown session waits for specs that the broker says are there."""


@asynccontextmanager
async def reachable(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client; `UnavailableError` in one line where no broker answers."""
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.broker_list, request_timeout_ms=10_000)
    try:
        await asyncio.wait_for(admin.start(), 15)
        yield admin
    except (KafkaError, OSError, TimeoutError) as e:
        raise UnavailableError(
            f"no Kafka broker answers at {settings.brokers} ({type(e).__name__}); "
            "check STREAM_AGG_BROKERS and that the broker runs"
        ) from e
    finally:
        await admin.close()


async def create_topics(settings: Settings) -> None:
    """Create the topics that are missing, with one replica: for development."""
    names = {name: value for name, value in settings.masked().items() if name.startswith("topic_")}
    async with reachable(settings) as admin:
        there = set(await admin.list_topics())
        for name, topic in names.items():
            if topic in there:
                continue
            cleanup = "compact" if name in COMPACTED else "delete"
            new = NewTopic(topic, settings.partitions, 1, topic_configs={"cleanup.policy": cleanup})
            with suppress(TopicAlreadyExistsError):  # another worker was faster
                await admin.create_topics([new])
        async with asyncio.timeout(_KNOWN_S):  # a broker may answer for a moment as if they were not there
            while not set(names.values()) <= set(await admin.list_topics()):  # noqa: ASYNC110 # it can only be asked
                await asyncio.sleep(0.1)


async def count_partitions(settings: Settings) -> dict[str, int]:
    """topic -> partitions; `RefusedError` where a topic is missing, or the counts of the input topics differ."""
    names = [value for name, value in settings.masked().items() if name.startswith("topic_")]
    async with reachable(settings) as admin:
        described = {t["topic"]: t for t in await admin.describe_topics()}
    missing = [topic for topic in names if topic not in described]
    if missing:
        raise RefusedError(
            f"no such topic: {', '.join(missing)}; create them, or start a worker with --create-topics in development"
        )
    counts = {topic: len(described[topic]["partitions"]) for topic in names}
    if len({counts[topic] for topic in settings.inputs}) > 1:
        shown = ", ".join(f"{topic} has {counts[topic]}" for topic in settings.inputs)
        raise RefusedError(
            f"the input topics differ in their partition counts: {shown}; a session's records must share one partition "
            "number, so create them with equal counts"
        )
    return counts


@dataclass(frozen=True, slots=True)
class About:
    """What the broker says of a topic. None: it did not say."""

    partitions: int
    replicas: int
    cleanup: str | None


async def about(settings: Settings) -> dict[str, About]:
    """topic -> what is known of it, for those of the settings that exist."""
    names = {value for name, value in settings.masked().items() if name.startswith("topic_")}
    async with reachable(settings) as admin:
        found = {t["topic"]: t["partitions"] for t in await admin.describe_topics() if t["topic"] in names}
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in found]
        cleanup: dict[str, str | None] = {}
        for answer in await admin.describe_configs(asked) if asked else ():
            for _, _, _, topic, entries, *_ in answer.resources:
                cleanup[topic] = dict(entry[:2] for entry in entries).get("cleanup.policy")
    return {
        topic: About(len(parts), min((len(part["replicas"]) for part in parts), default=0), cleanup.get(topic))
        for topic, parts in found.items()
    }


class Specs:
    """Reads the sessions topic of the partitions that are ours, from where the store has got to."""

    def __init__(self, settings: Settings) -> None:
        self.topic = settings.topic_sessions
        self.settings = settings
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.broker_list,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",  # what a producer aborted was never sent
        )

    async def start(self) -> None:
        """Connect; `UnavailableError` where no broker answers."""
        try:
            await self._consumer.start()
        except (KafkaError, OSError) as e:
            raise UnavailableError(f"no Kafka broker answers at {self.settings.brokers}") from e

    async def stop(self) -> None:
        """Let go of the connection."""
        # While the broker is away aiokafka's own stop ends in the cancellation of a fetch that it waits for.
        await asyncio.gather(asyncio.ensure_future(self._consumer.stop()), return_exceptions=True)

    async def earliest(self, topics: Iterable[str], partition: int) -> dict[str, int]:
        """topic -> the earliest retained offset."""
        at = [TopicPartition(topic, partition) for topic in topics]
        try:
            first = await self._consumer.beginning_offsets(at)
        except (KafkaError, OSError) as e:
            raise UnavailableError(f"Kafka does not tell the offsets of partition {partition}: {e}") from e
        return {tp.topic: offset for tp, offset in first.items()}

    async def ends(self, topics: Iterable[str], partitions: Iterable[int]) -> dict[tuple[str, int], int]:
        """(topic, partition) -> the offset its next record will get."""
        at = [TopicPartition(topic, partition) for topic in topics for partition in partitions]
        try:
            ends = await self._consumer.end_offsets(at)
        except (KafkaError, OSError) as e:
            raise UnavailableError(f"the broker does not tell the ends of its topics: {e}") from e
        return {(tp.topic, tp.partition): offset for tp, offset in ends.items()}

    def read_from(self, offsets: Mapping[int, int]) -> None:
        """Own these partitions, and none else, from these offsets on."""
        if not offsets:
            self._consumer.unsubscribe()
            return
        self._consumer.assign([TopicPartition(self.topic, p) for p in offsets])
        for partition, offset in offsets.items():
            self._consumer.seek(TopicPartition(self.topic, partition), offset)

    async def poll(self, partition: int, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """What has come of one partition by now."""
        at = TopicPartition(self.topic, partition)
        try:
            return list((await self._consumer.getmany(at, timeout_ms=timeout_ms)).get(at, []))
        except (KafkaError, OSError) as e:
            raise UnavailableError(f"Kafka does not give the records of {self.topic}: {e}") from e

    async def rest(self, partition: int) -> AsyncIterator[list[ConsumerRecord]]:
        """All that the topic holds now and was not read yet; `UnavailableError` if it does not come in time."""
        at = TopicPartition(self.topic, partition)
        try:
            async with asyncio.timeout(SPECS_WAIT_S):
                end = (await self._consumer.end_offsets([at]))[at]
                while await self._consumer.position(at) < end:
                    yield await self.poll(partition, 200)
        except (KafkaError, OSError, TimeoutError) as e:
            raise UnavailableError(f"Kafka does not give the records of {self.topic}: {e!r}") from e
