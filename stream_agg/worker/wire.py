"""Bytes of the topics: input records decoded, outputs encoded with their CloudEvents headers, outbox blobs packed."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from stream_agg.errors import EventError, InputError
from stream_agg.events import Action, Regret, RuleRecord, format_time
from stream_agg.worker.settings import Settings

Header = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One output record, as it will be sent however often."""

    topic: str
    key: str
    value: bytes
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an input record stands, with its bytes: enough to write its dead letter later."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes

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

    def row(self, output: Action | Regret | RuleRecord) -> Row:
        """An action, report or rule as its record."""
        to = self.settings
        if isinstance(output, Action):
            topic, kind, event = to.topic_actions, "action", output.event
        elif isinstance(output, Regret):
            topic, kind = to.topic_regret, "regret"
            event = f"{output.reason}-{output.round}-{output.realized.states}"
        else:
            topic, kind, event = to.topic_rules, "rule", f"rule-{output.version}"
        headers = (
            *self._cloud(f"{output.session}/{event}", kind, output.time),
            ("content-type", "application/json"),
        )
        # Actions are many, and a dictionary takes a third of the time of a dataclass.
        value = orjson.dumps(output.to_record() if isinstance(output, Action) else output)
        return Row(topic, output.session, value, headers)

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
        return (
            ("ce_specversion", "1.0"),
            ("ce_id", event_id),
            ("ce_type", f"stream_agg.{kind}.v1"),
            ("ce_source", self.source),
            ("ce_time", time),
        )


def pack_rows(rows: Sequence[Row]) -> bytes:
    """Rows as one outbox blob; b"" for none."""
    return orjson.dumps([_pack(row) for row in rows]) if rows else b""


def unpack_rows(blob: bytes) -> list[Row]:
    """The very rows that `pack_rows` packed."""
    return [_unpack(item) for item in orjson.loads(blob)]


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
