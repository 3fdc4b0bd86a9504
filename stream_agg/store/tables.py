"""What a store of sessions must do: claim a partition, load a session, commit a batch. No Redis here.

A session is held as four tables of small fields (`TABLES`), each value a JSON text, so that a commit can write what
changed and a person can read it. The same tables are what `Session.to_bytes` packs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

SCHEMA = 1
"""Version of keys and values. A store that finds another one refuses before it touches anything."""

TABLES = ("state", "profiles", "events", "parked")

Tables = dict[str, dict[str, bytes]]
"""table -> field -> JSON text. Tables that are empty may be absent."""

Changes = dict[str, dict[str, bytes | None]]
"""table -> field -> new JSON text, or None to delete the field."""


class Outcome(Enum):
    """What became of a commit."""

    OK = "ok"
    STALE = "stale"
    """A stored offset is not the expected one: someone applied this batch already, or ours is an old view. Nothing was
    written."""
    FENCED = "fenced"
    """The epoch is not ours any more: another owner has claimed the partition. Nothing was written."""


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What one batch did to one session. `reset` drops what the store holds of it first; `expire_ms` lets all of its
    keys die that many milliseconds later (a closed session)."""

    tables: Changes
    reset: bool = False
    expire_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One batch of one topic-partition, all or nothing.

    `expected` is the stored next offset that the batch starts from (None: none is stored yet), `next` the one after it.
    `others` is the same as `expected` for other topics whose effects the changes rest on: a store that went back in
    time (a restored backup, a stale replica) under the same epoch may still agree on `topic`.
    `outbox` is the blob of outputs to keep until published (b"" for none); `trim` lets every blob up to that number go.
    A session the store does not hold starts from nothing, `reset` or not.
    """

    partition: int
    epoch: int
    topic: str
    expected: int | None
    next: int
    changes: Mapping[str, SessionChange] = field(default_factory=dict)
    outbox: bytes = b""
    trim: int = 0
    others: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """The answer to a commit: `number` is the outbox blob's number (0 without one)."""

    outcome: Outcome
    number: int = 0
    stored: int | None = None
    """The next offset of the topic as the store has it now."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition as its new owner finds it. `outbox` holds (number, blob) in order, still to be published."""

    partition: int
    epoch: int
    next_offsets: Mapping[str, int]
    outbox: Sequence[tuple[int, bytes]]


class Store(Protocol):
    """Tables of sessions, by input partition. Every method raises `UnavailableError` when the server does not answer
    (whether the call was applied is then unknown; each is safe to repeat) and `RefusedError` on another schema."""

    async def claim(self, partition: int) -> Claim:
        """Become the owner: a new epoch, under which alone commits are accepted from now on."""

    async def peek(self, partition: int) -> Claim:
        """The same view without becoming the owner (epoch 0: never claimed)."""

    async def load(self, partition: int, session: str) -> Tables | None:
        """All tables of a session, or None where there is none."""

    async def commit(self, commit: Commit) -> Committed:
        """Apply a batch, or say why not."""

    async def trim(self, partition: int, epoch: int, number: int) -> Outcome:
        """Drop outbox blobs up to `number`, when no further commit will carry the trim."""

    async def sessions(self, partition: int) -> list[str]:
        """Ids of the sessions held, sorted."""

    async def epochs(self, partitions: Iterable[int]) -> dict[int, int]:
        """The epoch in force of each partition (0: never claimed): a small question, to see whether a claim holds."""

    async def close(self) -> None:
        """Let go of the connection. The store is not used after."""
