"""The least rights at Kafka that each side needs, and the question to the broker which of them are missing.

The same table is written into the reference, and is what the tests grant: nothing more, nothing less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
)
from aiokafka.protocol.admin import DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from stream_agg.worker.settings import Settings

Operation = Literal["READ", "WRITE", "DESCRIBE", "CREATE", "DESCRIBE_CONFIGS"]
Kind = Literal["topic", "group", "transactional id"]
Side = Literal[
    "worker",
    "exactly once",
    "create topics",
    "monitor",
    "verify",
    "dead letters",
    "redrive",
    "replay",
    "doctor",
]

CODES: dict[Operation, int] = {"READ": 3, "WRITE": 4, "CREATE": 5, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10}
"""Of Kafka's protocol."""
_REFUSED, _MOVING = frozenset({29, 30}), frozenset({14, 15, 16})
_COORDINATOR_S = 20.0  # who looks after a group; a broker that does not say so is found out later


class Right(NamedTuple):
    """One operation on one thing. `prefixed`: on all whose names begin so."""

    kind: Kind
    name: str
    operation: Operation
    prefixed: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}{'*' if self.prefixed else ''}"


INPUTS, STREAMS = ("sessions", "forecasts", "states"), ("forecasts", "states")
OUTPUTS = ("actions", "regret", "rules", "dead_letters")
ALL = (*INPUTS, *OUTPUTS)

WHY: dict[Side, str] = {
    "worker": "`stream-agg worker`",
    "exactly once": "beside those of a worker: `STREAM_AGG_DELIVERY=exactly_once`",
    "create topics": "beside those of a worker: `--create-topics`, for development",
    "monitor": "`stream-agg monitor`, and the page",
    "verify": "`stream-agg verify`, `replay --topics` and `session import --catch-up`",
    "dead letters": "`stream-agg dead-letters list`",
    "redrive": "`stream-agg dead-letters redrive`",
    "replay": "`stream-agg replay --through-kafka`",
    "doctor": "`stream-agg doctor`",
}
"""What each side is."""


def rights(settings: Settings, side: Side) -> list[Right]:
    """What a side needs and cannot do without. WRITE and READ contain DESCRIBE."""
    app = settings.app

    def on(names: Iterable[str], operation: Operation) -> list[Right]:
        return [Right("topic", getattr(settings, f"topic_{name}"), operation) for name in names]

    table: dict[Side, Callable[[], list[Right]]] = {
        "worker": lambda: [*on(INPUTS, "READ"), *on(OUTPUTS, "WRITE"), Right("group", app, "READ")],
        "exactly once": lambda: [
            Right("group", f"{app}.published", "READ"),
            Right("transactional id", f"{app}.", "WRITE", prefixed=True),
        ],
        "create topics": lambda: on(ALL, "CREATE"),
        "monitor": lambda: [*on(INPUTS, "DESCRIBE"), *on(OUTPUTS, "READ"), Right("group", app, "DESCRIBE")],
        "verify": lambda: [*on(ALL, "READ"), Right("group", app, "DESCRIBE")],
        "dead letters": lambda: [*on((*INPUTS, *OUTPUTS[:3]), "DESCRIBE"), *on(OUTPUTS[3:], "READ")],
        "redrive": lambda: [
            *on(INPUTS, "WRITE"),
            *on(OUTPUTS[:3], "DESCRIBE"),
            *on(OUTPUTS[3:], "READ"),
            *on(OUTPUTS[3:], "WRITE"),
        ],
        "replay": lambda: [
            *on(INPUTS, "WRITE"),
            *on(("actions", "regret", "dead_letters"), "READ"),
            *on(("rules",), "DESCRIBE"),
        ],
        "doctor": lambda: [*on(ALL, "DESCRIBE"), *on(ALL, "DESCRIBE_CONFIGS")],
    }
    return table[side]()


class Found(NamedTuple):
    """What the broker says of topics: how many partitions each has that is there, and the rights that are missing."""

    partitions: Mapping[str, int]
    missing: list[Right]


async def ask(admin: AIOKafkaAdminClient, wanted: Iterable[Right], topics: Iterable[str]) -> Found | None:
    """Which of the wanted rights to topics and groups are missing, and the partitions of `topics`.

    Transactional ids cannot be asked for. None where the broker knows no such question.
    """
    allowed: dict[tuple[str, str], int | None] = {}
    partitions: dict[str, int] = {}
    try:
        answer: Any = await admin._send_request(_Metadata([*topics]))
    except (NotImplementedError, IncompatibleBrokerVersion):
        return None
    for error, name, _, parts, operations in answer.topics:
        allowed["topic", name] = 0 if error in _REFUSED else _known(operations)
        if not error:
            partitions[name] = len(parts)
        elif error not in _REFUSED:
            allowed["topic", name] = None  # it is not there: that is another fault
    missing = []
    for right in wanted:
        if right.kind == "group" and ("group", right.name) not in allowed:
            allowed["group", right.name] = await _group(admin, right.name)
        bits = allowed.get((right.kind, right.name))
        if bits is not None and not bits >> CODES[right.operation] & 1:
            missing.append(right)
    return Found(partitions, missing)


async def _group(admin: AIOKafkaAdminClient, name: str) -> int | None:
    """A broker makes the topic of its groups when it is first asked for one: that takes a moment."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_COORDINATOR_S):
            while True:
                try:
                    answer: Any = await admin._send_request(_Groups([name]), await admin.find_coordinator(name))
                except GroupAuthorizationFailedError:
                    return 0
                except (NotImplementedError, IncompatibleBrokerVersion):
                    return None
                except GroupCoordinatorNotAvailableError:
                    await asyncio.sleep(0.1)
                    continue
                (found,) = answer.groups
                if found[0] not in _MOVING:
                    return 0 if found[0] in _REFUSED else _known(found[-1])
                await asyncio.sleep(0.1)
    return None


def _known(operations: int | None) -> int | None:
    """A field of bits, one an operation; None where the broker does not say."""
    return operations if operations and operations > 0 else None


class _Answer(Response):  # type: ignore[misc]  # aiokafka is not typed here
    API_KEY, API_VERSION = 3, 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("id", Int32), ("host", String("utf-8")), ("port", Int32), ("rack", String("utf-8")))),
        ("cluster", String("utf-8")),
        ("controller", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String("utf-8")),
                ("internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("authorized_operations", Int32),
    )


class _Question(RequestStruct):  # type: ignore[misc]  # aiokafka is not typed here
    """Metadata in the first version that tells what one may do; aiokafka stops before it."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 3, 8, _Answer
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class _Metadata(Request[_Question]):  # type: ignore[misc]  # aiokafka is not typed here
    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class(self._topics, False, False, True)


class _GroupQuestion(RequestStruct):  # type: ignore[misc]  # aiokafka is not typed here
    """Of groups, with the answer that belongs to the version; aiokafka reads it as the one before."""

    API_KEY, API_VERSION, RESPONSE_TYPE = 15, 3, DescribeGroupsResponse_v3
    SCHEMA = Schema(("groups", Array(String("utf-8"))), ("include_authorized_operations", Boolean))


class _Groups(Request[_GroupQuestion]):  # type: ignore[misc]  # aiokafka is not typed here
    API_KEY = 15

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: type[_GroupQuestion]) -> _GroupQuestion:
        return request_struct_class(self._groups, True)
