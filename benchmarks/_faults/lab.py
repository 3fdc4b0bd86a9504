"""What the cases share: real servers, a seed, sizes, a directory for logs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from _servers import Kafka, Redis

from _faults.bed import Bed
from _faults.feed import POLICIES


class Lab:
    """A home for cases. Kafka is started once, for all that do not break it. A context manager."""

    def __init__(
        self,
        home: Path,
        *,
        seed: int = 0,
        smoke: bool = False,
        big: bool = False,
        kills: int | None = None,
        delivery: str,
    ) -> None:
        self.home, self.seed, self.smoke, self.big, self.delivery = home, seed, smoke, big, delivery
        self.kills = kills
        self.rng = random.Random(seed)
        self._stack = ExitStack()
        self._kafka: Kafka | None = None

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def size(self, smoke: int, usual: int, big: int | None = None) -> int:
        """A number of events, kills or tries."""
        if self.smoke:
            return smoke
        return big if self.big and big is not None else usual

    @property
    def exactly_once(self) -> bool:
        """Whether workers are to deliver exactly once."""
        return self.delivery == "exactly_once"

    async def kafka(self) -> Kafka:
        """The broker that nobody breaks."""
        if self._kafka is None:
            self._kafka = await self.own(Kafka(self.home / "kafka"))
        return self._kafka

    async def own(self, server: Any) -> Any:
        """Start a server; it is stopped with the lab."""
        await asyncio.to_thread(server.start)
        self._stack.callback(server.stop)
        return server

    @asynccontextmanager
    async def bed(
        self,
        name: str,
        *,
        kafka: Kafka | None = None,
        brokers: str | None = None,
        redis: Redis | None = None,
        redis_url: str | None = None,
        options: Sequence[str] = ("--appendonly", "yes"),
        sessions: int = 4,
        policies: Sequence[str] = POLICIES,
        **changes: Any,
    ) -> AsyncIterator[Bed]:
        """A deployment, on a Redis of its own unless one is given."""
        home = self.home / name
        home.mkdir(parents=True, exist_ok=True)
        kafka = kafka or await self.kafka()
        mine = redis or Redis(home / "redis", options)
        if redis is None:
            await asyncio.to_thread(mine.start)
        try:
            given = {"delivery": self.delivery, **changes}
            where = brokers or kafka.address, redis_url or mine.url
            async with Bed(home, *where, self.seed, sessions, policies, given) as bed:
                yield bed
        finally:
            if redis is None:
                await asyncio.to_thread(mine.stop)
