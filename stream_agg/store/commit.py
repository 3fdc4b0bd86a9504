"""The Lua that writes, and what it takes: a claim, a commit or a trim is one call, all or nothing. No connection here.

Every script answers with a word first. It checks all there is to check before its first write; nothing it does after
that can fail. The first write is one that Redis refuses when its memory is full: later ones it would let pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha1

from stream_agg.store.keys import EPOCH, NEXT, OUTBOX, TRIMMED, VERSION, Keys
from stream_agg.store.tables import SCHEMA, TABLES, Commit, SessionChange

Argument = str | bytes | int


class Script:
    """Lua, and the name under which a server that has run it knows it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()


_MOST_ARGS = 1000  # in one redis.call: Lua 5.1 cannot unpack more than its stack, 8000

CLAIM = Script(f"""
local found = redis.call('HGET', KEYS[1], '{VERSION}')
if found and found ~= ARGV[1] then return {{'schema', found}} end
if not found then redis.call('HSET', KEYS[1], '{VERSION}', ARGV[1]) end
redis.call('HINCRBY', KEYS[1], '{EPOCH}', 1)
return {{'ok', redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}}
""")

# Reads are scripts too: several keys at one moment, on a cluster as on one server.

PEEK = Script("return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}")

SESSIONS = Script(f"return {{redis.call('HGET', KEYS[1], '{VERSION}') or '', redis.call('SMEMBERS', KEYS[2])}}")

LOAD = Script(f"""
local found = {{redis.call('HGET', KEYS[1], '{VERSION}') or '', redis.call('SISMEMBER', KEYS[2], ARGV[1])}}
for i = 3, #KEYS do found[i] = redis.call('HGETALL', KEYS[i]) end
return found
""")

# A command that the user may not call would end a commit half-way: each is tried on a key that nobody else uses.
CHECK = Script("""
local tries = {
  hset = {KEYS[1], 'a', '1'}, hget = {KEYS[1], 'a'}, hgetall = {KEYS[1]}, hincrby = {KEYS[1], 'a', 1},
  hdel = {KEYS[1], 'b'}, sadd = {KEYS[2], 'a'}, smembers = {KEYS[2]}, sismember = {KEYS[2], 'a'}, srem = {KEYS[2], 'b'},
  pexpire = {KEYS[1], 1000}, del = {KEYS[1], KEYS[2]}
}
local lacking = {}
for _, command in ipairs(ARGV) do
  local said = redis.pcall(command, unpack(tries[command]))
  if type(said) == 'table' and said.err and (said.err:find('permission') or said.err:find("can't run")) then
    table.insert(lacking, command)
  end
end
return lacking
""")
CHECKED = ("hset", "hget", "hgetall", "hincrby", "hdel", "sadd", "smembers", "sismember", "srem", "pexpire", "del")

_OWNED = f"""
local function refusal()
  if redis.call('HGET', KEYS[1], '{EPOCH}') ~= ARGV[2] then return 'fenced' end
  if redis.call('HGET', KEYS[1], '{VERSION}') ~= ARGV[1] then return 'schema' end
end
local function trim(upto)
  local newest = tonumber(redis.call('HGET', KEYS[1], '{OUTBOX}') or 0)
  local trimmed = tonumber(redis.call('HGET', KEYS[1], '{TRIMMED}') or 0)
  local last = math.min(upto, newest)
  for number = trimmed + 1, last do redis.call('HDEL', KEYS[2], number) end
  if last > trimmed then redis.call('HSET', KEYS[1], '{TRIMMED}', last) end
end
"""

TRIM = Script(f"""
{_OWNED}
local refused = refusal()
if refused then return {{refused, redis.call('HGET', KEYS[1], '{VERSION}') or ''}} end
trim(tonumber(ARGV[3]))
return {{'ok'}}
""")

COMMIT = Script(f"""
{_OWNED}
local at = 3
local function take()
  at = at + 1
  return ARGV[at - 1]
end
local topic, expected, following = take(), take(), take()
local upto, blob = tonumber(take()), take()
local stored = redis.call('HGET', KEYS[1], topic) or ''
local refused = refusal()
if refused then return {{refused, 0, stored, redis.call('HGET', KEYS[1], '{VERSION}') or ''}} end
local stale = stored ~= expected
for _ = 1, tonumber(take()) do
  local other, wanted = take(), take()
  stale = stale or (redis.call('HGET', KEYS[1], other) or '') ~= wanted
end
if stale then return {{'stale', 0, stored}} end

redis.call('HSET', KEYS[1], topic, following)
trim(upto)
local number = 0
if blob ~= '' then
  number = redis.call('HINCRBY', KEYS[1], '{OUTBOX}', 1)
  redis.call('HSET', KEYS[2], number, blob)
end
for first = 4, #KEYS, {len(TABLES)} do
  local session, reset, expire_ms = take(), take() == '1', take()
  local tables = {{unpack(KEYS, first, first + {len(TABLES) - 1})}}
  if reset or redis.call('SISMEMBER', KEYS[3], session) == 0 then redis.call('DEL', unpack(tables)) end
  for _ = 1, tonumber(take()) do
    local command, table_, count = take(), tonumber(take()), tonumber(take())
    redis.call(command, tables[table_], unpack(ARGV, at, at + count - 1))
    at = at + count
  end
  if expire_ms == '' then
    redis.call('SADD', KEYS[3], session)
  else
    redis.call('SREM', KEYS[3], session)
    for _, key in ipairs(tables) do redis.call('PEXPIRE', key, expire_ms) end
  end
end
return {{'ok', number, following}}
""")


def commit_call(keys: Keys, commit: Commit) -> tuple[list[str], list[Argument]]:
    """KEYS and ARGV of `COMMIT`. `KeyError` for a table that does not exist."""
    names = [keys.meta, keys.outbox, keys.sessions]
    arguments: list[Argument] = [SCHEMA, commit.epoch, NEXT + commit.topic, _offset(commit.expected), commit.next]
    arguments += [commit.trim, commit.outbox, len(commit.others)]
    for topic, offset in commit.others.items():
        arguments += [NEXT + topic, _offset(offset)]
    for session, change in commit.changes.items():
        names += keys.tables(session)
        operations = list(_operations(change))
        arguments += [session, int(change.reset), "" if change.expire_ms is None else change.expire_ms, len(operations)]
        for command, table, values in operations:
            arguments += [command, table, len(values), *values]
    return names, arguments


def _offset(offset: int | None) -> Argument:
    return "" if offset is None else offset


def _operations(change: SessionChange) -> Iterator[tuple[str, int, list[Argument]]]:
    """(command, number of the table from 1, arguments), none with too many arguments."""
    numbers = {table: number for number, table in enumerate(TABLES, 1)}
    for table, fields in change.tables.items():
        written: list[Argument] = [x for name, value in fields.items() if value is not None for x in (name, value)]
        deleted: list[Argument] = [name for name, value in fields.items() if value is None]
        for command, values in (("HSET", written), ("HDEL", deleted)):
            for start in range(0, len(values), _MOST_ARGS):
                yield command, numbers[table], values[start : start + _MOST_ARGS]
