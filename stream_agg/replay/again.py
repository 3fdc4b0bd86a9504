"""The records of a deployment's input topics through the engine once more, with other specs if asked: what-if.

All of the topics: in the very order in which the worker applied them, as far as it published (`replay.order`). A part
of them: in the order of the records' times, from sessions without a past.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from typing import Any

from stream_agg.errors import ConfigError, EventError, InputError
from stream_agg.events import Dropped, Forecast, Regret, State
from stream_agg.replay.kept import Kept
from stream_agg.replay.log import At, Log, Record, Span
from stream_agg.replay.published import Item, Published, Stream, only_final
from stream_agg.replay.rederive import Rederived
from stream_agg.replay.verify import Verification
from stream_agg.session.engine import Output
from stream_agg.spec import SessionSpec
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Applied, Encoder, Place, Row, decode

Write = Callable[[Row], None]
Changes = Mapping[str, Any]
Bound = float | Mapping[int, int] | None
"""A time in milliseconds, offsets by partition, or where the topics begin or end."""


@dataclass
class Rewriting(Rederived):
    """Like `Rederived`, under changed specs, and writes what it gets instead of comparing it. `regrets` holds only the
    final reports: they say when a session was closed."""

    changes: Changes = field(default_factory=dict)
    encoder: Encoder = field(default_factory=lambda: Encoder(Settings()))
    write: Write = lambda row: None

    def open(self, name: str, spec: SessionSpec) -> None:
        super().open(name, changed(spec, self.changes))

    def change(self, name: str, spec: SessionSpec) -> None:
        with suppress(InputError):  # refused under the changes: the spec before stands
            super().change(name, changed(spec, self.changes))

    def duplicate(self, name: str) -> None:
        super().duplicate(name)
        self._count(name, 1)

    def close(self, name: str) -> None:
        super().close(name)
        if self.regrets.peek(name) is not None:
            self.regrets.take(name)

    def forecast(self, forecast: Forecast, published: Item | None) -> None:
        try:
            outputs = self._session(forecast.session).forecast(forecast)
        except InputError as e:  # under the changes
            at, offset, _ = self.under_way()
            self.write(self.encoder.dead_letter(Place(*at, offset, 0, forecast.session.encode(), b""), e))
            return
        for output in outputs:
            self._meet(forecast.session, output)

    def finish(self) -> None:
        """A final report of every session that is still open."""
        for name in self.kept.names():
            self._regret(name, self._session(name).close())

    def _meet(self, name: str, output: Output) -> None:
        at, offset, _ = self.under_way()
        if isinstance(output, Dropped):
            place, error = Place(*at, offset, 0, name.encode(), b""), EventError(output.reason, output.detail)
            self.write(self.encoder.dead_letter(place, error))
            return
        known = self._session(name).counters
        self.write(self.encoder.row(output, Applied(offset, 0, known.states_seen)))

    def _regret(self, name: str, report: Regret) -> None:
        self._meet(name, report)


class Again(Verification):
    """A replay of all that the topics hold, in the order that was."""

    def __init__(self, log: Log, changes: Changes, encoder: Encoder, write: Write) -> None:
        super().__init__(log)
        self._what = (changes, encoder, write)

    def _made(self, kept: Kept, regrets: Published, rules: Published) -> Rederived:
        changes, encoder, write = self._what
        return Rewriting(kept, regrets, rules, changes=changes, encoder=encoder, write=write)

    def _stream(self, at: At) -> Stream:
        stream = super()._stream(at)
        if at.topic != self.to.topic_regret:
            return stream
        return Stream(partial(only_final, stream.more))

    def _finish(self, actions: Published, made: Rederived) -> None:
        if isinstance(made, Rewriting):  # its reports and rules need not be those that were published
            made.finish()


@dataclass
class Part:
    """What is to be replayed of one partition: offsets of every input topic, and when it begins."""

    partition: int
    spans: dict[str, Span]
    """By the input topics' names."""
    since_ms: float
    until_ms: float

    @property
    def events(self) -> tuple[int, int]:
        """How many forecasts and states it has."""
        _, forecasts, states = self.spans.values()
        return forecasts.end - forecasts.first, states.end - states.first


