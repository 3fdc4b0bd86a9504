"""A deployment on this machine while it is needed: embedded servers, and a worker process that is kept alive."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import stream_agg
from stream_agg.embedded import Broker, RedisServer
from stream_agg.worker.broker import create_topics
from stream_agg.worker.settings import PREFIX, Settings

STOP_S = 20.0
"""How long a worker may take to stop cleanly before it is killed: longer than its own limits."""

EMBEDDED_SESSION_S = 4.0

PACKAGES = str(Path(stream_agg.__file__).parent.parent)
"""Where this package was imported from."""


@contextmanager
def servers(settings: Settings) -> Iterator[Settings]:
    """A broker and a Redis in memory, and the settings to reach them; topics may be created there."""
    with Broker() as broker, RedisServer() as redis:
        yield replace(
            settings,
            brokers=broker.address,
            redis_url=redis.url,
            create_topics=True,
            # The embedded broker lets the first member of a group wait for half of it.
            session_timeout_s=EMBEDDED_SESSION_S,
        )


def _child(
    settings: Settings, *command: str, stdout: int | None = None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """A command of ours with these settings, that ends with this process."""
    env = {**os.environ, **{PREFIX + f.name.upper(): str(getattr(settings, f.name)) for f in fields(Settings)}}
    # This very package and its compiled code, though another one may lie where the command was given.
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (PACKAGES, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "stream_agg", *command, "--until-stdin-closes"],
        stdin=subprocess.PIPE,  # its other end closes when we die, however we die
        stdout=stdout,
        stderr=stderr,
        env=env,
    )


@contextmanager
def monitor_page(settings: Settings) -> Iterator[None]:
    """The monitor page, from a process of its own: it says so when the worker stands still, and never slows it."""
    process = _child(settings, "monitor", "--web", stdout=sys.stderr.fileno())
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin:
            process.stdin.close()


class WorkerProcess:
    """`stream-agg worker` as a child that ends with its parent, and is started again whenever it dies by itself."""

    def __init__(self, settings: Settings, log: int | None = None) -> None:
        self.settings, self.starts = settings, 0
        self._log = log
        self._stopping = threading.Event()
        self._process = self._spawn()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Process id of the worker now."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: it will be started again."""
        self._process.kill()

    def stop(self) -> int:
        """Ask it to stop, wait; its exit code."""
        self._stopping.set()
        self._process.terminate()
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._thread.join()
            if self._process.stdin:
                self._process.stdin.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        return _child(self.settings, "worker", stderr=self._log)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            self._process.wait()
            if self._stopping.wait(0.2):
                return
            if self._process.stdin:
                self._process.stdin.close()
            self._process = self._spawn()


@contextmanager
def deployment(settings: Settings, log: int | None = None) -> Iterator[Settings]:
    """Embedded servers with topics, and a worker on them that writes its log to the descriptor `log`."""
    with servers(settings) as local:
        asyncio.run(create_topics(local))
        worker = WorkerProcess(local, log)
        try:
            yield local
        finally:
            worker.stop()
