"""A process at full speed: how many events it got done in a window, and what that took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from _topics import reader
from _workers import Child, StuckError
from aiokafka import AIOKafkaConsumer, TopicPartition

LOOK_S = 0.05
PATIENCE_S = 120.0
"""Without one event more."""


@dataclass(frozen=True)
class Sample:
    """How far a process had got."""

    time_s: float
    events: int
    cpu_s: float
    rss_mb: float
    peak_mb: float


@dataclass(frozen=True)
class Window:
    """What happened between two samples."""

    events: int
    wall_s: float
    cpu_s: float
    peak_mb: float

    @property
    def events_per_s(self) -> float:
        """By the clock."""
        return self.events / self.wall_s

    @property
    def cpu_us(self) -> float:
        """Processor time an event, of all threads of the process, in microseconds."""
        return self.cpu_s / self.events * 1e6


async def watched(child: Child, done: Callable[[], Awaitable[int]], total: int) -> list[Sample]:
    """Samples of the process until `done` events are `total`; `StuckError` where it ends, or nothing moves."""
    samples: list[Sample] = []
    moved = time.monotonic()
    while not samples or samples[-1].events < total:
        events = await done()
        if child.process.poll() is not None:
            raise StuckError(f"it ended with {child.process.returncode}: {child.text()[-2000:]}")
        if samples and events > samples[-1].events:
            moved = time.monotonic()
        if time.monotonic() - moved > PATIENCE_S:
            raise StuckError(f"it stands still at {events} of {total}: {child.text()[-2000:]}")
        samples.append(Sample(time.monotonic(), events, child.cpu_s(), child.rss_mb(), child.peak_mb()))
        await asyncio.sleep(LOOK_S)
    return samples


def window(samples: list[Sample], start: int, end: int) -> Window:
    """Between the first sample with `start` events done and the first with `end`."""
    a = next(s for s in samples if s.events >= start)
    b = next(s for s in samples if s.events >= end)
    return Window(b.events - a.events, b.time_s - a.time_s, b.cpu_s - a.cpu_s, b.peak_mb)


class Ends:
    """The number of records in some partitions, from their end offsets; markers of transactions count."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str, partitions: int) -> None:
        self._consumer, self._at = consumer, [TopicPartition(topic, p) for p in range(partitions)]

    async def __call__(self) -> int:
        """Now."""
        return sum((await self._consumer.end_offsets(self._at)).values())


async def at_full_speed(brokers: str, child: Child, topic: str, partitions: int, warm: int, total: int) -> Window:
    """From `warm` records in the topic to `total`; returns when those are committed, too."""
    async with reader(brokers, "read_uncommitted") as consumer:  # transactions may be seconds long
        samples = await watched(child, Ends(consumer, topic, partitions), total)
    async with reader(brokers) as consumer:
        await watched(child, Ends(consumer, topic, partitions), total)
    return window(samples, warm, total)
