"""Sessions by name, however many: those that were not used for long wait in a temporary file."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from contextlib import closing
from types import TracebackType
from typing import Self

from stream_agg.session.engine import Session
from stream_agg.worker.owned import weight

MOST = 300_000
"""What the sessions in memory may remember together, in decisions: about half a kilobyte each."""
LOOK_EVERY = 1024
"""Uses between two looks at the size of what is in memory."""


class Kept:
    """A mapping of sessions, the least recently used of them in a temporary file. A context manager."""

    def __init__(self, most: int = MOST, look_every: int = LOOK_EVERY) -> None:
        self.evicted = 0
        self._most, self._look_every = most, look_every
        self._live: OrderedDict[str, Session] = OrderedDict()
        self._uses = 0

    def __enter__(self) -> Self:
        self._file = sqlite3.connect("", isolation_level=None)  # a temporary file, which nobody else sees
        self._file.execute("PRAGMA journal_mode=OFF")
        self._file.execute("CREATE TABLE sessions (name TEXT PRIMARY KEY, packed BLOB)")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with closing(self._file):
            self._live.clear()

    def get(self, name: str) -> Session | None:
        """The session of that name; None where there is none."""
        self._uses += 1
        if self._uses >= self._look_every:
            self._uses = 0
            self._make_room()
        session = self._live.get(name)
        if session is None:
            row = self._file.execute("SELECT packed FROM sessions WHERE name = ?", (name,)).fetchone()
            if row is None:
                return None
            session = self._live[name] = Session.from_bytes(row[0])
            self._file.execute("DELETE FROM sessions WHERE name = ?", (name,))
        self._live.move_to_end(name)
        return session

    def put(self, name: str, session: Session) -> None:
        """Hold a new session, in place of another of that name."""
        self.drop(name)
        self._live[name] = session

    def names(self) -> list[str]:
        """Of all sessions, sorted."""
        filed = self._file.execute("SELECT name FROM sessions")
        return sorted({*self._live, *(name for (name,) in filed)})

    def drop(self, name: str) -> None:
        """Hold it no longer."""
        if self._live.pop(name, None) is None:
            self._file.execute("DELETE FROM sessions WHERE name = ?", (name,))

    def _make_room(self) -> None:
        sizes = {name: weight(session) for name, session in self._live.items()}
        over = sum(sizes.values()) - self._most
        for name in list(self._live)[:-1]:
            if over <= 0:
                return
            self._file.execute("INSERT INTO sessions VALUES (?, ?)", (name, self._live.pop(name).to_bytes()))
            self.evicted += 1
            over -= sizes[name]
