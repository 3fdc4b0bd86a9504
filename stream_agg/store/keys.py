"""Every key of the Redis store, and every field of the one hash that has fixed fields. Names only, no access.

    {app:3}:meta                  hash: schema, epoch, outbox (number of the newest blob), trimmed, next:<topic>
    {app:3}:outbox                hash: number -> blob
    {app:3}:sessions              set: ids of the sessions held
    {app:3}:s:<session>:<table>   hash: field -> JSON text
    {app:3}:check:1, :2           for a moment at a worker's start: what may be done is tried there

A cluster hashes what stands between the first pair of braces, so all keys of a partition are in one slot, whatever a
session id holds.
"""

from __future__ import annotations

from stream_agg.errors import ConfigError
from stream_agg.store.tables import TABLES

VERSION = "schema"
EPOCH = "epoch"
OUTBOX = "outbox"
TRIMMED = "trimmed"
NEXT = "next:"

RESTORING = "restoring"
"""Stands in place of the schema's version while a partition is put back from a backup: nobody can claim it."""


class Keys:
    """The keys of one app and partition. Raises `ConfigError` for an app name that would break the hash tag."""

    def __init__(self, app: str, partition: int) -> None:
        if not app or "{" in app or "}" in app:
            raise ConfigError(
                f"the app name {app!r} cannot be part of a Redis key: it must have no braces, nor be empty"
            )
        self._tag = f"{{{app}:{partition}}}"
        self.meta = f"{self._tag}:meta"
        self.outbox = f"{self._tag}:outbox"
        self.sessions = f"{self._tag}:sessions"
        self.check = (f"{self._tag}:check:1", f"{self._tag}:check:2")

    def tables(self, session: str) -> list[str]:
        """The keys of a session, in the order of `TABLES`."""
        return [f"{self._tag}:s:{session}:{table}" for table in TABLES]
