"""A deployment of one case: topics and keys of its own on real servers, worker processes, and what came of it all.

What is done to it is the case's business; what must hold is in `check.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _topics import reader, whole
from _workers import PATIENCE_S, StuckError, Worker, until
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from redis import Redis as Client

from _faults.feed import POLICIES, Record, specs
from _faults.fold import Published
from stream_agg.store.tables import SCHEMA
from stream_agg.worker.broker import create_topics
from stream_agg.worker.settings import Settings

TOPICS = ("sessions", "forecasts", "states", "actions", "regret", "rules", "dead_letters")
SESSION_S = 3.0


@dataclass
class Collected:
    """The output topics, whole."""

    published: Published = field(default_factory=Published)
    copies: Counter[str] = field(default_factory=Counter)
    """How many records of each topic there are, and how many of them are repeats."""
    unequal: list[str] = field(default_factory=list)
    """Ids that came twice with other bytes."""
    order: dict[str, list[int]] = field(default_factory=dict)
    """Session -> rounds of its actions in the order of their first copies."""
    action_times: list[float] = field(default_factory=list)
    """When the broker took each first copy, in seconds."""


@dataclass
class Bed:
    """One case's deployment. `home` keeps its logs."""

    home: Path
    brokers: str
    redis_url: str
    seed: int
    sessions: int = 4
    policies: Sequence[str] = POLICIES
    changes: Mapping[str, Any] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    async def __aenter__(self) -> Bed:
        self.rng = random.Random(self.seed)
        name = f"{self.home.name}-{os.urandom(3).hex()}"
        topics = {f"topic_{t}": f"{t.replace('_', '-')}-{name}" for t in TOPICS}
        given = {"partitions": 2, "session_timeout_s": SESSION_S, "kafka_timeout_s": 10.0, "http_port": 0}
        base = Settings(brokers=self.brokers, redis_url=self.redis_url, app=name)
        self.settings = replace(base, **{**topics, **given, **self.changes})
        self.specs = specs(self.seed, self.sessions, self.policies)
        self.sent: dict[tuple[str, int], list[tuple[int, bytes]]] = defaultdict(list)
        await patiently(lambda: create_topics(self.settings))
        self.producer = AIOKafkaProducer(
            bootstrap_servers=self.brokers, linger_ms=2, max_request_size=16 << 20, enable_idempotence=True
        )
        await self.producer.start()
        self.redis = Client.from_url(self.redis_url, decode_responses=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
        await self.producer.stop()
        self.redis.close()

    def topic(self, name: str) -> str:
        """The case's own name of a topic."""
        return str(getattr(self.settings, f"topic_{name}"))

    def worker(self, changes: Mapping[str, Any] | None = None, **env: str) -> Worker:
        """Start one more worker."""
        settings = replace(self.settings, **(changes or {}))
        worker = Worker(settings, self.home / f"worker-{len(self.workers)}.log", **env)
        self.workers.append(worker)
        return worker

    async def open(self) -> None:
        """Send the specs."""
        for name, spec in self.specs.items():
            await self.producer.send_and_wait(self.topic("sessions"), json.dumps(spec).encode(), key=name.encode())

    async def close_sessions(self) -> None:
        """Send the nulls, and wait until they are applied: no session is held any more."""
        for name in self.specs:
            await self.producer.send_and_wait(self.topic("sessions"), None, key=name.encode())
        keys = [f"{self._tag(p)}:sessions" for p in range(self.settings.partitions)]
        await self.redis_until(lambda: not any(self.redis.scard(key) for key in keys), "the sessions to close")

    async def send(self, records: Iterable[Record], pause_s: float = 0.0) -> int:
        """Send records to the inputs, in order; how many."""
        sending: list[Any] = []
        count = 0
        for topic, session, value in records:
            future = await self.producer.send(self.topic(topic), value, key=session.encode())
            sending.append((topic, value, future))
            count += 1
            if len(sending) >= 1000 or pause_s:
                await self._acked(sending)
                sending = []
                if pause_s:
                    await asyncio.sleep(pause_s)
        await self._acked(sending)
        return count

    async def _acked(self, sending: list[Any]) -> None:
        for topic, value, future in sending:
            at = await future
            self.sent[topic, at.partition].append((at.offset, value))

    def _tag(self, partition: int) -> str:
        return f"{{{self.settings.app}:{partition}}}"

    def meta(self, partition: int) -> dict[str, str]:
        """What Redis holds of a partition beside its sessions."""
        return self.redis.hgetall(f"{self._tag(partition)}:meta")  # type: ignore[return-value]

    def behind(self) -> int:
        """How many offsets Redis is behind what was sent."""
        ends = {key: records[-1][0] + 1 for key, records in self.sent.items() if records}
        return sum(max(end - int(self.meta(p).get(f"next:{self.topic(t)}", 0)), 0) for (t, p), end in ends.items())

    @property
    def schema(self) -> int:
        """The version of what is stored."""
        return SCHEMA

    async def redis_until(self, done: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
        """Wait for a condition about what Redis holds; while it is away, it is not so."""
        await until(lambda: _answered(done), what, seconds)

    async def settle(self, seconds: float = PATIENCE_S) -> None:
        """Wait until all that was sent is applied and published, and the group's lag is none; `seconds` without any
        progress are too long."""
        left = -1
        while left:
            before = left
            try:
                await self.redis_until(lambda b=before: self.behind() != b, "the records to be applied", seconds)  # type: ignore[misc]
            except StuckError as e:
                raise StuckError(f"{e}: {before} are not; {self.workers[-1].text()[-2000:]}") from None
            left = self.behind()
        deadline = time.monotonic() + seconds
        while lag := await self.lag():
            if time.monotonic() > deadline:
                raise StuckError(f"waited {seconds:g} s for the group's lag to go: {lag}")
            await asyncio.sleep(0.1)

    async def lag(self) -> dict[TopicPartition, int]:
        """What the consumer group has not committed, where there is something."""
        at = [TopicPartition(self.topic(t), p) for t in TOPICS[1:3] for p in range(self.settings.partitions)]
        async with reader(self.brokers) as consumer:
            ends = await consumer.end_offsets(at)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.brokers)
        await admin.start()
        try:
            done = await admin.list_consumer_group_offsets(self.settings.app, partitions=at)
        finally:
            await admin.close()
        return {tp: lag for tp in at if (lag := ends[tp] - max(0, done[tp].offset))}

    def stored(self) -> dict[str, dict[str, dict[str, str]]]:
        """Session -> table -> field -> text, of all partitions."""
        found = {}
        for partition in range(self.settings.partitions):
            tag = self._tag(partition)
            for name in self.redis.smembers(f"{tag}:sessions"):
                tables = ("state", "profiles", "events", "parked")
                found[name] = {t: self.redis.hgetall(f"{tag}:s:{name}:{t}") for t in tables}
        return found  # type: ignore[return-value]

    async def collect(self) -> Collected:
        """Everything in the output topics that a `read_committed` reader is given; of copies that differ the last."""
        got, seen = Collected(), {}  # type: ignore[var-annotated]
        names = ("actions", "regret", "dead_letters")
        at = [TopicPartition(self.topic(t), p) for t in names for p in range(self.settings.partitions)]
        async with reader(self.brokers) as consumer:
            async for record in whole(consumer, at):
                topic = next(t for t in names if record.topic == self.topic(t))
                headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
                key = (topic, headers["ce_id"])
                got.copies[topic] += 1
                again = seen.get(key)
                if again is not None:
                    got.copies[f"{topic} again"] += 1
                    if again == record.value:
                        continue
                    got.unequal.append(f"{topic} {headers['ce_id']}: {again!r}, then {record.value!r}"[:500])
                seen[key] = record.value
                self._take(got, topic, headers, record)
        return got

    def _take(self, got: Collected, topic: str, headers: Mapping[str, str], record: Any) -> None:
        out = got.published
        if topic == "actions":
            value = json.loads(record.value)
            out.actions[value["session"], value["event"]] = value
            got.order.setdefault(value["session"], []).append(value["round"])
            got.action_times.append(record.timestamp / 1000)
        elif topic == "regret":
            value = json.loads(record.value)
            name = value["reason"], value["round"], value["realized"]["states"]
            out.regrets.setdefault(value["session"], {})[name] = value
        else:
            source = next(t for t in TOPICS if headers["topic"] == self.topic(t))
            out.dead[source, int(headers["partition"]), int(headers["offset"])] = headers["reason"], record.value

    async def inputs(self) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
        """The input topics from the first record they keep."""
        at = {TopicPartition(self.topic(t), p): (t, p) for t in TOPICS[1:3] for p in range(self.settings.partitions)}
        log: dict[tuple[str, int], list[tuple[int, bytes]]] = {key: [] for key in at.values()}
        async with reader(self.brokers) as consumer:
            async for record in whole(consumer, list(at)):
                tp = TopicPartition(record.topic, record.partition)
                log[at[tp]].append((record.offset, record.value))
        return log


def _answered(done: Callable[[], Any]) -> Any:
    try:
        return done()
    except OSError:
        return False
    except Exception as e:
        if type(e).__module__.startswith("redis"):
            return False
        raise


async def patiently(ask: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
    """The answer of a server that may just be starting."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await ask()
        except Exception:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.3)
