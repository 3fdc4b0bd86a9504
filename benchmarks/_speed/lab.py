"""A broker, a Redis, and a core for the program that is measured. What it does is not known here."""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from _servers import Kafka, Redis
from _topics import create
from redis import Redis as Client

from stream_agg.embedded.servers import free_port
from stream_agg.worker.settings import Settings

OUTPUTS = ("actions", "regret", "rules", "dead_letters")


class Lab:
    """Real servers on some cores, `core` free for one worker: the last one, and no other where there are several.

    `topics` are settings of the output topics. A context manager; it moves this process to
    the servers' cores, which they inherit.
    """

    def __init__(self, home: Path, partitions: int, **topics: str) -> None:
        self.home, self.partitions, self.topics = home, partitions, topics
        self._stack = ExitStack()

    def __enter__(self) -> Lab:
        every = sorted(os.sched_getaffinity(0))
        self.every, self.core, self.others = every, every[-1:], every[:-1] or every
        self._stack.callback(os.sched_setaffinity, 0, every)
        os.sched_setaffinity(0, self.others)
        self.kafka = self._stack.enter_context(Kafka(self.home / "kafka"))
        self.redis = self._stack.enter_context(Redis(self.home / "redis"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def brokers(self) -> str:
        """Where Kafka is."""
        return self.kafka.address

    def fresh(self) -> str:
        """A name that nothing has."""
        return uuid.uuid4().hex[:8]

    def empty_redis(self) -> None:
        """Forget all that was stored."""
        with Client.from_url(self.redis.url) as client:
            client.flushall()

    async def settings(self, inputs: str, **changes: Any) -> Settings:
        """Of a worker on the input topics of that suffix, with outputs of its own, which are created."""
        name = self.fresh()
        topics = {f"topic_{t}": f"{t}-{inputs}" for t in ("sessions", "forecasts", "states")}
        outputs = {f"topic_{t}": f"{t.replace('_', '-')}-{name}" for t in OUTPUTS}
        await create(self.brokers, outputs.values(), self.partitions, **self.topics)
        base = Settings(brokers=self.brokers, redis_url=self.redis.url, app=name, partitions=self.partitions)
        return replace(base, **topics, **outputs, http_port=free_port(), **changes)
