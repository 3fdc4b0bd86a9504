"""In which order a worker applied what its input topics hold, rebuilt from what it published. No I/O, no session here.

Each topic has an order of its own; how two of them interleave is free, so it is read off the outputs. An action says
which forecast it is of, how many states its session had taken before and how far the specs were read; a dead letter
says which record was not applied. Every topic is gone through once, and only as far as the next action asks: within a
session that is the very order, since a worker took each topic in its order too.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from stream_agg.errors import InputError
from stream_agg.events import Forecast, State
from stream_agg.replay.log import At, Record
from stream_agg.replay.published import DivergenceError, Item, Published, Stream
from stream_agg.spec import SessionSpec
from stream_agg.worker.wire import decode

APPLIED = frozenset({"late", "conflict", "unknown"})
"""Dead letters of states that a session has counted all the same."""


class DeadLetters:
    """Which input records have become dead letters, in nine bytes each."""

    def __init__(self, letters: Iterable[tuple[At, int, str]]) -> None:
        found: dict[At, dict[int, bool]] = {}
        for at, offset, reason in letters:
            found.setdefault(at, {})[offset] = reason in APPLIED
        self._offsets = {at: array("q", sorted(of)) for at, of in found.items()}
        self._applied = {at: bytes(of[offset] for offset in self._offsets[at]) for at, of in found.items()}

    def kind(self, at: At, offset: int) -> Literal["applied", "refused"] | None:
        """Whether a session has counted it all the same; None where there is no dead letter."""
        offsets = self._offsets.get(at)
        if offsets is None:
            return None
        i = bisect_left(offsets, offset)
        if i == len(offsets) or offsets[i] != offset:
            return None
        return "applied" if self._applied[at][i] else "refused"


class Sessions(Protocol):
    """What is done with the records, in their order. Names are those of sessions that are open."""

    def open(self, name: str, spec: SessionSpec) -> None: ...

    def change(self, name: str, spec: SessionSpec) -> None: ...

    def skip(self, name: str) -> None:
        """Nothing will be told of this session: it began before the records do."""
        ...

    def closes(self, name: str) -> bool:
        """Whether a final report of the session was published."""
        ...

    def closable(self, name: str) -> bool:
        """Whether the session has taken all states that it took before it was closed."""
        ...

    def close(self, name: str) -> None: ...

    def remembers(self, name: str, event: str) -> bool:
        """Whether an event of that id is a duplicate."""
        ...

    def duplicate(self, name: str) -> None: ...

    def forecast(self, forecast: Forecast, published: Item) -> None: ...

    def state(self, state: State, record: Record) -> None: ...


@dataclass(slots=True)
class Life:
    """A session from its first spec to its null. `skipped`: it began before the records do."""

    spec: SessionSpec | None
    states: int = 0
    skipped: bool = False


@dataclass
class Inputs:
    """The input topics of one partition, and what is known of them.

    `committed`: offsets below are applied for sure. `since_ms`: older records than that are gone of some topic.
    """

    at: Mapping[str, At]
    forecasts: Stream
    states: Stream
    specs: Stream
    committed: Mapping[str, int]
    since_ms: float | None


@dataclass
class Order:
    """Drives `sessions` through the records of one partition. `tell` is told of every forecast and state."""

    inputs: Inputs
    actions: Published
    dead: DeadLetters
    sessions: Sessions
    tell: Callable[[], None]
    lives: dict[str, Life] = field(default_factory=dict)
    pending: int = 0
    """Forecasts that nothing was published for, and that may still be waiting for their worker."""
    unverifiable: set[str] = field(default_factory=set)
    """Sessions that began before the records do."""
    doubts: list[str] = field(default_factory=list)
    """What may be gone, in words."""
    place: tuple[str, int] = ("forecasts", 0)
    """The record under way: which of the topics, and its offset."""
    begun: int = 0
    """The first forecast: actions of those before it are not asked for."""
    specs_at: int = 0
    states_at: int = 0
    """The next offsets of the other two topics."""
    _following: Record | None = None
    _time: float = 0.0
    _unpublished: Record | None = None
    """A closing that has no report yet: specs are known to be applied as far as that."""

    def start(self) -> float:
        """When its first forecast came, in milliseconds: infinity where there is none."""
        self._following = self.inputs.forecasts.next()
        return math.inf if self._following is None else self._following.timestamp

    def step(self) -> float | None:
        """Go through the next forecast, and tell when the one after came; after the last one, through the rest, and
        tell None. `DivergenceError` where no order explains what was published."""
        record = self._following
        if record is None:
            while self._next_spec():
                pass
            while self._next_state():
                pass
            return None
        self.tell()
        if self.pending:  # a partition is worked in its order: none after one that waits
            self.pending += 1
        else:
            self.place, self._time = ("forecasts", record.offset), record.timestamp
            self._forecast(record)
        return self.start()

    def follow(self) -> dict[str, int]:
        """Go as far as actions were published, and take the states that are known to be applied: the next offsets."""
        self.start()
        while self._following is not None:
            at = self._following.offset
            self.step()
            if self.pending:
                break
            self.begun = at + 1
        while self.states_at < self.inputs.committed.get("states", 0) and self._next_state():
            pass
        return {"forecasts": self.begun, "states": self.states_at, "sessions": self.specs_at}

    def under_way(self) -> tuple[At, int, bool]:
        """The place of the record under way, and whether it is known to have been applied."""
        topic, offset = self.place
        return self.inputs.at[topic], offset, offset < self.inputs.committed.get(topic, 0)

    def _forecast(self, record: Record) -> None:
        if self.dead.kind(self.inputs.at["forecasts"], record.offset) is not None:
            return None
        try:
            forecast = Forecast.from_record(decode(record.value))
        except InputError as e:
            return self._unexplained(f"neither an action nor a dead letter, and cannot be read: {e}")
        name = forecast.session
        if name not in self.lives and self.inputs.since_ms is not None:
            self._open_or_skip(name)
        life = self.lives.get(name)
        if life is not None and life.skipped:
            return None
        item = self._action(record.offset, name)
        if item is None:
            if life is not None and self.sessions.remembers(name, forecast.event):
                return self.sessions.duplicate(name)
            overtaken = self.actions.peek(name) is not None
            return self._unexplained(f"no action for event {forecast.event!r} of session {name!r}", overtaken)
        self._specs_before(item)
        life = self.lives.get(name)
        if life is None:
            raise item.wrong(f"session {name!r} was not open before offset {self.specs_at} of its specs")
        if life.skipped:
            return None
        self._states_before(item, life)
        self.place = ("forecasts", record.offset)
        self.sessions.forecast(forecast, item)
        return self.actions.take(name)

    def _action(self, offset: int, name: str) -> Item | None:
        """What was published of the forecast there; None where nothing was."""
        while (item := self.actions.peek(name)) is not None:
            of = item.number("forecast_offset")
            if of == offset:
                return item
            if of > offset:
                return None
            if of >= self.begun and not self.actions.is_repeat(item):
                raise item.wrong(f"not the action that was published before of forecast offset {of}, session {name!r}")
            self.actions.drop_repeat(name)
        return None

    def _open_or_skip(self, name: str) -> None:
        """The session was there when its record was applied: open it, unless its spec is gone."""
        while name not in self.lives and self._next_spec():
            pass
        if name not in self.lives:
            self.lives[name] = Life(None, skipped=True)
            self._skip(name)

    def _specs_before(self, item: Item) -> None:
        specs = item.number("specs_seen")
        while self.specs_at < specs:
            if not self._next_spec():
                at = self.inputs.at["sessions"]
                if self._unpublished is not None:
                    raise DivergenceError(at, self._unpublished.offset, "no final report of the session it closes")
                raise item.wrong(f"specs_seen is {specs}, but {at} ends at {self.specs_at}")

    def _states_before(self, item: Item, life: Life) -> None:
        states = item.get("states_seen")
        if states < life.states:
            raise item.wrong(f"states_seen is {states}, but {life.states} were applied before an earlier action")
        while life.states < states:
            if not self._next_state():
                raise item.wrong(
                    f"states_seen is {states}, but {self.inputs.at['states']} holds only {life.states} states of its "
                    "session"
                )

    def _next_spec(self) -> bool:
        record, at = self._unpublished or self.inputs.specs.next(), self.inputs.at["sessions"]
        if record is None:
            return False
        name = (record.key or b"").decode("utf-8", "replace")
        life = self.lives.get(name)
        if not record.value and life is not None and not life.skipped and not self.sessions.closes(name):
            self._unpublished = record
            return False
        if record.offset > self.specs_at and not self.doubts:
            self.doubts.append(f"{at}: offsets {self.specs_at} to {record.offset - 1} are gone, maybe specs with them")
        self.specs_at = record.offset + 1
        if self.dead.kind(at, record.offset) is None:
            self._spec(name, life, record)
        return True

    def _spec(self, name: str, life: Life | None, record: Record) -> None:
        if not record.value:
            if life is not None:
                self._close(name, life, record)
            return
        try:
            spec = SessionSpec.from_dict(decode(record.value))
        except InputError as e:
            self.place = ("sessions", record.offset)
            self._unexplained(f"not a spec, and no dead letter: {e}")
            return
        if life is None:
            since = self.inputs.since_ms
            old = name in self.unverifiable or (since is not None and record.timestamp < since)
            self.lives[name] = Life(spec, skipped=old)
            if old:
                self._skip(name)
            else:
                self.sessions.open(name, spec)
        elif spec != life.spec:
            life.spec = spec
            if not life.skipped:
                self.sessions.change(name, spec)

    def _close(self, name: str, life: Life, record: Record) -> None:
        if not life.skipped:
            while not self.sessions.closable(name) and self._next_state():
                pass
            self.place = ("sessions", record.offset)
            self.sessions.close(name)
        del self.lives[name]

    def _skip(self, name: str) -> None:
        self.unverifiable.add(name)
        self.actions.ignore(name)
        self.sessions.skip(name)

    def _next_state(self) -> bool:
        record = self.inputs.states.next()
        if record is None:
            return False
        self.tell()
        self.states_at = record.offset + 1
        before, self.place = self.place, ("states", record.offset)
        if self.dead.kind(self.inputs.at["states"], record.offset) in (None, "applied"):
            self._state(record)
        self.place = before
        return True

    def _state(self, record: Record) -> None:
        try:
            state = State.from_record(decode(record.value))
        except InputError as e:
            return self._unexplained(f"neither applied nor a dead letter, and cannot be read: {e}")
        name = state.session
        while name not in self.lives and self._next_spec():
            pass
        life = self.lives.get(name)
        if life is None:
            if self.inputs.since_ms is None:
                self._unexplained(f"neither applied nor a dead letter, and session {name!r} is not open")
        elif not life.skipped:
            life.states += 1
            self.sessions.state(state, record)
        return None

    def _unexplained(self, what: str, overtaken: bool = False) -> None:
        """The record under way has no trace. That is a loss where it, or a later one, is known to have been worked."""
        if self.inputs.since_ms is not None and self._time < self.inputs.since_ms:
            return  # its trace may be gone
        at, offset, applied = self.under_way()
        if applied or overtaken:
            raise DivergenceError(at, offset, what)
        if self.place[0] == "forecasts":
            self.pending += 1