def replay_part(
    log: Log, part: Part, changes: Changes, encoder: Encoder, write: Write, tell: Callable[[], None]
) -> None:
    """Apply the specs from before the part, then its records in the order of their times; close what is open then."""
    to = log.settings
    log.open({At(topic, part.partition): span.first for topic, span in part.spans.items()})
    streams = [_timed(log, At(topic, part.partition), part.spans[topic], rank) for rank, topic in enumerate(to.inputs)]
    with Kept() as kept:
        made = Rewriting(kept, _nothing(), _nothing(), changes=changes, encoder=encoder)
        for time, _, record in merge(*streams, key=lambda timed: timed[:2]):
            if time >= part.until_ms and record.topic == to.topic_sessions:
                continue
            made.write = write if time >= part.since_ms else _nowhere  # what was before is not of it
            place = Place(
                record.topic,
                record.partition,
                record.offset,
                record.timestamp,
                record.key or b"",
                record.value or b"",
            )
            made.under_way = partial(_is_under_way, place)
            if record.topic != to.topic_sessions:
                tell()
            try:
                _apply(made, place, to)
            except InputError as e:
                made.write(encoder.dead_letter(place, e))
        made.write = write
        made.finish()


def _apply(made: Rewriting, place: Place, to: Settings) -> None:
    if place.topic == to.topic_sessions:
        name = place.key.decode("utf-8", "replace")
        there = made.kept.get(name) is not None
        if not place.value:
            if there:
                made.close(name)
            return
        spec = SessionSpec.from_dict(decode(place.value))
        (made.change if there else made.open)(name, spec)
        return
    forecasts = place.topic == to.topic_forecasts
    event = (Forecast if forecasts else State).from_record(decode(place.value))
    if made.kept.get(event.session) is None:
        raise EventError("unknown_session", f"no session {event.session!r} here")
    if isinstance(event, Forecast):
        made.forecast(event, None)
    else:
        made.state(event, None)


def _nowhere(row: Row) -> None:
    """Writes nothing."""


def _nothing() -> Published:
    return Published({}, lambda session: 0)


def _is_under_way(place: Place) -> tuple[At, int, bool]:
    return At(place.topic, place.partition), place.offset, False


def _timed(log: Log, at: At, span: Span, rank: int) -> Iterator[tuple[float, int, Record]]:
    latest, stream = 0.0, Stream(partial(log.more, at, span.end))
    while (record := stream.next()) is not None:
        latest = max(latest, record.timestamp)  # a topic keeps its order, whatever its clocks said
        yield latest, rank, record


def changed(spec: SessionSpec, changes: Changes) -> SessionSpec:
    """The spec with these values in it; `ConfigError` where they do not go with it."""
    if not changes:
        return spec
    try:
        return SessionSpec.from_dict({**spec.to_dict(), **changes})
    except InputError as e:
        raise ConfigError(f"--set does not go with session {spec.session!r}: {e}") from None


def parts(log: Log, since: Bound, until: Bound) -> list[Part]:
    """The parts between two bounds. Bounds by offset are of the forecasts, and name the partitions that are replayed;
    of the states they mean those of the same time."""
    to, count = log.settings, log.partitions()[log.settings.topic_forecasts]
    named = [set(bound) for bound in (since, until) if isinstance(bound, Mapping)]
    wanted = set.intersection(*named) if named else set(range(count))
    spans = log.spans(At(topic, p) for topic in to.inputs for p in range(count))
    found = []
    for p in sorted(wanted & set(range(count))):
        forecasts, states, specs = (At(topic, p) for topic in (to.topic_forecasts, to.topic_states, to.topic_sessions))
        start, start_ms = _cut(log, forecasts, spans[forecasts], since, spans[forecasts].first, float("-inf"))
        end, end_ms = _cut(log, forecasts, spans[forecasts], until, spans[forecasts].end, float("inf"))
        cut = {to.topic_sessions: spans[specs], to.topic_forecasts: Span(start, max(start, end))}
        first = _at_time(log, states, spans[states], start_ms)
        cut[to.topic_states] = Span(first, max(first, _at_time(log, states, spans[states], end_ms)))
        found.append(Part(p, cut, start_ms, end_ms))
    return found


def _cut(log: Log, at: At, span: Span, bound: Bound, offset: int, time_ms: float) -> tuple[int, float]:
    """Offset and time of a bound of the forecasts."""
    if bound is None:
        return offset, time_ms
    if not isinstance(bound, Mapping):
        return _at_time(log, at, span, bound), bound
    offset = min(max(bound[at.partition], span.first), span.end)
    log.open({at: offset})
    following = log.more(at, span.end)
    return offset, following[0].timestamp if following else float("inf")


def _at_time(log: Log, at: At, span: Span, time_ms: float) -> int:
    if math.isinf(time_ms):
        return span.first if time_ms < 0 else span.end
    return log.at_time([at], int(time_ms)).get(at, span.end)
