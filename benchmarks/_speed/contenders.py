"""The programs that are compared: each started on the same input topic, with an output topic of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from _topics import create
from _workers import Child, Worker

from _speed.lab import Lab

PEERS = Path(__file__).parent / "peers"


@dataclass(frozen=True)
class Contender:
    """`needs` is the module that it cannot do without; `share` of the events is what it gets, being slow.

    `start` takes the lab and the suffix of the input topics; it gives the process and the topic that it writes.
    """

    name: str
    needs: str
    start: Callable[[Lab, str], object]
    share: float = 1.0

    def there(self) -> bool:
        """Whether it is installed."""
        return find_spec(self.needs) is not None


def ours(delivery: str) -> Callable[[Lab, str], object]:
    """`stream-agg worker` with all defaults but the way of delivery."""

    async def start(lab: Lab, inputs: str) -> tuple[Child, str]:
        lab.empty_redis()
        settings = await lab.settings(inputs, delivery=delivery)
        return Worker(settings, lab.home / f"{settings.app}.log", cores=lab.core), settings.topic_actions

    return start


def peer(script: str, *more: str) -> Callable[[Lab, str], object]:
    """A script of `peers/`."""

    async def start(lab: Lab, inputs: str) -> tuple[Child, str]:
        name = lab.fresh()
        sink = f"actions-{name}"
        await create(lab.brokers, [sink], lab.partitions, **lab.topics)
        given = [lab.brokers, f"forecasts-{inputs}", sink, name, str(lab.home / name), *more]
        command = [sys.executable, str(PEERS / script), *given]
        return Child(command, lab.home / f"{name}.log", cores=lab.core), sink

    return start


def contenders(partitions: int) -> Sequence[Contender]:
    """All there are, the judged ones first."""
    return (
        Contender("stream_agg", "stream_agg", ours("at_least_once")),
        Contender("stream_agg exactly_once", "stream_agg", ours("exactly_once")),
        Contender("quixstreams", "quixstreams", peer("quix.py", "changelog", "at-least-once")),
        Contender("quixstreams, no changelog", "quixstreams", peer("quix.py", "local", "at-least-once")),
        Contender("quixstreams exactly_once", "quixstreams", peer("quix.py", "changelog", "exactly-once")),
        Contender("bytewax", "bytewax", peer("wax.py")),
        Contender("Faust with a Table", "faust", peer("table.py", str(partitions)), share=0.1),
    )
