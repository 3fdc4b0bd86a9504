"""A backup brought up to what was published since, in the very order in which it was: what is applied again after a
restore would else interleave in an order of its own, and not give the same bytes. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stream_agg.events import Regret, RuleRecord
from stream_agg.replay.kept import Kept
from stream_agg.replay.log import At, Record
from stream_agg.replay.order import DeadLetters, Life, Order
from stream_agg.replay.published import Published, Stream, only_final
from stream_agg.replay.rederive import Rederived
from stream_agg.replay.verify import Verification
from stream_agg.session.engine import Session
from stream_agg.store.backup import Partition
from stream_agg.store.keys import NEXT
from stream_agg.worker.kafka import partition_of
from stream_agg.worker.wire import Place


@dataclass
class Following(Rederived):
    """Compares the actions, as `Rederived` does; reports, whose beginnings are before the backup, only say when a
    session was closed."""

    def duplicate(self, name: str) -> None:
        super().duplicate(name)
        self._count(name, 1)

    def close(self, name: str) -> None:
        super().close(name)
        self.regrets.take(name)

    def _origin(self, record: Record | None) -> Any:
        if record is None:
            return None
        place = At(record.topic, record.partition)
        return Place(*place, record.offset, record.timestamp, record.key or b"", record.value or b"").pack()

    def _regret(self, name: str, report: Regret) -> None:
        """Not compared."""

    def _rule(self, name: str, rule: RuleRecord) -> None:
        """Not compared."""


class CatchUp(Verification):
    """Brings partitions up to what the topics hold when it is made."""

    def bring(self, saved: Partition, dead: DeadLetters) -> Partition:
        """The partition as it was after the last action that was published of it. `DivergenceError` where the backup
        and the topics are not of one deployment."""
        to = self.to
        next_offsets = {
            name: int(saved.meta.get(NEXT + topic, self.spans[At(topic, saved.partition)].first))
            for name, topic in zip(("sessions", "forecasts", "states"), to.inputs, strict=True)
        }
        actions, finals = (
            {p: self._stream(At(topic, p)) for p in range(self.counts[topic])}
            for topic in (to.topic_actions, to.topic_regret)
        )
        finals = {p: Stream(partial(only_final, stream.more)) for p, stream in finals.items()}
        inputs = self._inputs(saved.partition, None)
        starts = {at: next_offsets[name] for name, at in inputs.at.items()}
        outputs = [At(topic, p) for topic in (to.topic_actions, to.topic_regret) for p in range(self.counts[topic])]
        self.log.open({**{at: self.spans[at].first for at in outputs}, **starts})
        with Kept() as kept:
            lives = {}
            for name, tables in saved.sessions.items():
                session = Session.from_tables(tables)
                kept.put(name, session)
                lives[name] = Life(session.spec, states=session.counters.states_seen)
            made = Following(kept, self._keyed(to.topic_regret, finals), Published({}, lambda session: 0))
            order = Order(inputs, self._keyed(to.topic_actions, actions), dead, made, lambda: None, lives)
            order.begun, order.states_at = next_offsets["forecasts"], next_offsets["states"]
            order.specs_at = next_offsets["sessions"]
            made.under_way = order.under_way
            reached = order.follow()
            found = ((name, kept.get(name)) for name in kept.names())
            sessions = {name: session.tables() for name, session in found if session is not None}
        offsets = {NEXT + inputs.at[name].topic: str(offset) for name, offset in reached.items()}
        return replace(saved, meta={**saved.meta, **offsets}, sessions=sessions)

    def letters(self) -> DeadLetters:
        """The dead letters of all partitions."""
        return DeadLetters(self._letters())

    def _keyed(self, topic: str, streams: dict[int, Stream]) -> Published:
        count = self.counts[topic]
        return Published(streams, lambda session: partition_of(session.encode(), count), float("inf"))
