"""The worker's own clients of Kafka, beside Faust and the publisher: what checks the topics, and reads the specs.

The sessions topic is read here and not through Faust, because a forecast of an unknown session must be able to wait
for what its spec's topic holds by now: the two topics have no common order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError, for_code

from stream_agg.errors import RefusedError, StreamAggError, UnavailableError
from stream_agg.worker import kafka
from stream_agg.worker.rights import Side, ask, rights
from stream_agg.worker.settings import Settings

COMPACTED = frozenset({"topic_sessions", "topic_rules"})
"""Topics that keep the last record of every key; the others are deleted by age."""

_KNOWN_S = 20.0

SPECS_WAIT_S = 10.0
"""How long a forecast of an unknown session waits for specs that the broker says are there."""


@asynccontextmanager
async def reachable(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client; `UnavailableError` in one line where no broker answers, `ConfigError` or `RefusedError` where
    it does not let us in."""
    admin = kafka.admin(settings, request_timeout_ms=10_000)
    try:
        await kafka.start(settings, admin)
        yield admin
    except (KafkaError, OSError, TimeoutError) as e:
        raise kafka.denied(settings, e) or await kafka.knock(settings) from e
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
            await _create(settings, admin, new)
        async with asyncio.timeout(_KNOWN_S):  # a broker may answer for a moment as if they were not there
            while not set(names.values()) <= set(await admin.list_topics()):  # noqa: ASYNC110 # it can only be asked
                await asyncio.sleep(0.1)


async def _create(settings: Settings, admin: AIOKafkaAdminClient, new: NewTopic) -> None:
    answer = await admin.create_topics([new])
    for _, code, *said in answer.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:  # another worker was faster
            raise kafka.denied(settings, error(new.name), "CREATE") or RefusedError(
                f"topic {new.name} cannot be created: {' '.join(map(str, filter(None, said))) or error.message}"
            )


async def count_partitions(settings: Settings, *sides: Side) -> dict[str, int]:
    """topic -> partitions; `RefusedError` where a topic or a right of these sides is missing, or the counts of the
    input topics differ."""
    names = [value for name, value in settings.masked().items() if name.startswith("topic_")]
    wanted = [right for side in sides for right in rights(settings, side)]
    async with reachable(settings) as admin:
        found = await ask(admin, wanted, names)
        if found is None:  # a broker that knows nothing of rights
            described = {t["topic"]: len(t["partitions"]) for t in await admin.describe_topics()}
        else:
            described = dict(found.partitions)
            if found.missing:
                raise kafka.lacking(settings, map(str, found.missing))
    missing = [topic for topic in names if topic not in described]
    if missing:
        raise RefusedError(
            f"no such topic: {', '.join(missing)}; create them, or start a worker with --create-topics in development"
        )
    counts = {topic: described[topic] for topic in names}
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
    hidden: bool = False
    """Whether we have no right to ask how it is configured."""


async def about(settings: Settings) -> dict[str, About]:
    """topic -> what is known of it, for those of the settings that exist."""
    names = {value for name, value in settings.masked().items() if name.startswith("topic_")}
    async with reachable(settings) as admin:
        found = {t["topic"]: t["partitions"] for t in await admin.describe_topics() if t["topic"] in names}
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in found]
        cleanup: dict[str, str | None] = {}
        hidden: set[str] = set()
        for answer in await admin.describe_configs(asked) if asked else ():
            for error, _, _, topic, entries, *_ in answer.resources:
                cleanup[topic] = dict(entry[:2] for entry in entries).get("cleanup.policy")
                if for_code(error) is TopicAuthorizationFailedError:
                    hidden.add(topic)
    return {
        topic: About(
            len(parts),
            min((len(part["replicas"]) for part in parts), default=0),
            cleanup.get(topic),
            topic in hidden,
        )
        for topic, parts in found.items()
    }


class Specs:
    """Reads the sessions topic of the partitions that are ours, from where the store has got to."""

    def __init__(self, settings: Settings) -> None:
        self.topic = settings.topic_sessions
        self.settings = settings
        self._consumer = kafka.consumer(
            settings,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",  # what a producer aborted was never sent
        )

    async def start(self) -> None:
        """Connect; `UnavailableError` where no broker answers, `ConfigError` where it does not let us in."""
        await kafka.start(self.settings, self._consumer)

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
            raise self._denied(e) or UnavailableError(
                f"Kafka does not tell the offsets of partition {partition}: {e}"
            ) from e
        return {tp.topic: offset for tp, offset in first.items()}

    async def ends(self, topics: Iterable[str], partitions: Iterable[int]) -> dict[tuple[str, int], int]:
        """(topic, partition) -> the offset its next record will get."""
        at = [TopicPartition(topic, partition) for topic in topics for partition in partitions]
        try:
            ends = await self._consumer.end_offsets(at)
        except (KafkaError, OSError) as e:
            raise self._denied(e) or UnavailableError(f"the broker does not tell the ends of its topics: {e}") from e
        return {(tp.topic, tp.partition): offset for tp, offset in ends.items()}

    def _denied(self, e: BaseException) -> StreamAggError | None:
        return kafka.denied(self.settings, e)

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
            raise self._denied(e) or UnavailableError(f"Kafka does not give the records of {self.topic}: {e}") from e

    async def rest(self, partition: int) -> AsyncIterator[list[ConsumerRecord]]:
        """All that the topic holds now and was not read yet; `UnavailableError` if it does not come in time."""
        at = TopicPartition(self.topic, partition)
        try:
            async with asyncio.timeout(SPECS_WAIT_S):
                end = (await self._consumer.end_offsets([at]))[at]
                while await self._consumer.position(at) < end:
                    yield await self.poll(partition, 200)
        except (KafkaError, OSError, TimeoutError) as e:
            raise self._denied(e) or UnavailableError(f"Kafka does not give the records of {self.topic}: {e!r}") from e
