"""The store without a server: what `RedisStore` does, in dictionaries, for tests and simulations. Nothing is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stream_agg.store.tables import TABLES, Claim, Commit, Committed, Outcome, SessionChange, Store, Tables


@dataclass(slots=True)
class _Partition:
    epoch: int = 0
    next_offsets: dict[str, int] = field(default_factory=dict)
    outbox: dict[int, bytes] = field(default_factory=dict)
    newest: int = 0
    sessions: dict[str, Tables] = field(default_factory=dict)

    def trim(self, number: int) -> None:
        for old in [n for n in self.outbox if n <= number]:
            del self.outbox[old]

    def change(self, session: str, change: SessionChange) -> None:
        tables = {} if change.reset else self.sessions.get(session, {})
        for table, fields in change.tables.items():
            held = tables.setdefault(table, {})
            for name, value in fields.items():
                if value is None:
                    held.pop(name, None)
                else:
                    held[name] = value
        if change.expire_ms is None:
            self.sessions[session] = tables
        else:
            # Whatever Redis keeps until it expires, no method shows it.
            self.sessions.pop(session, None)


class MemoryStore(Store):
    """A `Store` that lives and dies with the process; never unavailable."""

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = {}

    async def claim(self, partition: int) -> Claim:
        self._held(partition).epoch += 1
        return await self.peek(partition)

    async def peek(self, partition: int) -> Claim:
        held = self._held(partition)
        return Claim(partition, held.epoch, dict(held.next_offsets), sorted(held.outbox.items()))

    async def load(self, partition: int, session: str) -> Tables | None:
        tables = self._held(partition).sessions.get(session)
        return None if tables is None else {name: dict(fields) for name, fields in tables.items() if fields}

    async def commit(self, commit: Commit) -> Committed:
        held = self._held(commit.partition)
        stored = held.next_offsets.get(commit.topic)
        if not held.epoch or commit.epoch != held.epoch:
            return Committed(Outcome.FENCED, stored=stored)
        expected = {**commit.others, commit.topic: commit.expected}
        if any(held.next_offsets.get(topic) != offset for topic, offset in expected.items()):
            return Committed(Outcome.STALE, stored=stored)
        if any(table not in TABLES for change in commit.changes.values() for table in change.tables):
            raise KeyError("a table that does not exist")
        held.next_offsets[commit.topic] = commit.next
        held.trim(commit.trim)
        number = 0
        if commit.outbox:
            number = held.newest = held.newest + 1
            held.outbox[number] = commit.outbox
        for session, change in commit.changes.items():
            held.change(session, change)
        return Committed(Outcome.OK, number, commit.next)

    async def trim(self, partition: int, epoch: int, number: int) -> Outcome:
        held = self._held(partition)
        if not held.epoch or epoch != held.epoch:
            return Outcome.FENCED
        held.trim(number)
        return Outcome.OK

    async def sessions(self, partition: int) -> list[str]:
        return sorted(self._held(partition).sessions)

    async def epochs(self, partitions: Iterable[int]) -> dict[int, int]:
        return {partition: self._held(partition).epoch for partition in partitions}

    async def close(self) -> None:
        self._partitions.clear()

    def _held(self, partition: int) -> _Partition:
        return self._partitions.setdefault(partition, _Partition())
