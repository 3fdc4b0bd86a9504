"""Apache Kafka and Redis themselves, as child processes on free ports that cannot outlive this one. No client here.

Kafka comes from `.ci/servers`, Redis from the system. `missing` says what is not there and how to get it.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from stream_agg.embedded.servers import Server, free_port, is_cluster, is_redis
from stream_agg.errors import ConfigError

HOME = Path(os.environ.get("STREAM_AGG_SERVERS") or Path.home() / ".cache" / "stream-agg")
_HEAP = ("-Xmx400m", "-Xms128m", "-XX:+UseSerialGC")


def missing() -> str | None:
    """What has to be installed before the servers can run, in one line; None where all is there."""
    if not _libraries():
        return "Apache Kafka is not here: run .ci/servers, or set STREAM_AGG_SERVERS to where it put it"
    for program, package in (("java", "default-jre-headless"), ("redis-server", "redis-server")):
        if shutil.which(program) is None:
            return f"no {program} on the path: install it (Debian: apt-get install {package})"
    return None


def _libraries() -> Path | None:
    return max((done.parent / "libs" for done in HOME.glob("kafka-*/done")), default=None)


def versions() -> str:
    """Of both servers, for a report."""
    libraries = _libraries()
    kafka = libraries.parent.name.removeprefix("kafka-") if libraries else "?"
    told = subprocess.run([_found("redis-server"), "--version"], capture_output=True, text=True, check=True).stdout
    redis = next((word[2:] for word in told.split() if word.startswith("v=")), "?")
    return f"Apache Kafka {kafka}, Redis {redis}"


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ConfigError(f"no {program} on the path")
    return path


class Kafka(Server):
    """A node of Apache Kafka, broker and controller in one (KRaft), that keeps its data in `directory`.

    `side` is a second port to listen at, and the port that those who come there are sent to: a proxy's. `settings` are
    added to its configuration.
    """

    _name = "Apache Kafka"
    _start_s: ClassVar[float] = 90.0  # a virtual machine that starts on a busy computer, and recovers its logs

    def __init__(
        self, directory: Path, *, port: int | None = None, side: tuple[int, int] | None = None, **settings: str
    ):
        super().__init__(port)
        self._data, self._side, self._settings = directory, side, settings
        self._controller = free_port()
        self._cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]

    @property
    def address(self) -> str:
        """`127.0.0.1:PORT` for `bootstrap_servers`."""
        return f"127.0.0.1:{self.port}"

    def _java(self, main: str, *arguments: str) -> list[str]:
        return [*_HEAP, "-cp", f"{_libraries()}/*", main, *arguments]

    def _binary(self) -> str:
        if problem := missing():
            raise ConfigError(problem)
        return _found("java")

    def _directory(self) -> Path | None:
        return self._data

    def _flags(self, port: int) -> list[str]:
        self._data.mkdir(parents=True, exist_ok=True)
        file = self._data / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._properties(port).items()))
        if not (self._data / "logs" / "meta.properties").exists():
            format_ = self._java(
                "kafka.tools.StorageTool", "format", "-t", self._cluster, "-c", str(file), *self._format_options()
            )
            subprocess.run([self._binary(), *format_], check=True, capture_output=True, cwd=self._data)
        return self._java("kafka.Kafka", str(file))

    def _format_options(self) -> list[str]:
        """More for the tool that formats its storage."""
        return []

    def _properties(self, port: int) -> dict[str, str]:
        listeners = {"PLAINTEXT": (port, port), "SIDE": self._side or (free_port(), port)}
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": ",".join(f"{n}://127.0.0.1:{at}" for n, (at, _) in listeners.items())
            + f",CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": ",".join(f"{n}://127.0.0.1:{to}" for n, (_, to) in listeners.items()),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SIDE:PLAINTEXT",
            "log.dirs": str(self._data / "logs"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",  # fifty logs to open cost seconds at every start
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "500",  # workers that were killed are missed soon
            "auto.create.topics.enable": "false",
            "broker.session.timeout.ms": "3000",  # its own former self is missed soon, too
            "broker.heartbeat.interval.ms": "500",
            "message.max.bytes": str(20 << 20),
            "log.cleaner.backoff.ms": "500",
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
            **{name.replace("_", "."): value for name, value in self._settings.items()},
        }

    def _answers(self, port: int, pid: int) -> bool:
        return is_cluster(port, self._cluster)


class Redis(Server):
    """A Redis server of the system with its data in `directory`; `options` as on its command line."""

    _name = "Redis"

    def __init__(self, directory: Path, options: Sequence[str] = ("--appendonly", "yes"), *, port: int | None = None):
        super().__init__(port)
        self._data, self._options = directory, tuple(options)

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:PORT/0`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _binary(self) -> str:
        return _found("redis-server")

    def _directory(self) -> Path | None:
        self._data.mkdir(parents=True, exist_ok=True)
        return self._data

    def _flags(self, port: int) -> list[str]:
        fixed = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--maxmemory-policy", "noeviction"]
        return [*fixed, *self._options]

    def _answers(self, port: int, pid: int) -> bool:
        return is_redis(port, pid)
