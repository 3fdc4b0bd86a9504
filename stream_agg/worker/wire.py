"""Bytes of the topics: input records decoded, outputs encoded with their CloudEvents headers, outbox blobs packed."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, get_args

import orjson

from stream_agg.errors import EventError, InputError
from stream_agg.events import Action, Regret, RuleRecord, format_time
from stream_agg.watch.names import Output
from stream_agg.worker.settings import Settings

Header = tuple[str, str]

_VERSION: Header = ("ce_specversion", "1.0")
_JSON: Header = ("content-type", "application/json")


class Row(NamedTuple):
    """One output record, as it will be sent however often."""

    topic: str
    key: str
    value: bytes
    headers: tuple[Header, ...]


class Applied(NamedTuple):
    """How far the inputs had been applied when an output came about: what interleaves them again."""

    offset: int
    """Of the record that it came from."""
    specs_seen: int
    """The next offset of the sessions topic: specs and closings before it were applied."""
    states_seen: int
    """State events of the session."""


class Record(Protocol):
    """What is looked at of an input record: aiokafka's has that, and a `Place`."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


class Place(NamedTuple):
    """Where an input record stands, with its bytes: enough to write its dead letter later."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes

    @property
    def timestamp(self) -> int:
        """Milliseconds, as of a record."""
        return self.timestamp_ms

    @classmethod
    def of(cls, record: Record) -> Place:
        """That of a record."""
        key, value = record.key or b"", record.value or b""
        return cls(record.topic, record.partition, record.offset, record.timestamp, key, value)

    def pack(self) -> list[Any]:
        """As a JSON value, to travel with a parked state."""
        raw = [b64encode(self.key).decode(), b64encode(self.value).decode()]
        return [self.topic, self.partition, self.offset, self.timestamp_ms, *raw]

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> Place:
        """The inverse of `pack`."""
        topic, partition, offset, timestamp_ms, key, value = packed
        return cls(topic, partition, offset, timestamp_ms, b64decode(key), b64decode(value))


def decode(value: bytes | None) -> Any:
    """The JSON value of a record; `EventError` with reason "bad_json"."""
    try:
        return orjson.loads(value or b"")
    except orjson.JSONDecodeError as e:
        raise EventError("bad_json", f"not JSON in UTF-8: {e}") from None


class Encoder:
    """Outputs to rows, with the topics and source of one deployment."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.source = f"/stream_agg/{settings.app}"
        self._roles: dict[str, Output] = {getattr(settings, f"topic_{role}"): role for role in get_args(Output)}
        kinds = ("action", "regret", "rule", "dead-letter")
        self._types = {kind: ("ce_type", f"stream_agg.{kind}.v1") for kind in kinds}
        self._source = ("ce_source", self.source)

    def row(self, output: Action | Regret | RuleRecord, at: Applied) -> Row:
        """An action, report or rule as its record. Headers say of `at` what is needed to verify it and not in it."""
        to = self.settings
        if isinstance(output, Action):
            headers = (
                *self._cloud(f"{output.session}/{output.event}", "action", output.time),
                _JSON,
                ("forecast_offset", str(at.offset)),
                ("specs_seen", str(at.specs_seen)),
            )
            # Actions are many, and a dictionary takes a third of the time of a dataclass.
            return Row(to.topic_actions, output.session, orjson.dumps(output.to_record()), headers)
        if isinstance(output, Regret):
            topic, kind, event = to.topic_regret, "regret", f"{output.reason}-{output.round}-{output.realized.states}"
            more: tuple[Header, ...] = (("states_seen", str(at.states_seen)),)
        else:
            topic, kind, event, more = to.topic_rules, "rule", f"rule-{output.version}-{output.round}", ()
            if output.unsolved:  # the same rule stays, and may stay again
                event += f"-unsolved-{output.time}"
        headers = (*self._cloud(f"{output.session}/{event}", kind, output.time), _JSON, *more)
        return Row(topic, output.session, orjson.dumps(output), headers)

    def role(self, topic: str) -> Output:
        """What a topic that rows go to is for."""
        return self._roles[topic]

    def dead_letter(self, place: Place, error: InputError) -> Row:
        """The original bytes, and in the headers where they stood and what is wrong with them."""
        key = place.key.decode("utf-8", "replace")
        headers = (
            *self._cloud(
                f"{place.topic}/{place.partition}/{place.offset}", "dead-letter", format_time(place.timestamp_ms * 1000)
            ),
            ("topic", place.topic),
            ("partition", str(place.partition)),
            ("offset", str(place.offset)),
            ("reason", error.reason),
            ("detail", error.detail[:500]),
        )
        return Row(self.settings.topic_dead_letters, key, place.value, headers)

    def _cloud(self, event_id: str, kind: str, time: str) -> tuple[Header, ...]:
        return (_VERSION, ("ce_id", event_id), self._types[kind], self._source, ("ce_time", time))


@dataclass(frozen=True, slots=True)
class Outputs:
    """The rows of one batch: of the records of `topic` before offset `next`."""

    topic: str
    next: int
    rows: Sequence[Row]

    def pack(self) -> bytes:
        """As one outbox blob; b"" where there are no rows."""
        rows = [_pack(row) for row in self.rows]
        return orjson.dumps({"topic": self.topic, "next": self.next, "rows": rows}) if rows else b""

    @classmethod
    def unpack(cls, blob: bytes) -> Outputs:
        """The very rows that were packed."""
        packed = orjson.loads(blob)
        return cls(packed["topic"], packed["next"], [_unpack(item) for item in packed["rows"]])


def _pack(row: Row) -> dict[str, Any]:
    item: dict[str, Any] = {"topic": row.topic, "key": row.key, "headers": row.headers}
    try:
        item["value"] = row.value.decode()
    except UnicodeDecodeError:  # a dead letter may hold any bytes
        item["base64"] = b64encode(row.value).decode()
    return item


def _unpack(item: dict[str, Any]) -> Row:
    value = item["value"].encode() if "value" in item else b64decode(item["base64"])
    return Row(item["topic"], item["key"], value, tuple((name, text) for name, text in item["headers"]))
