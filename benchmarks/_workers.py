"""Worker processes as child processes: started, watched, stopped, and what the kernel says of them. No client here."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import stream_agg
from stream_agg.worker.settings import PREFIX, Settings

PACKAGES = str(Path(stream_agg.__file__).parent.parent)
PROGRAM = (sys.executable, "-P", "-m", "stream_agg")
PATIENCE_S = 120.0
"""How long a condition may be waited for before it is said that it does not come."""

_TICKS = os.sysconf("SC_CLK_TCK")


class StuckError(Exception):
    """What was waited for did not come."""


async def until(done: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait for a condition; `StuckError` names what did not come."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise StuckError(f"waited {seconds:g} s for {what}")
        await asyncio.sleep(0.02)


def environment(settings: Settings) -> dict[str, str]:
    """Of a process of ours that is to have these settings."""
    given = {PREFIX + f.name.upper(): str(getattr(settings, f.name)) for f in fields(Settings)}
    return {**os.environ, **given, "PYTHONPATH": PACKAGES}


class Child:
    """A process on `cores` (none: any) and its log. It dies with us, even when it is stopped by a signal."""

    def __init__(self, command: Sequence[str], log: Path, *, cores: Collection[int] = (), **env: str) -> None:
        self.log, self.started, self.env = log, time.monotonic(), env

        def prepare() -> None:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            if cores:
                os.sched_setaffinity(0, cores)

        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": PACKAGES, **env},
                preexec_fn=prepare,
            )
        self._from = log.stat().st_size

    def send(self, number: int) -> None:
        """A signal, to one that is still there."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def text(self) -> str:
        """What it has said so far."""
        return self.log.read_bytes()[self._from :].decode(errors="replace")

    def said(self, word: str) -> bool:
        """Whether it has said that."""
        return word in self.text()

    def state(self) -> str:
        """As the kernel has it: R, S, T (stopped by a signal), Z."""
        return self._stat()[0]

    def cpu_s(self) -> float:
        """Processor time of all its threads, user and system."""
        found = self._stat()
        return (int(found[11]) + int(found[12])) / _TICKS

    def rss_mb(self) -> float:
        """Resident memory now."""
        return self._status("VmRSS") / 1024

    def peak_mb(self) -> float:
        """The most resident memory that it had."""
        return self._status("VmHWM") / 1024

    async def ended(self, seconds: float = 60.0) -> int:
        """Its exit code, once it has one."""
        await until(lambda: self.process.poll() is not None, f"process {self.process.pid} to end", seconds)
        return int(self.process.returncode)

    async def stop(self) -> tuple[int, float]:
        """Ask it to stop: exit code, and how many seconds it took."""
        start = time.monotonic()
        self.send(signal.SIGTERM)
        return await self.ended(), time.monotonic() - start

    def kill(self) -> None:
        """End it at once."""
        self.send(signal.SIGKILL)
        self.process.wait()

    def _stat(self) -> list[str]:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


class Worker(Child):
    """A worker of `stream-agg worker` with those settings."""

    def __init__(self, settings: Settings, log: Path, *, cores: Collection[int] = (), **env: str) -> None:
        super().__init__([*PROGRAM, "worker"], log, cores=cores, **{**environment(settings), **env})
