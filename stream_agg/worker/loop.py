"""Claim, batch, compute, commit, publish: what happens to every input record, in the order that loses nothing.

    claim     a new epoch in the store, what the outbox still holds is published, reading starts at the stored offsets
    compute   sessions take the records; pure
    commit    changed fields, next offset and outputs in one step, refused if the epoch is not ours
    publish   outputs sent and acknowledged, while the next batch is computed; a later commit lets their stored copy go

A crash before the commit repeats the batch, one after it publishes the very same bytes again. Nothing here reads a
clock that reaches a state or an output.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from aiokafka import ConsumerRecord

from stream_agg.errors import FencedError, RefusedError, UnavailableError
from stream_agg.events import Forecast, State, parse_duration
from stream_agg.session.engine import Session
from stream_agg.store.tables import Commit, Outcome, Store
from stream_agg.watch import names
from stream_agg.watch.observer import Observer
from stream_agg.worker.batch import Batch, Decoder, needed, read
from stream_agg.worker.bounds import Bounds
from stream_agg.worker.broker import Specs
from stream_agg.worker.failpoints import reach
from stream_agg.worker.limits import Limits
from stream_agg.worker.owned import Held, Owned
from stream_agg.worker.publish import Publisher
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Encoder, Outputs, Place

_log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R", ConsumerRecord, Place)

RETRY_S = 0.5
"""Pause between tries while a server is away: short against any outage, long against the work of a try."""
RELEASE_S = 1.0
"""How long a rebalance waits for a store that is asked to let published outputs go."""
SPECS_EVERY_S = 0.5
"""How often the sessions topic is looked at when no forecast asks for it."""


class Loop:
    """The handler behind the Faust app: one `Owned` for each partition that is ours."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        publisher: Publisher,
        specs: Specs,
        observer: Observer | None = None,
    ) -> None:
        self.settings, self.store, self.publisher, self.specs = settings, store, publisher, specs
        self.observer = observer or Observer()
        self.owned: dict[int, Owned] = {}
        self._encoder = Encoder(settings)
        self._grace_ms = parse_duration(settings.close_grace) // 1000
        self._decoders: dict[str, Decoder] = {
            settings.topic_forecasts: Forecast.from_record,
            settings.topic_states: State.from_record,
        }
        self._away, self._waiting = False, 0
        self._bounds = Bounds(settings)
        self._limits = Limits(settings.dead_letter_run, settings.dead_letter_ratio)

    async def claim(
        self, partitions: frozenset[int], committed: Mapping[tuple[str, int], int | None]
    ) -> Mapping[tuple[str, int], int]:
        """Become the owner, publish what a former one left, and say where to read from."""
        await self.revoke(frozenset(self.owned))
        for partition in sorted(partitions):
            self.owned[partition] = await self._insist(partial(self._claim_one, partition, committed))
        self.specs.read_from({p: owned.next_offsets[self.specs.topic] for p, owned in self.owned.items()})
        self.observer.rebalanced(committed)
        inputs = (self.settings.topic_forecasts, self.settings.topic_states)
        return {(topic, p): owned.next_offsets[topic] for p, owned in self.owned.items() for topic in inputs}

    async def revoke(self, partitions: frozenset[int]) -> None:
        """Drop the caches of partitions; work under way on them ends at the store's fence."""
        gone = [owned for p in partitions if (owned := self.owned.pop(p, None)) is not None]
        for owned in gone:
            owned.lost = True
        with suppress(UnavailableError, TimeoutError):  # what stays, the next owner publishes again
            async with asyncio.timeout(RELEASE_S):
                await asyncio.gather(*map(self._trim, gone))

    async def process(self, topic: str, partition: int, records: Sequence[ConsumerRecord]) -> None:
        """Apply a run of records; returns once they are committed and their outputs delivered."""
        owned = self.owned.get(partition)
        if owned is None:
            return
        async with owned.alone():
            at = owned.next_offsets[topic]
            fresh = [r for r in records if r.offset >= at]
            for some in _parts(fresh, owned.marks.get(topic, 0)):
                for start in range(0, len(some), self.settings.batch):
                    part = some[start : start + self.settings.batch]
                    headers = [record.headers for record in part] if self.observer.traces else ()
                    with self.observer.batch(topic, partition, headers):
                        await self._apply(owned, topic, part)

    async def watch_specs(self) -> None:
        """Take new specs and closings as they come, until cancelled."""
        while True:
            for owned in list(self.owned.values()):
                with suppress(FencedError):
                    async with owned.alone():
                        await self._take_specs(owned, await self._polled(owned))
                        with suppress(UnavailableError):
                            await self._trim(owned)
            await asyncio.sleep(SPECS_EVERY_S)

    async def _polled(self, owned: Owned) -> Sequence[ConsumerRecord]:
        try:
            return await self.specs.poll(owned.partition)
        except UnavailableError as e:
            _log.debug("sessions topic: %s", e)
            return ()

    async def finish(self) -> None:
        """Let go of outbox blobs that no commit will carry away any more."""
        for owned in self.owned.values():
            if not owned.lost:
                try:
                    await self._trim(owned)
                except UnavailableError as e:
                    _log.warning("the outbox of partition %d stays for the next owner: %s", owned.partition, e)

    async def _claim_one(self, partition: int, committed: Mapping[tuple[str, int], int | None]) -> Owned:
        topics = self.settings.inputs
        first = await self.specs.earliest(topics, partition)
        hints = {topic: committed.get((topic, partition)) for topic in topics}
        self._refuse_foreign((await self.store.peek(partition)).next_offsets, partition, hints, first)
        claim = await self.store.claim(partition)
        offsets = {topic: claim.next_offsets.get(topic, first[topic]) for topic in topics}
        marks, held = await self.publisher.claim(partition), Held(self.settings.memory_decisions)
        owned = Owned(partition, claim.epoch, offsets, dict(claim.next_offsets), marks, held)
        owned.opened = len(await self.store.sessions(partition))
        reach("after_claim")
        rows = 0
        try:
            for number, blob in claim.outbox:
                outputs = Outputs.unpack(blob)
                if outputs.next > owned.marks.get(outputs.topic, 0):
                    await self._publish(owned, outputs)
                    rows += len(outputs.rows)
                owned.published = number
        except FencedError as e:  # two claims at once: the later rebalance decides, or we do by claiming again
            raise UnavailableError(str(e)) from e
        await self._trim(owned)
        _log.info("partition %d is ours (epoch %d, %d rows published again)", partition, claim.epoch, rows)
        self._say_if_rewound(owned, hints)
        return owned

    def _refuse_foreign(
        self,
        stored: Mapping[str, int],
        partition: int,
        committed: Mapping[str, int | None],
        first: Mapping[str, int],
    ) -> None:
        """`RefusedError`, before anything is touched, where what the store holds is not of these topics."""
        others = sorted(set(stored) - set(committed))
        if others:
            raise RefusedError(
                f"Redis holds partition {partition} of {self.settings.app!r} as it was read from {', '.join(others)}, "
                "which is none of this worker's topics: set the STREAM_AGG_TOPIC_* of then, or start afresh under "
                "another app name"
            )
        read = any(offset is not None and offset > first[topic] for topic, offset in committed.items())
        if read and not stored and not self.settings.rebuild:
            raise RefusedError(
                f"Redis holds nothing of partition {partition}, but the group {self.settings.app!r} has read it: "
                "restore Redis from its backup, or start once with --rebuild to replay the retained records"
            )

    def _say_if_rewound(self, owned: Owned, committed: Mapping[str, int | None]) -> None:
        """Redis is the state of record: where Kafka knows of more, a failover or an old backup took Redis back."""
        for topic, offset in committed.items():
            known, at = max(offset or 0, owned.marks.get(topic, 0)), owned.next_offsets[topic]
            if known > at:
                _log.warning(
                    "%s[%d]: Redis went back in time: it has applied the records before %d, those before %d had been; "
                    "they are applied again",
                    topic,
                    owned.partition,
                    at,
                    known,
                )

    async def _apply(self, owned: Owned, topic: str, records: Sequence[ConsumerRecord]) -> None:
        decoder = self._decoders[topic]
        reads = [read(record, decoder, self._bounds) for record in records]
        wanted = needed(reads)
        await self._load(owned, wanted)
        if wanted - set(owned.sessions):  # their specs may be in the topic by now
            await self._insist(partial(self._catch_up, owned), owned)
            await self._load(owned, wanted)
        batch = self._batch(owned)
        self.observer.taking(topic, owned.partition, records[0].offset)
        with self.observer.timed(names.DECIDE):
            for item in reads:
                batch.event(item)
        await self._commit(owned, topic, records[-1].offset + 1, batch)
        owned.sessions.used(wanted)

    async def _take_specs(self, owned: Owned, records: Sequence[ConsumerRecord]) -> None:
        fresh = [Place.of(r) for r in records if r.offset >= owned.next_offsets[self.specs.topic]]
        if not fresh:
            return
        wanted = {place.key.decode("utf-8", "replace") for place in fresh}
        await self._load(owned, wanted)
        for some in _parts(fresh, owned.marks.get(self.specs.topic, 0)):
            batch = self._batch(owned)
            for place in some:
                batch.spec(place)
            await self._commit(owned, self.specs.topic, some[-1].offset + 1, batch)
        owned.sessions.used(wanted)

    async def _catch_up(self, owned: Owned) -> None:
        async for records in self.specs.rest(owned.partition):
            await self._take_specs(owned, records)

    def _batch(self, owned: Owned) -> Batch:
        facts, context = self.observer.facts(), self.observer.context()
        seen = owned.next_offsets[self.specs.topic]
        return Batch(owned.sessions, self._encoder, self._grace_ms, facts, context, seen, owned.opened)

    async def _load(self, owned: Owned, names: set[str]) -> None:
        for name in sorted(names - set(owned.sessions)):
            tables = await self._insist(partial(self.store.load, owned.partition, name), owned)
            if tables is not None:
                try:
                    owned.sessions[name] = Session.from_tables(tables)
                except (KeyError, ValueError) as e:
                    raise RefusedError(
                        f"what Redis holds of session {name!r} is not whole ({e!r}): restore it from a backup, or "
                        f"delete the keys of partition {owned.partition} and start with --rebuild"
                    ) from e

    async def _commit(self, owned: Owned, topic: str, next_offset: int, batch: Batch) -> None:
        """Commit and publish. Until the commit is known to be applied it is sent again, the same to the byte."""
        self._limits.check(topic, owned.partition, batch.refused, batch.fault)
        known = next_offset <= owned.marks.get(topic, 0)  # they were published before the store went back in time
        outputs = Outputs(topic, next_offset, [] if known else batch.rows)
        commit = Commit(
            partition=owned.partition,
            epoch=owned.epoch,
            topic=topic,
            expected=owned.stored.get(topic),
            others={other: owned.stored.get(other) for other in self.settings.inputs if other != topic},
            next=next_offset,
            changes=batch.changes(),
            outbox=outputs.pack(),
            trim=owned.published,
        )
        reach("before_commit")
        with self.observer.timed(names.COMMIT):
            done = await self._insist(partial(self.store.commit, commit), owned)
        reach("after_commit")
        lost = commit.expected is not None and (done.stored is None or done.stored < commit.expected)
        if done.outcome is Outcome.FENCED and not lost:
            self.observer.fenced()
            _log.warning("partition %d: a commit under the old epoch %d was refused", owned.partition, owned.epoch)
            raise FencedError(f"partition {owned.partition} has another owner now")
        if lost or (done.outcome is Outcome.STALE and done.stored != next_offset):
            raise RefusedError(
                f"Redis went back in time at partition {owned.partition} (a restored backup, a stale replica?): it has "
                f"{topic} at {done.stored}, expected {commit.expected}; start the worker again, it goes on from there"
            )
        owned.next_offsets[topic] = owned.stored[topic] = next_offset
        owned.opened = batch.opened
        self.observer.applied(self.settings.role(topic), batch.facts, batch.outputs())
        owned.trimmed = max(owned.trimmed, commit.trim)
        if outputs.rows:
            await owned.deliver(self._deliver(owned, outputs, done.number))

    async def _deliver(self, owned: Owned, outputs: Outputs, number: int) -> None:
        with self.observer.timed(names.PUBLISH):
            await self._insist(partial(self._publish, owned, outputs), owned)
        owned.published = max(owned.published, number)

    async def _publish(self, owned: Owned, outputs: Outputs) -> None:
        reach("before_publish")
        try:
            await self.publisher.publish(owned.partition, outputs)
        except UnavailableError:
            if (await self.store.peek(owned.partition)).epoch != owned.epoch:
                raise FencedError(f"partition {owned.partition} was claimed by another while Kafka was away") from None
            raise
        reach("after_publish")

    async def _trim(self, owned: Owned) -> None:
        """Let go of outbox blobs that no commit has carried away yet."""
        if owned.published > owned.trimmed:
            reach("before_trim")
            number = owned.published
            await self.store.trim(owned.partition, owned.epoch, number)
            owned.trimmed = max(owned.trimmed, number)
            reach("after_trim")

    async def _insist(self, ask: Callable[[], Awaitable[T]], owned: Owned | None = None) -> T:
        """The answer, however often a server has to be asked. Says once that it waits, and once that it goes on."""
        waits = False
        try:
            while True:
                try:
                    answer = await ask()
                    break
                except UnavailableError as e:
                    self.observer.waits(str(e))
                    if not self._away:
                        self._away = True
                        _log.warning("paused, nothing is lost: %s; trying again every %g s", e, RETRY_S)
                    self._waiting, waits = self._waiting + (not waits), True
                    if owned is not None and owned.lost:
                        raise FencedError(f"partition {owned.partition} was given up while a server was away") from e
                    await asyncio.sleep(RETRY_S)
        finally:
            self._waiting -= waits
        if self._away and not self._waiting:  # what goes on beside may still wait for another server
            self._away = False
            self.observer.resumes()
            _log.warning("the server answers again: resumed")
        return answer


def _parts(records: Sequence[R], mark: int) -> Iterable[Sequence[R]]:
    """The records before that offset, and the others."""
    return filter(None, ([r for r in records if r.offset < mark], [r for r in records if r.offset >= mark]))
