"""Dead letters: found, chosen, and their original bytes sent again to where they came from.

What was sent again is marked by a record of its own in the same topic, with the place of the input and the header
`redriven`: whoever lists or sends next sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from aiokafka.errors import KafkaError

from stream_agg.errors import ConfigError, UnavailableError
from stream_agg.replay.log import At, Log, Record
from stream_agg.replay.published import Stream
from stream_agg.worker import kafka
from stream_agg.worker.settings import Settings

MARK = "redriven"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: where it stands, where its record stood, what was wrong, and the record's bytes."""

    at: At
    offset: int
    time_ms: int
    source: At
    source_offset: int
    reason: str
    detail: str
    key: bytes
    value: bytes
    truncated: bool

    @property
    def place(self) -> str:
        """Its name among dead letters: `partition:offset`."""
        return f"{self.at.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters: all that are given must hold; none given are all letters. Times are of the letters."""

    reasons: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()
    since_ms: float = 0.0
    until_ms: float = float("inf")

    def takes(self, letter: Letter) -> bool:
        """Whether it is one of them."""
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.sessions or letter.key.decode("utf-8", "replace") in self.sessions)
            and (not self.places or letter.place in self.places)
            and self.since_ms <= letter.time_ms < self.until_ms
        )


@dataclass
class Letters:
    """The dead letters of a deployment as they are now. Those of one input record count once."""

    found: list[Letter] = field(default_factory=list)
    redriven: set[tuple[At, int]] = field(default_factory=set)

    def open(self) -> Iterator[Letter]:
        """Those that were not sent again."""
        return (letter for letter in self.found if (letter.source, letter.source_offset) not in self.redriven)


def read(log: Log, wanted: Wanted) -> Letters:
    """Go through the topic once and keep the wanted letters."""
    topic = log.settings.topic_dead_letters
    places = [At(topic, p) for p in range(log.partitions()[topic])]
    spans = log.spans(places)
    log.open({at: span.first for at, span in spans.items()})
    letters, known = Letters(), set()
    for at in places:
        stream = Stream(partial(log.more, at, spans[at].end))
        while (record := stream.next()) is not None:
            letter, marked = _letter(record)
            if letter is None:
                continue
            source = (letter.source, letter.source_offset)
            if marked:
                letters.redriven.add(source)
            elif source not in known and wanted.takes(letter):
                known.add(source)
                letters.found.append(letter)
    letters.found.sort(key=lambda letter: (letter.time_ms, letter.at, letter.offset))
    return letters


def redrive(settings: Settings, letters: Iterable[Letter], progress: Callable[[int], None]) -> int:
    """Send each record again, and mark it when the broker has it; how many. One that a crash leaves without a mark is
    sent once more the next time: event ids make that harmless. `UnavailableError` where the broker does not answer."""
    try:
        return asyncio.run(_redrive(settings, letters, progress))
    except (KafkaError, OSError) as e:
        raise kafka.denied(settings, e, "WRITE") or UnavailableError(
            f"Kafka at {settings.brokers} takes no records: {e!r}"
        ) from e


async def _redrive(settings: Settings, letters: Iterable[Letter], progress: Callable[[int], None]) -> int:
    producer = kafka.producer(settings, acks="all", max_request_size=16 << 20)
    sent = 0
    try:
        await kafka.start(settings, producer)
        for letter in letters:
            if letter.source.topic not in settings.inputs:
                raise ConfigError(
                    f"dead letter {letter.place} is of topic {letter.source.topic!r}, which is no input here: set the "
                    "topic names as they were"
                )
            to = letter.source
            await producer.send_and_wait(to.topic, letter.value or None, key=letter.key, partition=to.partition)
            headers = [
                ("topic", to.topic.encode()),
                ("partition", str(to.partition).encode()),
                ("offset", str(letter.source_offset).encode()),
                ("reason", letter.reason.encode()),
                (MARK, b"1"),
            ]
            dead = settings.topic_dead_letters
            await producer.send_and_wait(dead, b"", key=letter.key, partition=letter.at.partition, headers=headers)
            sent += 1
            progress(1)
    finally:
        await producer.stop()
    return sent


def _letter(record: Record) -> tuple[Letter | None, bool]:
    """The letter of a record, and whether it only marks that it was sent again; None for a record of someone else."""
    headers = {name: text.decode("utf-8", "replace") for name, text in record.headers}
    try:
        source = At(headers["topic"], int(headers["partition"]))
        offset, reason = int(headers["offset"]), headers["reason"]
    except (KeyError, ValueError):
        return None, False
    letter = Letter(
        at=At(record.topic, record.partition),
        offset=record.offset,
        time_ms=record.timestamp,
        source=source,
        source_offset=offset,
        reason=reason,
        detail=headers.get("detail", ""),
        key=record.key or b"",
        value=record.value or b"",
        truncated="truncated" in headers,
    )
    return letter, MARK in headers
