"""The store in Redis: the only room that speaks to it, and where its errors become ours.

What is written is decided by the scripts of `commit.py`, where by `keys.py`. Nothing is tried twice here: a call that
failed may have been applied, and only the caller knows whether to repeat it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redis import exceptions as theirs

from stream_agg.errors import ConfigError, RefusedError, UnavailableError
from stream_agg.store.commit import (
    CHECK,
    CHECKED,
    CLAIM,
    COMMIT,
    LOAD,
    PEEK,
    SESSIONS,
    TRIM,
    Argument,
    Script,
    commit_call,
)
from stream_agg.store.connect import connect
from stream_agg.store.keys import EPOCH, NEXT, RESTORING, VERSION, Keys
from stream_agg.store.tables import SCHEMA, TABLES, Claim, Commit, Committed, Outcome, Store, Tables

_REMEDIES = {
    "OOM": "has no memory left: raise its maxmemory, and keep maxmemory-policy at noeviction",
    "READONLY": "is a read-only replica: point the URL to the primary, or promote this one",
    "MASTERDOWN": "is a replica that lost its primary: point the URL to the primary, or promote this one",
    "MISCONF": "cannot write to its disk: make room there, or see why its last save failed",
    "NOREPLICAS": "has fewer replicas than min-replicas-to-write asks for: start them, or lower it",
    "LOADING": "is still loading its data: wait",
    "BUSY": "is held up by a script: wait, or end that with SCRIPT KILL",
    "CLUSTERDOWN": "is part of a cluster that is down: repair the cluster",
    "TRYAGAIN": "is moving the keys to another node: wait",
}
"""What a server says when it cannot do now what it could do later, and what to do about it."""

_CODES: dict[type[theirs.RedisError], str] = {
    theirs.OutOfMemoryError: "OOM",
    theirs.ReadOnlyError: "READONLY",
    theirs.MasterDownError: "MASTERDOWN",
    theirs.BusyLoadingError: "LOADING",
    theirs.ClusterDownError: "CLUSTERDOWN",
    theirs.TryAgainError: "TRYAGAIN",
}
"""redis-py takes the code out of the text of an error it has a class for."""

_NOT_LET_IN = (
    theirs.AuthenticationError,
    theirs.AuthorizationError,
    theirs.AuthenticationWrongNumberOfArgsError,
)


@dataclass(frozen=True, slots=True)
class About:
    """What a server says of itself."""

    version: str
    policy: str
    """maxmemory-policy"""
    appendonly: bool
    writable: bool
    """Whether it is a primary whose last writes to the disk went well."""
    maxmemory: int
    used: int
    time_s: float


class RedisStore(Store):
    """A `Store` in the Redis at `url` (one server, a cluster, or by sentinels), under keys that begin with `app`.

    Nothing is connected before the first call. A server that is silent for `timeout_s` seconds does not answer.
    Raises `ConfigError` for a URL or an app name that cannot work, and later where the server does not let us in.
    """

    def __init__(self, url: str, app: str = "stream_agg", timeout_s: float = 5.0) -> None:
        Keys(app, 0)
        self._app = app
        self._redis, self._where, self._guides = connect(url, timeout_s)

    async def claim(self, partition: int) -> Claim:
        keys = self._keys(partition)
        with self._answering():
            word, *found = await self._run(CLAIM, [keys.meta, keys.outbox], [SCHEMA])
        if word == b"schema":
            raise self._other_schema(partition, found[0])
        meta, outbox = map(_pairs, found)
        return _view(partition, meta, outbox)

    async def peek(self, partition: int) -> Claim:
        keys = self._keys(partition)
        with self._answering():
            meta, outbox = map(_pairs, await self._run(PEEK, [keys.meta, keys.outbox], []))
        self._check_schema(partition, meta.get(VERSION.encode()))
        return _view(partition, meta, outbox)

    async def load(self, partition: int, session: str) -> Tables | None:
        keys = self._keys(partition)
        with self._answering():
            names = [keys.meta, keys.sessions, *keys.tables(session)]
            schema, held, *tables = await self._run(LOAD, names, [session])
        self._check_schema(partition, schema)
        if not held:
            return None
        named = zip(TABLES, map(_pairs, tables), strict=True)
        return {table: {name.decode(): value for name, value in fields.items()} for table, fields in named if fields}

    async def commit(self, commit: Commit) -> Committed:
        keys, arguments = commit_call(self._keys(commit.partition), commit)
        with self._answering():
            word, number, stored, *schema = await self._run(COMMIT, keys, arguments)
        if word == b"schema":
            raise self._other_schema(commit.partition, schema[0])
        return Committed(Outcome(word.decode()), number, int(stored) if stored else None)

    async def trim(self, partition: int, epoch: int, number: int) -> Outcome:
        keys = self._keys(partition)
        with self._answering():
            word, *schema = await self._run(TRIM, [keys.meta, keys.outbox], [SCHEMA, epoch, number])
        if word == b"schema":
            raise self._other_schema(partition, schema[0])
        return Outcome(word.decode())

    async def sessions(self, partition: int) -> list[str]:
        keys = self._keys(partition)
        with self._answering():
            schema, held = await self._run(SESSIONS, [keys.meta, keys.sessions], [])
        self._check_schema(partition, schema)
        return sorted(session.decode() for session in held)

    async def epochs(self, partitions: Iterable[int]) -> dict[int, int]:
        asked = list(partitions)
        with self._answering():
            async with self._redis.pipeline(transaction=False) as pipe:
                for partition in asked:
                    pipe.hget(self._keys(partition).meta, EPOCH)
                found = await pipe.execute()
        return {partition: int(epoch or 0) for partition, epoch in zip(asked, found, strict=True)}

    async def check(self) -> None:
        """`ConfigError` naming every command that a worker calls and our user may not."""
        with self._answering():
            lacking = await self._run(CHECK, [*self._keys(0).check], [*CHECKED])
        if lacking:
            raise self._lacking(", ".join(command.decode() for command in lacking))

    async def about(self) -> About:
        """The server, for a check-up."""
        with self._answering():
            info = await self._redis.info()
            seconds, micros = await self._redis.time()
        writes = {info.get(name, "ok") for name in ("aof_last_write_status", "rdb_last_bgsave_status")}
        return About(
            version=str(info["redis_version"]),
            policy=str(info.get("maxmemory_policy", "unknown")),
            appendonly=bool(info.get("aof_enabled")),
            writable=info.get("role") == "master" and writes == {"ok"},
            maxmemory=int(info.get("maxmemory", 0)),
            used=int(info.get("used_memory", 0)),
            time_s=seconds + micros / 1e6,
        )

    async def close(self) -> None:
        for client in (self._redis, *self._guides):
            await client.aclose()

    async def _run(self, script: Script, keys: list[str], arguments: list[Argument]) -> Any:
        try:
            return await self._redis.evalsha(script.sha, len(keys), *keys, *arguments)
        except theirs.NoScriptError:  # a server that started since, or another node
            return await self._redis.eval(script.text, len(keys), *keys, *arguments)

    def _keys(self, partition: int) -> Keys:
        return Keys(self._app, partition)

    def _check_schema(self, partition: int, found: bytes | None) -> None:
        if found and found != str(SCHEMA).encode():
            raise self._other_schema(partition, found)

    def _other_schema(self, partition: int, found: bytes) -> RefusedError:
        if found == RESTORING.encode():
            return RefusedError(
                f"partition {partition} of {self._app!r} in Redis at {self._where} is being put back from a backup: "
                "wait for `stream-agg session import`, or run it again if it was broken off"
            )
        return RefusedError(
            f"Redis at {self._where} holds partition {partition} of {self._app!r} in schema version "
            f"{found.decode(errors='replace') or 'unknown'}, this program reads and writes version {SCHEMA}: run the "
            "stream-agg that wrote it, or start afresh under another app name"
        )

    def _lacking(self, what: str) -> ConfigError:
        return ConfigError(
            f"Redis at {self._where} gives our user no right to {what}: grant it; docs/reference/rights.md lists "
            "those of each side"
        )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn what redis-py raises into our errors, none of which holds more of the URL than host and port."""
        server = f"Redis at {self._where}"
        try:
            yield
        except theirs.NoPermissionError as e:
            raise self._lacking(_right(e)) from e
        except _NOT_LET_IN as e:
            raise ConfigError(f"{server} does not let us in ({_line(e)}): check user and password in the URL") from e
        except (theirs.RedisError, theirs.RedisClusterException, OSError) as e:
            if (fault := _tls(e)) is not None:
                raise ConfigError(
                    f"no TLS with {server} ({fault}): name the authority of its certificate in the URL "
                    "(?ssl_ca_certs=), and the server as the certificate does; rediss:// needs a port that speaks TLS"
                ) from e
            if (right := _lacks(e)) is not None:
                raise self._lacking(right) from e
            remedy = _remedy(e)
            if remedy:
                raise UnavailableError(f"{server} {remedy}") from e
            if isinstance(e, (theirs.ConnectionError, theirs.TimeoutError, theirs.RedisClusterException, OSError)):
                raise UnavailableError(
                    f"{server} does not answer ({_line(e)}): start it, or check the URL, and whether it wants rediss://"
                ) from e
            raise RefusedError(
                f"{server} refused: {_line(e)}; check that it is Redis 5 or later and no one else's"
            ) from e


