"""Output records as they were published, by session, each to be met once: repeats are known by their bytes. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from stream_agg.errors import StreamAggError
from stream_agg.replay.log import At, Record

AHEAD = 50_000
"""Records of other sessions that are set aside while the next one of a session is looked for. In one partition sessions
follow each other as in the inputs: so far ahead there is none."""
RECALLED = 100_000
"""The latest records of a partition, of which a repeat is recognised: more than the batches that a crash repeats."""

More = Callable[[], Sequence[Record]]


class DivergenceError(StreamAggError):
    """The outputs are not what the inputs give. `place` and `offset` say where."""

    def __init__(self, place: At, offset: int, what: str) -> None:
        super().__init__(f"{place} offset {offset}: {what}")
        self.place, self.offset, self.what = place, offset, what

    def __reduce__(self) -> tuple[type[DivergenceError], tuple[At, int, str]]:
        return DivergenceError, (self.place, self.offset, self.what)


@dataclass(slots=True)
class Stream:
    """The records of one partition, one after the other."""

    more: More
    _ready: Iterator[Record] | None = None

    def next(self) -> Record | None:
        """The next record; None when there are no more."""
        while True:
            if self._ready is not None:
                record = next(self._ready, None)
                if record is not None:
                    return record
            records = self.more()
            if not records:
                self._ready = None
                return None
            self._ready = iter(records)


def only_final(more: Callable[[], Sequence[Record]]) -> Sequence[Record]:
    """The next records of a regret topic that close a session."""
    while records := more():
        final = [record for record in records if b'"reason":"close"' in (record.value or b"")]
        if final:
            return final
    return ()


@dataclass(slots=True)
class Item:
    """One output record."""

    at: At
    offset: int
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()
    _content: dict[str, Any] | None = None

    def get(self, name: str) -> Any:
        """A field of it; `DivergenceError` where it has none of that name."""
        if self._content is None:
            try:
                content = orjson.loads(self.value)
            except orjson.JSONDecodeError as e:
                raise self.wrong(f"not JSON: {e}") from None
            if not isinstance(content, dict):
                raise self.wrong("not a JSON object")
            self._content = content
        try:
            return self._content[name]
        except KeyError:
            raise self.wrong(f"has no {name!r}: written by another version?") from None

    def number(self, name: str) -> int:
        """A header of it that is a number; `DivergenceError` where it has none of that name."""
        for key, text in reversed(self.headers):  # ours come last
            if key == name and text.isdigit():
                return int(text)
        raise self.wrong(f"has no number in a header {name!r}: written by another version?")

    def wrong(self, what: str) -> DivergenceError:
        """That this record is not what it should be."""
        return DivergenceError(self.at, self.offset, what)


class Published:
    """The partitions of one output topic. Records of a session come in their order; `partition_of` says where."""

    def __init__(self, streams: dict[int, Stream], partition_of: Callable[[str], int], ahead: float = AHEAD) -> None:
        self.ahead = ahead
        self.repeats = 0
        self.taken = 0
        self.set_aside = 0
        self._streams, self._partition_of = streams, partition_of
        self._waiting: dict[str, deque[Item]] = {}
        self._ignored: set[str] = set()
        self._recalled: dict[int, dict[int, None]] = {p: {} for p in streams}

    def peek(self, session: str) -> Item | None:
        """The next record of a session that was neither taken nor dropped; None if there is none, or not yet."""
        waiting = self._waiting.get(session)
        return waiting[0] if waiting else next(self.all_of(session), None)

    def all_of(self, session: str) -> Iterator[Item]:
        """All such records of a session, read as they are asked for."""
        yield from tuple(self._waiting.get(session, ()))
        stream = self._streams.get(self._partition_of(session))
        while stream is not None and self.set_aside < self.ahead and (record := stream.next()) is not None:
            if self._set_aside(record) == session:
                yield self._waiting[session][-1]

    def take(self, session: str) -> None:
        """Its next record is the one that was expected."""
        item = self._drop(session)
        self.taken += 1
        recalled = self._recalled[item.at.partition]
        recalled[hash(item.value)] = None
        if len(recalled) > RECALLED:
            del recalled[next(iter(recalled))]

    def is_repeat(self, item: Item) -> bool:
        """Whether a record with the same bytes was taken."""
        return hash(item.value) in self._recalled[item.at.partition]

    def drop_repeat(self, session: str) -> None:
        """Its next record is one that was taken before."""
        self._drop(session)
        self.repeats += 1

    def ignore(self, session: str) -> None:
        """Its records are not asked for."""
        self._ignored.add(session)
        self.set_aside -= len(self._waiting.pop(session, ()))

    def rest(self) -> Iterable[Item]:
        """All that was never taken and repeats nothing."""
        for waiting in self._waiting.values():
            yield from (item for item in waiting if not self._counted_repeat(item))
        self._waiting.clear()
        for stream in self._streams.values():
            while (record := stream.next()) is not None:
                name = self._set_aside(record)
                if name is not None:
                    item = self._drop(name)
                    if not self._counted_repeat(item):
                        yield item

    def _counted_repeat(self, item: Item) -> bool:
        repeat = self.is_repeat(item)
        self.repeats += repeat
        return repeat

    def _set_aside(self, record: Record) -> str | None:
        name = (record.key or b"").decode("utf-8", "replace")
        if name in self._ignored:
            return None
        item = Item(At(record.topic, record.partition), record.offset, record.value or b"", record.headers)
        self._waiting.setdefault(name, deque()).append(item)
        self.set_aside += 1
        return name

    def _drop(self, session: str) -> Item:
        waiting = self._waiting[session]
        item = waiting.popleft()
        if not waiting:
            del self._waiting[session]
        self.set_aside -= 1
        return item
