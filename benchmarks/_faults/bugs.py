"""Bugs to plant, one line each: a simulation that finds none of them would find nothing."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from stream_agg.session import window
from stream_agg.store.memory import MemoryStore
from stream_agg.worker.loop import Loop


@dataclass
class Bug:
    """A line of a function that reads otherwise while this is entered, for everybody who has the function already."""

    name: str
    where: Callable[..., Any]
    line: str
    instead: str
    _code: CodeType = field(init=False)

    def __enter__(self) -> None:
        source = textwrap.dedent(inspect.getsource(self.where))
        if source.count(self.line) != 1:
            raise ValueError(f"{self.name}: the line is not there once")
        made: dict[str, Any] = {}
        exec(source.replace(self.line, self.instead), self.where.__globals__, made)  # noqa: S102 - our own source
        self._code = self.where.__code__
        self.where.__code__ = made[self.where.__name__].__code__

    def __exit__(self, *_: object) -> None:
        self.where.__code__ = self._code


BUGS = (
    Bug("records are applied again", Loop.process, "if r.offset >= at]", "]"),
    Bug("the outbox is not published at a claim", Loop._claim_one, "await self._publish(owned, outputs)", "pass"),
    Bug("no fence", MemoryStore.commit, "if not held.epoch or commit.epoch != held.epoch:", "if not held.epoch:"),
    Bug(
        "published before it is committed",
        Loop._commit,
        'reach("before_commit")',
        "await self._publish(owned, outputs)",
    ),
    Bug("a parked state stays in the store", window.unpark, 'session.touch("parked", event)', "pass"),
    Bug("the next offset is one too low", Loop._apply, "records[-1].offset + 1", "records[-1].offset"),
)
