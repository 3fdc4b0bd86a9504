"""A deployment as an operator has it: worker processes, the environment that names it, the records of its topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stream_agg.cli.local import WorkerProcess
from stream_agg.replay.log import At, Log
from stream_agg.worker.settings import PREFIX, Settings


@contextmanager
def worker(settings: Settings, log: Path) -> Iterator[WorkerProcess]:
    """A worker process; what it says is added to the file `log`."""
    with log.open("ab") as file:
        process = WorkerProcess(settings, file.fileno())
        try:
            yield process
        finally:
            process.stop()


def environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands find in their environment."""
    for name in Settings.__slots__:
        monkeypatch.setenv(PREFIX + name.upper(), str(getattr(settings, name)))


def held(settings: Settings, topic: str) -> list[Any]:
    """All records of a topic, each partition in its order."""
    with Log(settings) as log:
        spans = log.spans([At(topic, p) for p in range(settings.partitions)])
        log.open({at: span.first for at, span in spans.items()})
        found: list[Any] = []
        for at, span in spans.items():
            while more := log.more(at, span.end):
                found += more
        return found
