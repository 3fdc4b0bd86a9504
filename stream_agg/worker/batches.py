"""The way of records through Faust: what was fetched of one partition is one event, in offset order, none skipped.

Faust keeps the membership, the heartbeats and the commits. Here stand the seams into faust-streaming, mode and
aiokafka, all private to them: the three are pinned, and the tests of this file say what to look at before a pin moves.
What the records mean, and where their effects go, is the handler's business.

One task, `_drain_messages`, claims, seeks and fetches, so none of these can overtake another. Every partition has a
`_Reader` that knows which offset is to be fetched next and which is to be worked next; a fetch or a run that starts
anywhere else is dropped and read again. A rebalance forgets every reader, and whatever still carries one is stale.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiokafka
import faust
from aiokafka.errors import ConsumerStoppedError, GroupAuthorizationFailedError, TopicAuthorizationFailedError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from stream_agg.errors import FencedError, RefusedError
from stream_agg.worker.failpoints import reach
from stream_agg.worker.fetching import FetchThread, Got

if TYPE_CHECKING:
    from stream_agg.worker.app import Handler

_log = logging.getLogger(__name__)

_COMMIT_S = 3.0  # an answer takes milliseconds


@dataclass(eq=False, slots=True)
class _Reader:
    """One topic-partition under one claim; a re-read takes a new one. None: the earliest record that is kept."""

    fetched: int | None  # the offset to fetch next
    worked: int | None  # the offset to work next; all before it is finished
    placed: bool = False  # whether the fetch position was set to `fetched`
    exists: bool = False  # whether the topic is known to reach that far
    waiting: int = 0  # runs handed over and not finished

    @classmethod
    def at(cls, offset: int | None) -> _Reader:
        return cls(offset, offset)


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """Offsets `start` to `end` of a topic-partition and the records found there (none, where a transaction ended)."""

    tp: TP
    reader: _Reader
    start: int
    end: int
    records: Sequence[aiokafka.ConsumerRecord]


class BatchTopic(faust.Topic):  # type: ignore[misc]  # faust is not typed
    """A topic whose events carry a `Run`. All input topics of an app must be of this class."""

    def _compile_decode(self) -> None:
        async def decode(message: Any, *, propagate: bool = False) -> Any:
            return self.app.create_event(None, message.value, message.headers, message)

        self.decode = decode


class BatchConsumer(driver.Consumer):  # type: ignore[misc]  # faust is not typed
    """Hands runs to `work`, by way of Faust's agent, and commits what is finished."""

    def __init__(self, transport: Transport, *args: Any, **kwargs: Any) -> None:
        super().__init__(transport, *args, **kwargs)
        self._handler = transport.handler
        self._runs_ahead = transport.runs_ahead
        self._run_records = transport.run_records
        self._readers: dict[TP, _Reader] = {}
        self._unclaimed, self._claimed = False, False
        self._room = asyncio.Event()
        self._busy = asyncio.Lock()

    def _new_consumer_thread(self) -> Any:
        return FetchThread(self, loop=self.loop, beacon=self.beacon)

    def worked(self) -> dict[tuple[str, int], int] | None:
        """(topic, partition) -> the offset after all that are finished; None while there is no claim."""
        if not self._claimed:
            return None
        at = {(tp.topic, tp.partition): reader.worked for tp, reader in self._readers.items()}
        return {tp: offset for tp, offset in at.items() if offset is not None}

    # What the agent calls.

    async def work(self, run: Run) -> None:
        """Have the handler process `run`, unless it is stale. Raises what the handler raises."""
        async with self._busy:
            reader = run.reader
            if not self._current(run):
                return
            if run.start != reader.worked:
                _log.warning("%s: got offset %s where %s is next: reading again", run.tp, run.start, reader.worked)
                self._restart(run.tp, reader.worked)
                return
            if run.records:
                await self._process(run)
            reader.worked = run.end
            reader.waiting -= 1
            self._room.set()

    async def _process(self, run: Run) -> None:
        try:
            await self._handler.process(run.tp.topic, run.tp.partition, run.records)
        except FencedError:
            if self._current(run):
                raise
            # It moved to another worker while we were at it, who reads the run again.

    async def finish(self, patience_s: float) -> None:
        """Take up no further run; the one under way may end within `patience_s` seconds."""
        self._hold()
        try:
            async with asyncio.timeout(patience_s), self._busy:
                pass
        except TimeoutError:
            _log.warning("a run was still under way after %g s", patience_s)

    def _current(self, run: Run) -> bool:
        return self._readers.get(run.tp) is run.reader

    def _restart(self, tp: TP, offset: int | None) -> None:
        self._readers[tp] = _Reader.at(offset)
        self._room.set()

    def _hold(self) -> None:
        self.stop_flow()
        self.app.flow_control.suspend()

    # What Faust calls at a rebalance.

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        self._hold()  # Faust does not where there was no partition, and would lose what is fetched before flow resumes
        await self.commit()
        self._readers.clear()
        self._unclaimed, self._claimed = False, False
        self._room.set()
        if revoked:
            await self._handler.revoke(frozenset(tp.partition for tp in revoked))
        await super().on_partitions_revoked(revoked)

    async def perform_seek(self) -> None:
        """Leave the claim to the drain task: Faust cuts this call short after `broker_request_timeout`, and never
        reads again when that happens, but a claim takes as long as the store is away."""
        self._unclaimed = True

    # The drain task.

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self.should_stop or fetcher.should_stop):
                if not self.flow_active:
                    await self.wait(self.can_resume_flow)
                elif self._unclaimed:
                    await self._claim()
                elif self._readers:
                    await self._place()
                    await self._hand_over()
                else:  # no partition for us
                    self._claimed = True
                    await self.wait(self.suspend_flow)
        except (ConsumerStoppedError, asyncio.CancelledError):
            if not self.app.should_stop:
                raise

    async def _claim(self) -> None:
        claim = asyncio.ensure_future(self._claim_alone())
        suspended = asyncio.ensure_future(self.suspend_flow.wait())
        try:
            await asyncio.wait({claim, suspended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            claim.cancel()  # a rebalance overtook it, or we are stopping; nothing happens to one that is done
            suspended.cancel()
            await asyncio.wait({claim, suspended})
        if claim.cancelled():
            return
        readers, committed = claim.result()
        if suspended.cancelled():
            self._unclaimed, self._claimed, self._readers = False, True, readers
            self._committed_offset.update(committed)

    async def _claim_alone(self) -> tuple[dict[TP, _Reader], dict[TP, int | None]]:
        tps: list[TP] = list(self.assignment())
        if not tps:
            return {}, {}
        committed: dict[TP, int | None] = await self._thread.call_thread(self._thread.offsets_committed, tps)
        async with self._busy:
            offsets = await self._handler.claim(
                frozenset(tp.partition for tp in tps),
                {(tp.topic, tp.partition): offset for tp, offset in committed.items()},
            )
        return {tp: _Reader.at(offsets.get((tp.topic, tp.partition))) for tp in tps}, committed

    async def _place(self) -> None:
        """Set the fetch position of every reader that is not where it should be."""
        readers = {tp: reader for tp, reader in self._readers.items() if not reader.placed}
        if not readers:
            return
        for tp, first in (await self._thread.call_thread(self._thread.offsets_earliest, list(readers))).items():
            reader = readers[tp]
            if reader.fetched is None:
                reader.fetched = reader.worked = first
            elif reader.fetched < first:
                gone = first - reader.fetched
                raise RefusedError(
                    f"{tp.topic}[{tp.partition}]: {gone} records are gone: offset {reader.fetched} is next, and the "
                    f"topic keeps {first} and later; bring them back, or rebuild from what is kept"
                )
        await self._thread.call_thread(self._thread.place, {tp: reader.fetched for tp, reader in readers.items()})
        for reader in readers.values():
            reader.placed = True

    async def _hand_over(self) -> None:
        while sum(reader.waiting for reader in self._readers.values()) >= self._runs_ahead:
            self._room.clear()
            await self._room.wait()
        readers, generation = dict(self._readers), self.app.consumer_generation_id
        expected = {tp: reader.fetched for tp, reader in readers.items() if reader.placed}
        if not expected:
            return
        got = await self._thread.call_thread(self._thread.fetch, expected, self._run_records)
        self._check_ends(readers, expected, got)
        for tp in got.strayed:
            readers[tp].placed = False
        for tp, (end, records) in got.moved.items():
            run = Run(tp, readers[tp], expected[tp], end, records)
            if self._current(run):
                run.reader.fetched = end
                run.reader.waiting += 1
                # Waits while flow is suspended: the run is stale then, and `work` drops it.
                await self.callback(_message(run, generation))

    def _check_ends(self, readers: dict[TP, _Reader], expected: dict[TP, int], got: Got) -> None:
        """A topic that ends before the position is not the one that was read; aiokafka would wait, or start again."""
        # The high watermark counts once per claim: the successor of a failed broker may know a lower one for a while.
        ends = {tp: end for tp, end in got.ends.items() if not readers[tp].exists} | got.strayed
        for tp, end in ends.items():
            if self._readers.get(tp) is not readers[tp]:
                continue
            if end < expected[tp]:
                raise RefusedError(
                    f"{tp.topic}[{tp.partition}]: offset {expected[tp]} is next, and the topic ends before: it is not "
                    f"the topic that was read until now; bring that back, or start with an empty store"
                )
            readers[tp].exists = True

    # Commits: a hint for other tools, and for the operator.

    async def commit(self, *args: Any, **kwargs: Any) -> bool:
        """Commit what is finished; False when there was nothing, or no answer in time.

        aiokafka tries until the broker is back, but neither a rebalance nor a stop must wait for that.
        """
        try:
            async with asyncio.timeout(_COMMIT_S):
                reach("before_ack")
                done = bool(await super().commit(*args, **kwargs))
                if done:
                    reach("after_ack")
                return done
        except TimeoutError:
            _log.warning("no answer to a commit in %g s; the group's lag looks larger than it is", _COMMIT_S)
            return False
        except (GroupAuthorizationFailedError, TopicAuthorizationFailedError):
            return False  # a right was taken: the next fetch says so, and a stop under way must not break off here

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        committed = self._committed_offset
        offsets = {tp: reader.worked for tp, reader in self._readers.items() if reader.worked is not None}
        return {tp: offset for tp, offset in offsets.items() if offset != committed[tp]}


def _message(run: Run, generation: int) -> Any:
    tp, offset = run.tp, run.end - 1
    return ConsumerMessage(
        tp.topic, tp.partition, offset, 0.0, 0, None, None, run, None, 0, 0, tp, generation_id=generation
    )


class Transport(driver.Transport):  # type: ignore[misc]  # faust is not typed
    """Faust's aiokafka transport with a `BatchConsumer`.

    At most `run_records` records make a run, and about `runs_ahead` runs wait for the agent.
    """

    Consumer = BatchConsumer

    def __init__(self, url: Any, app: faust.App, *, handler: Handler, run_records: int, runs_ahead: int) -> None:
        super().__init__(url, app)
        self.handler = handler
        self.run_records = run_records
        self.runs_ahead = runs_ahead
