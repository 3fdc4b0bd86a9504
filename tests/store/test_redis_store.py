"""What only the Redis store can get wrong: its keys, its scripts on the server, and whose errors are raised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from redis.crc import key_slot

from stream_agg.embedded import RedisServer
from stream_agg.errors import ConfigError, RefusedError, StreamAggError, UnavailableError
from stream_agg.store.keys import Keys
from stream_agg.store.redis import RedisStore
from stream_agg.store.tables import Commit, Outcome, SessionChange, Store

P = 3
HIDDEN = "hunter2secret"


@pytest.fixture
async def store(server: RedisServer, app: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.url, app)
    yield store
    await store.close()


@pytest.fixture
def own() -> Iterator[RedisServer]:
    """A server that the test may spoil."""
    with RedisServer() as server:
        yield server


def commit(epoch: int, expected: int | None = None, **options: object) -> Commit:
    change = SessionChange({"state": {"t": b"1", "u": b"1"}, "events": {"e": b"1"}})
    made = Commit(P, epoch, "forecasts", expected, (expected or 0) + 1, {"a": change}, b"blob")
    return replace(made, **options)  # type: ignore[arg-type]


def every_call(store: Store, epoch: int = 1) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: store.claim(P),
        lambda: store.peek(P),
        lambda: store.load(P, "a"),
        lambda: store.commit(commit(epoch)),
        lambda: store.trim(P, epoch, 1),
        lambda: store.sessions(P),
    ]


@given(st.text())
def test_all_keys_of_a_partition_are_in_one_slot(session: str) -> None:
    keys = Keys("app", P)
    names = [keys.meta, keys.outbox, keys.sessions, *keys.tables(session)]
    assert {key_slot(name.encode("utf-8", "surrogatepass")) for name in names} == {key_slot(b"app:3")}
    assert len(set(names)) == len(names)


async def test_answers_are_bytes_whatever_the_url_asks_for(server: RedisServer, app: str) -> None:
    store = RedisStore(f"{server.url}?decode_responses=yes&protocol=3", app)
    await store.claim(P)
    await store.commit(commit(1, outbox=b"\xff"))
    assert (await store.peek(P)).outbox == [(1, b"\xff")]
    assert await store.load(P, "a") == {"state": {"t": b"1", "u": b"1"}, "events": {"e": b"1"}}
    await store.close()


@pytest.mark.parametrize("app", ["", "{", "a}b", "{a}"])
def test_an_app_name_that_breaks_the_hash_tag(app: str) -> None:
    with pytest.raises(ConfigError, match="braces"):
        RedisStore("redis://localhost", app)


async def test_what_is_stored_can_be_read_by_people(store: RedisStore, raw: Redis, app: str) -> None:
    await store.claim(P)
    await store.commit(commit(1))
    tag = f"{{{app}:{P}}}"
    names = {key.decode() async for key in raw.scan_iter(f"{tag}:*")}
    assert names == {f"{tag}:{end}" for end in ("meta", "outbox", "sessions", "s:a:state", "s:a:events")}
    assert await raw.hgetall(f"{tag}:meta") == {
        b"schema": b"1",
        b"epoch": b"1",
        b"next:forecasts": b"1",
        b"outbox": b"1",
    }
    assert await raw.hgetall(f"{tag}:s:a:state") == {b"t": b"1", b"u": b"1"}


async def test_only_changed_fields_are_written(store: RedisStore, raw: Redis, app: str) -> None:
    await store.claim(P)
    await store.commit(commit(1))
    change = SessionChange({"state": {"t": b"2"}, "events": {"e": None}})
    async with raw.monitor() as monitor:
        await store.commit(commit(1, 1, changes={"a": change}, outbox=b"", trim=1))
        await raw.echo("end")
        ran = []
        while (seen := await monitor.next_command())["command"] != "ECHO end":
            if seen["client_type"] == "lua":
                ran.append(seen["command"])
    tag = f"{{{app}:{P}}}"
    assert [command for command in ran if command.split()[0] not in ("HGET", "SISMEMBER")] == [
        f"HSET {tag}:meta next:forecasts 2",
        f"HDEL {tag}:outbox 1",
        f"HSET {tag}:meta trimmed 1",
        f"HSET {tag}:s:a:state t 2",
        f"HDEL {tag}:s:a:events e",
        f"SADD {tag}:sessions a",
    ]


async def test_a_closed_session_dies_and_an_opened_one_does_not(store: RedisStore, raw: Redis, app: str) -> None:
    keys = Keys(app, P).tables("a")[::2]  # state and events, where `commit` writes
    await store.claim(P)
    await store.commit(commit(1))
    await store.commit(commit(1, 1, changes={"a": SessionChange({}, expire_ms=60_000)}))
    assert all(0 < left <= 60_000 for left in [await raw.pttl(key) for key in keys])
    await store.commit(commit(1, 2))
    assert [await raw.pttl(key) for key in keys] == [-1, -1]
    await store.commit(commit(1, 3, changes={"a": SessionChange({}, expire_ms=1)}))
    deadline = time.monotonic() + 5
    while await raw.exists(*keys):
        assert time.monotonic() < deadline, "the keys of a closed session are still there"


async def test_the_server_may_forget_the_scripts(store: RedisStore, raw: Redis) -> None:
    await store.claim(P)
    await raw.script_flush()
    assert (await store.commit(commit(1))).outcome is Outcome.OK
    await raw.script_flush()
    assert await store.trim(P, 1, 1) is Outcome.OK
    await raw.script_flush()
    assert (await store.claim(P)).epoch == 2


async def test_many_commits_at_once_take_turns(store: RedisStore) -> None:
    await store.claim(P)
    done = await asyncio.gather(*(store.commit(commit(1)) for _ in range(20)))
    assert sorted(answer.outcome.value for answer in done) == ["ok"] + ["stale"] * 19


async def test_another_schema_is_refused_and_left_alone(store: RedisStore, raw: Redis, app: str) -> None:
    await store.claim(P)
    await store.commit(commit(1))
    meta = Keys(app, P).meta
    await raw.hset(meta, "schema", "2")
    before = await raw.hgetall(meta)
    for call in every_call(store):
        with pytest.raises(RefusedError, match=r"schema version 2.*version 1.*another app name"):
            await call()
    assert await raw.hgetall(meta) == before


async def test_keys_of_someone_else_are_refused(store: RedisStore, raw: Redis, app: str) -> None:
    await raw.set(Keys(app, P).meta, "not a hash")
    for call in every_call(store):
        with pytest.raises(RefusedError, match=r"refused: .*no one else"):
            await call()


@pytest.mark.parametrize(
    "url",
    ["", "http://localhost", f"redis://:{HIDDEN}/x@localhost:6379", f"redis://:{HIDDEN}@localhost?nonsense=1"],
)
def test_a_url_that_cannot_work(url: str) -> None:
    with pytest.raises(ConfigError, match="Redis URL") as caught:
        RedisStore(url)
    assert HIDDEN not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_wrong_password_is_a_wrong_setting(own: RedisServer) -> None:
    async with Redis.from_url(own.url) as raw:
        await raw.config_set("requirepass", "right")
    for user in (f":{HIDDEN}@", ""):
        store = RedisStore(own.url.replace("//", f"//{user}"))
        for call in every_call(store):
            with pytest.raises(ConfigError, match=f"127.0.0.1:{own.port} does not let us in") as caught:
                await call()
            assert_one_line_without_password(caught.value)
        await store.close()
    store = RedisStore(own.url.replace("//", "//:right@"))
    assert (await store.claim(P)).epoch == 1
    await store.close()


def assert_one_line_without_password(error: StreamAggError) -> None:
    assert "\n" not in str(error)
    causes: list[BaseException | None] = [error, error.__cause__]
    assert not any(HIDDEN in text for cause in causes for text in (str(cause), repr(cause)))


async def test_a_server_that_dies_and_comes_back(own: RedisServer) -> None:
    store = RedisStore(own.url.replace("//", f"//:{HIDDEN}@"), timeout_s=1.0)
    async with Redis.from_url(own.url) as raw:
        await raw.config_set("requirepass", HIDDEN)
    await store.claim(P)
    own.kill()
    for call in every_call(store):
        began = time.monotonic()
        with pytest.raises(UnavailableError, match=f"127.0.0.1:{own.port} does not answer.*start it") as caught:
            await call()
        assert_one_line_without_password(caught.value)
        assert time.monotonic() - began < 3
    own.stop()
    own.start()
    with pytest.raises(ConfigError):  # it forgot its password, and redis-py insists on ours
        await store.claim(P)
    async with Redis.from_url(own.url) as raw:
        await raw.config_set("requirepass", HIDDEN)
    assert (await store.claim(P)).epoch == 1
    await store.close()


async def test_a_full_server_takes_nothing_by_halves(own: RedisServer) -> None:
    store = RedisStore(own.url)
    await store.claim(P)
    await store.commit(commit(1))
    async with Redis.from_url(own.url) as raw:
        await raw.config_set("maxmemory", "1")
        before = await store.peek(P), await store.load(P, "a")
        # Begins with what a full server would let through.
        change = SessionChange({"state": {"t": b"2", "u": None}}, reset=True)
        for changes in ({"a": change}, {}):
            with pytest.raises(UnavailableError, match=r"maxmemory.*noeviction"):
                await store.commit(commit(1, 1, changes=changes, trim=1))
        assert (await store.peek(P), await store.load(P, "a")) == before
        assert await store.trim(P, 1, 1) is Outcome.OK
        await raw.config_set("maxmemory", "0")
    assert (await store.commit(commit(1, 1))).number == 2
    assert [number for number, _ in (await store.peek(P)).outbox] == [2]
    await store.close()


async def test_a_replica_is_not_written_to(own: RedisServer) -> None:
    store = RedisStore(own.url)
    await store.claim(P)
    async with Redis.from_url(own.url) as raw:
        await raw.execute_command("REPLICAOF", "127.0.0.1", "1")
        for call in (lambda: store.claim(P), lambda: store.commit(commit(1))):
            with pytest.raises(UnavailableError, match=r"replica.*primary"):
                await call()
        await raw.execute_command("REPLICAOF", "NO", "ONE")
    assert (await store.commit(commit(1))).outcome is Outcome.OK
    await store.close()


async def answer_with(reply: bytes) -> asyncio.Server:
    """A server that answers every command with `reply`; silent when that is empty."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(reply * sum(line.startswith(b"*") for line in data.split(b"\r\n")))
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", UnavailableError, "loading"),
        (b"-MISCONF Errors writing to the AOF file: No space left on device\r\n", UnavailableError, "disk"),
        (b"-NOREPLICAS Not enough good replicas to write.\r\n", UnavailableError, "min-replicas"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", UnavailableError, "primary"),
        (b"-CLUSTERDOWN The cluster is down\r\n", UnavailableError, "cluster"),
        (b"-BUSY Redis is busy running a script.\r\n", UnavailableError, "SCRIPT KILL"),
        (
            b"-ERR Error running script (call to f_0): @user_script:9: @user_script: 9: "
            b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
            UnavailableError,
            "maxmemory",
        ),
        (
            b"-ERR Error running script (call to f_0): @user_script:9: @user_script: 9: "
            b"-READONLY You can't write against a read only replica.\r\n",
            UnavailableError,
            "replica",
        ),
        (b"-ERR max number of clients reached\r\n", UnavailableError, "max number of clients"),
        (
            b"-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
            ConfigError,
            "no right to call evalsha",
        ),
        (b"-ERR unknown command\r\n", RefusedError, "unknown command"),
        (b"HTTP/1.1 400 Bad Request\r\n", StreamAggError, "Redis at 127.0.0.1"),
    ],
)
async def test_what_a_server_may_say(reply: bytes, error: type[StreamAggError], says: str) -> None:
    async with await answer_with(reply) as server:
        store = RedisStore(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", timeout_s=5.0)
        for call in every_call(store):
            with pytest.raises(error, match=says) as caught:
                await call()
            assert_one_line_without_password(caught.value)
        await store.close()


async def test_a_silent_server_is_waited_for_so_long() -> None:
    async with await answer_with(b"") as server:
        store = RedisStore(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", timeout_s=0.2)
        for call in every_call(store):
            began = time.monotonic()
            with pytest.raises(UnavailableError, match="does not answer"):
                await call()
            assert 0.1 < time.monotonic() - began < 2
        await store.close()


async def test_nothing_is_tried_twice() -> None:
    asked = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while data := await reader.read(65536):
            if b"EVALSHA" in data:
                asked += 1
                break
            writer.write(b"+OK\r\n" * sum(line.startswith(b"*") for line in data.split(b"\r\n")))
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        store = RedisStore(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
        with pytest.raises(UnavailableError):
            await store.commit(commit(1))
        assert asked == 1
        await store.close()


async def test_a_name_or_socket_that_is_not_there(tmp_path: Path, unused_tcp_port: int) -> None:
    nowhere = {
        f"unix://:{HIDDEN}@{tmp_path}/redis.sock": f"{tmp_path}/redis.sock",
        f"redis://user:{HIDDEN}@127.0.0.1:{unused_tcp_port}/0": f"127.0.0.1:{unused_tcp_port}",
    }
    for url, where in nowhere.items():
        store = RedisStore(url)
        with pytest.raises(UnavailableError, match=f"Redis at {where} does not answer") as caught:
            await store.claim(P)
        assert_one_line_without_password(caught.value)
        await store.close()
