"""The process between us and a server: it ends the server when we are gone, whatever ended us, and tidies up.

Run by path, as `python -I -S guard.py PARENT DIRECTORY COMMAND...`; the standard library only, nothing of this package
(`-m` would import the package, and numpy with it, for each server). What it is told and tells:

stdin   the read end of a pipe only the parent can write to; its end means stop
stdout  one line of JSON, `{"pid": ..., "home": ...}` or `{"fault": ...}`; its end means the server has ended

`home` is a temporary directory with the server's output (`log`), removed at the end; the server works there if
DIRECTORY is empty. It is made here and not by the parent: a parent killed at any moment leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

_GRACE_S = 2.0  # both servers end within milliseconds of SIGTERM; a stuck one holds the terminal no longer than this
_PARENT_CHECK_S = 1.0  # only matters when a forked child of the parent holds the pipe open
_PR_SET_PDEATHSIG = 1


def main(parent: int, directory: str, command: list[str]) -> None:
    """Run `command` until the process `parent` closes our stdin or is gone, or SIGTERM comes; leave nothing behind."""
    wake = _wake_on_signals()
    home: str | None = None
    server: subprocess.Popen[bytes] | None = None
    try:
        home = tempfile.mkdtemp(prefix="stream-agg-")
        server = _launch(command, directory or home, Path(home, "log"))
        _tell({"pid": server.pid, "home": home})
        _wait(parent, wake, server)
    except BrokenPipeError:
        pass  # the parent was gone before it could be told
    except OSError as e:
        with contextlib.suppress(BrokenPipeError):
            _tell({"fault": str(e)})
    finally:
        if server is not None:
            _end(server)
        if home is not None:
            shutil.rmtree(home, ignore_errors=True)


def _wake_on_signals() -> int:
    """A descriptor that becomes readable, with the signal's number, on SIGCHLD and SIGTERM."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return reader


def _launch(command: list[str], directory: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        os.dup2(output.fileno(), 2)  # our own last words belong there too, and the parent's terminal is let go
        return subprocess.Popen(
            command,
            cwd=directory,
            # Settings come from the command line alone: the broker would also read STORAGE_ENGINE and its like.
            env={"NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_dies_with_us(),
        )


def _dies_with_us() -> Callable[[], None] | None:
    """What the server calls before exec so that it is killed when this process is; None where that cannot be had."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes  # absent from some builds of Python

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    guard = os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:  # it died before the call above: no signal will come any more
            os._exit(1)

    return bind


def _tell(message: dict[str, object]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _wait(parent: int, wake: int, server: subprocess.Popen[bytes]) -> None:
    """Return when it is time to end. A server that ends by itself is reported, its log kept until then."""
    told = False
    while True:
        ready, _, _ = select.select([0, wake], [], [], _PARENT_CHECK_S)
        if 0 in ready or os.getppid() != parent:
            return
        if wake in ready and signal.SIGTERM in os.read(wake, 64):
            return
        if not told and server.poll() is not None:
            os.close(1)
            told = True


def _end(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is not None:
        return
    server.terminate()
    try:
        server.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
