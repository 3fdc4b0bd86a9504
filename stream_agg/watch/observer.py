"""What the worker's loop tells of its work, in one object: each call is a fact, none changes what happens next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from time import monotonic

from stream_agg import __version__
from stream_agg.errors import Reason
from stream_agg.watch import names
from stream_agg.watch.health import Health
from stream_agg.watch.metrics import Metrics
from stream_agg.watch.names import Input, Metric, Outcome
from stream_agg.watch.tracing import Headers, Tracing


@dataclass
class Facts:
    """What one batch did, to be counted once it is committed."""

    health: Health
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    dead: Counter[Reason] = field(default_factory=Counter)
    solves_s: list[float] = field(default_factory=list)
    unsolved: int = 0

    def solved(self, seconds: float) -> None:
        """A solve ended: the worker is slow, perhaps, and not stuck."""
        self.solves_s.append(seconds)
        self.health.beat_s = monotonic()


class Observer:
    """The facts of one worker, kept as metrics and as health."""

    def __init__(self, stuck_s: float = 120.0, tracing: Tracing | None = None) -> None:
        now_s = monotonic()
        self.health = Health(stuck_s, beat_s=now_s, moved_s=now_s, looked_s=now_s)
        self.metrics = Metrics(__version__)
        self.metrics.set(names.BUILD, 1, __version__)
        self.metrics.set(names.WATERMARK, math.nan)
        self._tracing = tracing
        self._hints: dict[tuple[str, int], int] = {}

    def facts(self) -> Facts:
        """A sheet for one batch."""
        return Facts(self.health)

    @property
    def traces(self) -> bool:
        """Whether batches are traced, for which their records' headers are asked."""
        return self._tracing is not None

    def batch(self, topic: str, partition: int, headers: Sequence[Headers]) -> AbstractContextManager[None]:
        """Around the work on records with these headers."""
        return self._tracing.batch(topic, partition, len(headers), headers) if self._tracing else nullcontext()

    def context(self) -> tuple[tuple[str, str], ...]:
        """Headers that outputs of the batch under way carry, to be traced from there on."""
        return self._tracing.context() if self._tracing else ()

    @contextmanager
    def timed(self, metric: Metric) -> Iterator[None]:
        """Seconds of a step that ends well."""
        since = monotonic()
        with self._tracing.step(metric.name.removesuffix("_seconds")) if self._tracing else nullcontext():
            yield
        self.metrics.observe(metric, monotonic() - since)

    def rebalanced(self, hints: Mapping[tuple[str, int], int | None]) -> None:
        """Partitions were claimed. `hints`: the group's committed offsets."""
        self.metrics.add(names.REBALANCES)
        self._hints = {tp: offset for tp, offset in hints.items() if offset is not None}

    def taking(self, topic: str, partition: int, offset: int) -> None:
        """A batch begins there. Below the group's committed offset it was worked before, and Redis has lost it."""
        if offset < self._hints.pop((topic, partition), 0):
            self.metrics.add(names.REWINDS)

    def applied(self, source: Input, facts: Facts, outputs: Mapping[names.Output, int]) -> None:
        """A batch is committed."""
        add = self.metrics.add
        for outcome, count in facts.outcomes.items():
            add(names.EVENTS, count, source, outcome)
        for reason, count in facts.dead.items():
            add(names.DEAD_LETTERS, count, reason)
        for output, count in outputs.items():
            add(names.OUTPUTS, count, output)
        for seconds in facts.solves_s:
            self.metrics.observe(names.SOLVE, seconds)
        if facts.unsolved:
            add(names.SOLVES_FAILED, facts.unsolved)
        self.metrics.observe(names.BATCH_RECORDS, facts.outcomes.total())

    def fenced(self) -> None:
        """The store refused a write of ours."""
        self.metrics.add(names.FENCED)

    def waits(self, why: str) -> None:
        """A server did not answer; the call is tried again."""
        self.metrics.add(names.RETRIES)
        self.metrics.set(names.WAITING, 1)
        self.health.waiting = why

    def resumes(self) -> None:
        """It answers again."""
        self.metrics.set(names.WAITING, 0)
        self.health.waiting = None
