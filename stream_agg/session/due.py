"""Which entries of a table are older than a time, without looking at the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Protocol


class Timed(Protocol):
    """Anything with a time."""

    @property
    def time_us(self) -> int: ...


class Due:
    """A heap beside a table that others change: an entry they took out, or put in anew, is skipped when it comes up."""

    def __init__(self, table: Mapping[str, Timed]) -> None:
        self._heap: list[tuple[int, str]] = []
        self._fill(table)

    def add(self, key: str, entry: Timed, table: Mapping[str, Timed]) -> None:
        """An entry was put into the table."""
        heappush(self._heap, (entry.time_us, key))
        if len(self._heap) > 2 * len(table) + 64:  # most of it is gone from the table by other ways
            self._fill(table)

    def before(self, time_us: int, table: Mapping[str, Timed]) -> Iterator[str]:
        """Keys of entries older than that, the oldest first. The caller takes each out of the table."""
        while self._heap and self._heap[0][0] < time_us:
            due, key = heappop(self._heap)
            if key in table and table[key].time_us == due:
                yield key

    def _fill(self, table: Mapping[str, Timed]) -> None:
        self._heap = [(entry.time_us, key) for key, entry in table.items()]
        heapify(self._heap)
