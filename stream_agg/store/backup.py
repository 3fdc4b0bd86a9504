"""Whole partitions of the Redis store, out and back in: for people, backups and restores. No file is touched here.

A partition is the unit, because its next offsets are those of all its sessions: one session put back alone would miss
what the others have had. A restore goes in steps, and until the last one the partition cannot be claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from stream_agg.errors import FencedError, RefusedError
from stream_agg.store.commit import Argument, Script
from stream_agg.store.keys import EPOCH, NEXT, RESTORING, VERSION, Keys
from stream_agg.store.redis import RedisStore
from stream_agg.store.tables import SCHEMA, TABLES, Tables

T = TypeVar("T")

CHUNK = 500
"""Fields in one write: a server does other things in between."""

_SNAPSHOT = Script("""
if redis.call('SCARD', KEYS[3]) ~= #ARGV then return {'changed'} end
for _, session in ipairs(ARGV) do
  if redis.call('SISMEMBER', KEYS[3], session) == 0 then return {'changed'} end
end
local found = {'ok', redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
for i = 4, #KEYS do found[i] = redis.call('HGETALL', KEYS[i]) end
return found
""")

_BEGIN = Script(f"""
local schema = redis.call('HGET', KEYS[1], '{VERSION}')
if schema and schema ~= ARGV[1] and schema ~= '{RESTORING}' then return {{'schema', schema}} end
if ARGV[2] == '0' and schema ~= '{RESTORING}' then
  local held = redis.call('SCARD', KEYS[3])
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(name, 1, {len(NEXT)}) == '{NEXT}' then held = math.max(held, 1) end
  end
  if held > 0 then return {{'held', held}} end
end
local epoch = math.max(tonumber(redis.call('HGET', KEYS[1], '{EPOCH}') or 0), tonumber(ARGV[3])) + 1
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], '{EPOCH}', epoch, '{VERSION}', '{RESTORING}')
return {{'ok', epoch}}
""")

_WRITE = Script(f"""
if redis.call('HGET', KEYS[1], '{EPOCH}') ~= ARGV[1] then return 'fenced' end
for i = 3, #ARGV do
  local kind, one = string.sub(ARGV[2], 1, 3), ARGV[i]
  if kind == 'del' then redis.call('DEL', one) elseif kind == 'add' then redis.call('SADD', KEYS[2], one) end
end
return 'ok'
""")

_FILL = Script(f"""
if redis.call('HGET', KEYS[1], '{EPOCH}') ~= ARGV[1] then return 'fenced' end
redis.call('HSET', KEYS[2], unpack(ARGV, 2))
return 'ok'
""")


@dataclass(frozen=True, slots=True)
class Partition:
    """All that a partition holds at one moment."""

    partition: int
    epoch: int
    meta: dict[str, str]
    """What is known of it besides its epoch: next offsets, how far its outbox is numbered."""
    outbox: list[tuple[int, bytes]] = field(default_factory=list)
    sessions: dict[str, Tables] = field(default_factory=dict)


class Backup(RedisStore):
    """A `RedisStore` that can take a partition out as it is, and put one back."""

    async def partitions(self) -> list[int]:
        """The partitions that hold anything."""
        with self._answering():
            keys = self._redis.scan_iter(match=f"{{{_literal(self._app)}:*}}:meta", count=1000)
            names = [key.decode() async for key in keys]
        return sorted(int(name.rpartition("}")[0].rpartition(":")[2]) for name in names)

    async def state(self, partition: int, session: str) -> dict[str, bytes]:
        """The table `state` of a session, without its many profiles and events; empty where there is none."""
        key = self._keys(partition).tables(session)[TABLES.index("state")]
        with self._answering():
            return {name.decode(): text for name, text in (await self._redis.hgetall(key)).items()}

    async def snapshot(self, partition: int) -> Partition:
        """A partition at one moment, whoever is working on it. The server does nothing else meanwhile."""
        keys = self._keys(partition)
        while True:
            names = await self.sessions(partition)
            tables = [key for name in names for key in keys.tables(name)]
            with self._answering():
                word, *found = await self._run(_SNAPSHOT, [keys.meta, keys.outbox, keys.sessions, *tables], [*names])
            if word == b"ok":
                break
        meta, outbox, *rows = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in found]
        fields = {name.decode(): text for name, text in meta.items()}
        each = iter([{name.decode(): text for name, text in row.items()} for row in rows])
        return Partition(
            partition,
            int(fields.get(EPOCH, 0)),
            {name: text.decode() for name, text in fields.items() if name not in (EPOCH, VERSION)},
            sorted((int(number), blob) for number, blob in outbox.items()),
            {name: {table: row for table in TABLES if (row := next(each))} for name in names},
        )

    async def restore(self, saved: Partition, overwrite: bool = False) -> None:
        """Put a partition back as it was. A worker that has it is fenced; none can claim it before this is done.

        `RefusedError` where it holds something already and `overwrite` is not given, or is of another schema version;
        `FencedError` where another restore of it began meanwhile.
        """
        keys = self._keys(saved.partition)
        with self._answering():
            held = [name.decode() for name in await self._redis.smembers(keys.sessions)]
            begun = [keys.meta, keys.outbox, keys.sessions]
            word, found = await self._run(_BEGIN, begun, [SCHEMA, int(overwrite), saved.epoch])
        if word == b"schema":
            raise self._other_schema(saved.partition, found)
        if word == b"held":
            raise RefusedError(
                f"partition {saved.partition} holds {found} sessions or offsets already: --overwrite replaces them all"
            )
        epoch = int(found)
        await self._each(keys, epoch, "del", [keys.sessions, *(key for name in held for key in keys.tables(name))])
        await self._each(keys, epoch, "add", list(saved.sessions))  # first: what is broken off must be found again
        for name, tables in saved.sessions.items():
            for table, key in zip(TABLES, keys.tables(name), strict=True):
                await self._fill(keys, epoch, key, tables.get(table, {}).items())
        await self._fill(keys, epoch, keys.outbox, ((str(number), blob) for number, blob in saved.outbox))
        await self._fill(keys, epoch, keys.meta, [*saved.meta.items(), (VERSION, SCHEMA)])

    async def _each(self, keys: Keys, epoch: int, what: str, names: list[str]) -> None:
        for chunk in _chunks(names):
            with self._answering():
                self._ours(await self._run(_WRITE, [keys.meta, keys.sessions], [epoch, what, *chunk]))

    async def _fill(self, keys: Keys, epoch: int, key: str, fields: Iterable[tuple[str, Argument]]) -> None:
        for chunk in _chunks(list(fields)):
            flat: list[Argument] = [x for pair in chunk for x in pair]
            with self._answering():
                self._ours(await self._run(_FILL, [keys.meta, key], [epoch, *flat]))

    def _ours(self, word: bytes) -> None:
        if word != b"ok":
            raise FencedError("another import of this partition, or an empty Redis, came in between: import again")


def _chunks(items: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


def _literal(name: str) -> str:
    """A name as a pattern of Redis that only it matches."""
    return "".join(f"\\{c}" if c in "*?[]^-\\" else c for c in name)