def _view(partition: int, meta: Mapping[bytes, bytes], outbox: Mapping[bytes, bytes]) -> Claim:
    fields = {name.decode(): value for name, value in meta.items()}
    offsets = {name.removeprefix(NEXT): int(value) for name, value in fields.items() if name.startswith(NEXT)}
    blobs = sorted((int(number), blob) for number, blob in outbox.items())
    return Claim(partition, int(fields.get(EPOCH, 0)), offsets, blobs)


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    """What a script returns for HGETALL: names and values in turn."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _tls(e: BaseException) -> str | None:
    """What went wrong with TLS, if that did: redis-py hides it behind an error of its own."""
    seen: BaseException | None = e
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return getattr(seen, "verify_message", "") or seen.reason or "handshake failed"
        seen = seen.__cause__ or seen.__context__
    return None


def _lacks(e: Exception) -> str | None:
    """The right that an error inside a script says is missing: it comes as text, and not as an error of its own."""
    said = str(e)
    inside = isinstance(e, theirs.ResponseError) and "script" in said
    return _right(e) if inside and ("permission" in said or "can't run" in said) else None


def _right(e: Exception) -> str:
    """The command that the server names, or all it says."""
    named = re.search(r"'([a-z|]+)'", str(e))
    return f"call {named[1]}" if named else f"do that ({_line(e)})"


def _remedy(e: Exception) -> str | None:
    for kind, code in _CODES.items():
        if isinstance(e, kind):
            return _REMEDIES[code]
    if isinstance(e, theirs.ResponseError):
        # Before Redis 7 an error inside a script comes as text around the original, "... @user_script:12: -OOM ...".
        words = {word.lstrip("-") for word in str(e).split()}
        return next((remedy for code, remedy in _REMEDIES.items() if code in words), None)
    return None


def _line(e: Exception) -> str:
    return " ".join(str(e).split()) or type(e).__name__
