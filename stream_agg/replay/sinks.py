"""Where the rows of a replay go: files of a folder, other topics, or nowhere. Counts them on the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from stream_agg.worker.publish import AtLeastOnce
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Outputs, Row

TOGETHER = 1000
"""Rows that are sent and awaited at once."""


@dataclass
class Counted:
    """Rows by topic, refusals by reason, and the final report of every session."""

    settings: Settings
    rows: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    finals: list[dict[str, Any]] = field(default_factory=list)

    def write(self, row: Row) -> None:
        """Take one row."""
        self.rows[row.topic] += 1
        if row.topic == self.settings.topic_dead_letters:
            self.refused[dict(row.headers)["reason"]] += 1
        elif row.topic == self.settings.topic_regret and b'"reason":"close"' in row.value:
            self.finals.append(orjson.loads(row.value))

    def close(self) -> None:
        """No row comes any more."""


class Files(Counted):
    """actions.jsonl, regret.jsonl, rules.jsonl and dead-letters.jsonl of a folder."""

    def __init__(self, settings: Settings, out: Path) -> None:
        super().__init__(settings)
        out.mkdir(parents=True, exist_ok=True)
        self._open = ExitStack()
        names = {
            settings.topic_actions: "actions",
            settings.topic_regret: "regret",
            settings.topic_rules: "rules",
            settings.topic_dead_letters: "dead-letters",
        }
        self._files: dict[str, BinaryIO] = {
            topic: self._open.enter_context((out / f"{name}.jsonl").open("wb")) for topic, name in names.items()
        }

    def write(self, row: Row) -> None:
        """One line."""
        super().write(row)
        line = row.value
        if row.topic == self.settings.topic_dead_letters:
            headers = dict(row.headers)
            place = f"{headers['topic']}/{headers['partition']}/{headers['offset']}"
            line = orjson.dumps({"reason": headers["reason"], "place": place, "detail": headers["detail"]})
        self._files[row.topic].write(line + b"\n")

    def close(self) -> None:
        self._open.close()


class Topics(Counted):
    """The output topics of `settings`, which must be there."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._loop = asyncio.new_event_loop()
        self._waiting: list[Row] = []
        try:
            self._publisher = self._loop.run_until_complete(_started(settings))
        except BaseException:
            self._loop.close()
            raise

    def write(self, row: Row) -> None:
        """Send it, with others."""
        super().write(row)
        self._waiting.append(row)
        if len(self._waiting) >= TOGETHER:
            self._flush()

    def close(self) -> None:
        try:
            self._flush()
        finally:
            self._loop.run_until_complete(self._publisher.stop())
            self._loop.close()

    def _flush(self) -> None:
        rows, self._waiting = self._waiting, []
        self._loop.run_until_complete(self._publisher.publish(0, Outputs("", 0, rows)))


async def _started(settings: Settings) -> AtLeastOnce:
    publisher = AtLeastOnce(settings)
    await publisher.start()
    return publisher
