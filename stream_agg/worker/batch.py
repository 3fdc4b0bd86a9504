"""What one batch of records does to the sessions of a partition: computed here, committed elsewhere. No I/O.

Sessions must be at hand: `needed` says which, the caller loads them first. The result is a `Commit` and its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

from stream_agg.errors import EventError, InputError, SpecError
from stream_agg.events import Dropped, Forecast, RuleRecord, State
from stream_agg.session.engine import Output, Session
from stream_agg.store.tables import SessionChange
from stream_agg.watch.names import Outcome
from stream_agg.watch.names import Output as Role
from stream_agg.watch.observer import Facts
from stream_agg.worker.bounds import DEFAULT, Bounds
from stream_agg.worker.wire import Applied, Encoder, Header, Place, Record, Row

Event = Forecast | State
Decoder = Callable[[Any], Event]


class Read(NamedTuple):
    """A decoded record, or what is wrong with it."""

    record: Record
    event: Event | InputError


@dataclass
class Batch:
    """Changes and rows piled up by the records of one topic-partition, in offset order.

    `sessions` is the partition's cache, changed in place: a batch that is not committed must drop it.
    """

    sessions: dict[str, Session]
    encoder: Encoder
    grace_ms: int
    facts: Facts
    context: tuple[Header, ...] = ()
    """Headers that every output gets beside its own: of tracing."""
    specs_seen: int = 0
    """The next offset of the sessions topic: specs before it were applied."""
    opened: int = 0
    """Sessions that the partition has, in memory or not."""
    rows: list[Row] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    fresh: set[str] = field(default_factory=set)
    closed: dict[str, Session] = field(default_factory=dict)
    refused: list[bool] = field(default_factory=list)
    """Of every record, whether it could not be used."""
    fault: str = ""
    """What was wrong with the last such record."""

    @property
    def bounds(self) -> Bounds:
        """What a record may ask for."""
        return Bounds(self.encoder.settings)

    def event(self, read: Read) -> None:
        """Apply a forecast or state."""
        self.refused.append(False)
        event = read.event
        if isinstance(event, InputError):
            self._refuse(read.record, event)
            return
        session = self.sessions.get(event.session)
        if session is None:
            hint = "send its spec first, and use the session id as the key of every record"
            self._refuse(read.record, EventError("unknown_session", f"no session {event.session!r} here; {hint}"))
            return
        self.touched.add(event.session)
        try:
            if isinstance(event, Forecast):
                outputs = self._forecast(session, event)
            else:
                # Only one that comes before its forecast outlives its record.
                learned, outputs = session.state(
                    event, None if session.knows(event.event) else Place.of(read.record).pack()
                )
                self._count("learned" if learned == "applied" else learned)
        except InputError as e:
            self._refuse(read.record, e)
        else:
            self._emit(session, outputs, read.record)

    def spec(self, place: Place) -> None:
        """Apply a session spec, or the null that closes a session."""
        self.refused.append(False)
        try:
            name = place.key.decode()
            if not place.value:
                self._count("closed" if self._close(name, place) else "ignored")
                return
            spec = self.bounds.spec(place.value)
            if spec.session != name:
                raise SpecError([f"the record's key is {name!r}, not the session id {spec.session!r}"])
            session = self.sessions.get(name)
            if session is None:
                self.bounds.room(self.opened)
                self.sessions[name] = Session(spec)
                self.opened += 1
                self.fresh.add(name)
                self.closed.pop(name, None)
            else:
                session.change(spec)
            self.touched.add(name)
            self._count("opened" if session is None else "changed")
        except UnicodeDecodeError:
            self._refuse(place, SpecError(["the record's key is not UTF-8"]))
        except InputError as e:
            self._refuse(place, e)

    def changes(self) -> dict[str, SessionChange]:
        """What the batch leaves of every session it touched."""
        changed = {
            name: SessionChange(self.sessions[name].changes(), reset=name in self.fresh)
            for name in sorted(self.touched - set(self.closed))
        }
        for name, session in self.closed.items():
            changed[name] = SessionChange(session.changes(), reset=name in self.fresh, expire_ms=self.grace_ms)
        return changed

    def outputs(self) -> dict[Role, int]:
        """How many rows go to each output."""
        return {self.encoder.role(topic): count for topic, count in Counter(row.topic for row in self.rows).items()}

    def _forecast(self, session: Session, event: Forecast) -> list[Output]:
        tried, since = session.counters.tried_round, monotonic()
        outputs = session.forecast(event)
        if session.counters.tried_round != tried:
            self.facts.solved(monotonic() - since)
        self.facts.outcomes["decided" if outputs else "duplicate"] += 1
        return outputs

    def _close(self, name: str, place: Place) -> bool:
        session = self.sessions.pop(name, None)
        if session is None:
            return False  # nothing to close; a compacted topic repeats its nulls
        self.closed[name] = session
        self.opened -= 1
        self._emit(session, [session.close()], place)
        return True

    def _emit(self, session: Session, outputs: Iterable[Output], record: Record) -> None:
        at = Applied(record.offset, self.specs_seen, session.counters.states_seen)
        for output in outputs:
            if isinstance(output, Dropped):
                # The session took it and counted it: no sign that records are not what they should be.
                dropped = Place.of(record) if output.origin is None else Place.unpack(output.origin)
                self._letter(dropped, EventError(output.reason, output.detail))
            else:
                if isinstance(output, RuleRecord) and output.unsolved is not None:
                    self.facts.unsolved += 1
                self._send(self.encoder.row(output, at))

    def _count(self, outcome: Outcome) -> None:
        self.facts.outcomes[outcome] += 1

    def _refuse(self, record: Record, error: InputError) -> None:
        self._count("rejected")
        self.refused[-1] = True
        self.fault = f"offset {record.offset}, {error.reason}: {error.detail}"
        self._letter(Place.of(record), error)

    def _letter(self, place: Place, error: InputError) -> None:
        self.facts.dead[error.reason] += 1
        self._send(self.encoder.dead_letter(place, error))

    def _send(self, row: Row) -> None:
        self.rows.append(row._replace(headers=row.headers + self.context) if self.context else row)


def read(record: Record, decoder: Decoder, bounds: Bounds = DEFAULT) -> Read:
    """Decode and check a record once, at the door."""
    try:
        event = decoder(bounds.event(record.value or b""))
        bounds.ids(event)
        return Read(record, event)
    except InputError as e:
        return Read(record, e)


def needed(reads: Iterable[Read]) -> set[str]:
    """The sessions that a batch of events will ask for."""
    return {r.event.session for r in reads if not isinstance(r.event, InputError)}
