"""A partition under one claim: how far it is, its sessions in memory, its outputs on their way. Knows no server."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from stream_agg.errors import FencedError
from stream_agg.session.engine import Session
from stream_agg.worker.marks import Marks

OF_ITS_OWN = 50
"""What a session costs before it remembers anything, in decisions."""


def weight(session: Session) -> int:
    """What a session takes in memory, in decisions of about half a kilobyte."""
    return OF_ITS_OWN + len(session.events) + len(session.parked) + len(session.tallies)


class Held(OrderedDict[str, Session]):
    """Sessions by name, the least recently used first. The store has all of them, whatever is held here."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.size = 0
        self._most, self._weights = most, dict[str, int]()

    def used(self, names: Iterable[str]) -> None:
        """These were used, and are in the store as they are here: weigh them again, and let others go, the longest
        unused first, while all together weigh more than `most`."""
        kept = 0
        for name in names:
            self.size -= self._weights.pop(name, 0)
            session = self.get(name)
            if session is not None:
                kept += 1
                self.move_to_end(name)
                self._weights[name] = weight(session)
                self.size += self._weights[name]
        while self.size > self._most and len(self) > kept:
            name, _ = self.popitem(last=False)
            self.size -= self._weights.pop(name, 0)


@dataclass
class Owned:
    """A partition under one claim."""

    partition: int
    epoch: int
    next_offsets: dict[str, int]
    stored: dict[str, int]
    """The next offsets the store has; a topic that was never committed is missing."""
    marks: Marks
    """How far outputs had been published when it was claimed, as far as that is known: further than the store has got
    where that went back in time."""
    sessions: Held
    opened: int = 0
    """Sessions that the store has of it."""
    published: int = 0
    """Outbox blobs up to this number are delivered and may go."""
    trimmed: int = 0
    """Those up to this number are gone."""
    lost: bool = False
    """Not ours any more, or its sessions may hold what was not committed: nothing is to be done with it."""
    _delivery: asyncio.Task[None] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """One at a time, until all that it sent is delivered, and none after one that failed. `FencedError` where the
        partition is lost."""
        async with self._lock:
            if self.lost:
                raise FencedError(f"partition {self.partition} was given up")
            try:
                yield
                await self.delivered()
            except BaseException as e:
                self.lost = True
                await self._end_delivery(isinstance(e, Exception))
                raise

    async def deliver(self, outputs: Coroutine[None, None, None]) -> None:
        """Begin to deliver, once what was sent before is delivered: whoever goes on with the next batch need not wait
        for this one's outputs, and no two batches are on their way at once, so their order stays."""
        try:
            await self.delivered()
        except BaseException:
            outputs.close()
            raise
        self._delivery = asyncio.create_task(outputs)

    async def delivered(self) -> None:
        """Wait for what is on its way. Raises what its delivery raised."""
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            try:
                await asyncio.shield(delivery)
            except asyncio.CancelledError:
                self._delivery = delivery  # for `_end_delivery`
                raise

    async def _end_delivery(self, gently: bool) -> None:
        """Let it come to its end where that is near: it stops at the first failure, now that the partition is lost."""
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            if not gently:
                delivery.cancel()
            await asyncio.wait({delivery})
            if not delivery.cancelled():
                delivery.exception()  # the one that is on its way up came first
