"""How far outputs have been published, as a transaction wrote it: a group's offsets, none that is still undecided.

aiokafka asks for committed offsets in a version that may answer, while a transaction is being completed, with the ones
before it. The version here (7) refuses to answer then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

Marks = Mapping[str, int]
"""Input topic -> the next offset whose outputs may not have been published; a topic without one is missing."""

_KEY, _VERSION = 9, 7  # OffsetFetch


class _Answer(Response):  # type: ignore[misc]  # aiokafka is not typed here
    API_KEY = _KEY
    API_VERSION = _VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString("utf-8")),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _Question(RequestStruct):  # type: ignore[misc]  # aiokafka is not typed here
    FLEXIBLE_VERSION = True
    API_KEY = _KEY
    API_VERSION = _VERSION
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        ("group", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class _Stable(Request[_Question]):  # type: ignore[misc]  # aiokafka is not typed here
    API_KEY = _KEY

    def __init__(self, group: str, topics: Sequence[str], partition: int) -> None:
        self._values: tuple[Any, ...] = (group, [(topic, [partition], {}) for topic in topics], True, {})

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class(*self._values)


async def read_marks(admin: AIOKafkaAdminClient, group: str, topics: Sequence[str], partition: int) -> Marks:
    """The group's offsets of one partition of these topics. Raises a `KafkaError`, for one where a transaction on them
    is not complete."""
    coordinator = await admin.find_coordinator(group)
    answer: Any = await admin._send_request(_Stable(group, topics, partition), coordinator)
    marks: dict[str, int] = {}
    for topic, partitions, _ in answer.topics:
        for _, offset, _, _, error, _ in partitions:
            if error or answer.error_code:
                raise for_code(error or answer.error_code)
            if offset >= 0:
                marks[topic] = offset
    if answer.error_code:
        raise for_code(answer.error_code)
    return marks
