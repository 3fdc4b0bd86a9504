"""What the processes of a deployment listen on, as the system tells it, is what the document says."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stream_agg.cli.local import WorkerProcess, _child
from stream_agg.embedded.servers import free_port
from stream_agg.monitor.server import _Page
from stream_agg.monitor.view import View
from stream_agg.watch.observer import Observer
from stream_agg.watch.serve import _app
from stream_agg.worker.settings import Settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"\| `(stream-agg [a-z -]+)` \| ([\d.]+):(\d+) \| ([^|]+) \|")


def table() -> dict[str, tuple[str, int, set[str]]]:
    """The document's rows: process -> address, port, paths."""
    rows = ROW.findall((ROOT / "docs" / "security.md").read_text())
    return {name: (host, int(port), set(paths.split())) for name, host, port, paths in rows}


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses and ports on which a process takes TCP connections, as `ss -ltnp` shows them."""
    mine = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            mine.add(str(handle.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    found = set()
    for version in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{version}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in mine:  # LISTEN
                host, port = words[1].split(":")
                found.add((".".join(str(b) for b in reversed(bytes.fromhex(host))), int(port, 16)))
    return found


def until_it_listens(pid: int) -> set[tuple[str, int]]:
    deadline = time.monotonic() + 60
    while not (found := listening(pid)):
        assert time.monotonic() < deadline, "nothing listens"
        time.sleep(0.05)  # the system can only be asked
    return found


@pytest.fixture
def processes(fresh: Callable[..., Settings]) -> Iterator[dict[str, tuple[int, int]]]:
    """A worker and a monitor page: process -> pid, port it was given."""
    settings = fresh(http_port=free_port(), monitor_port=free_port())
    worker, page = WorkerProcess(settings), _child(settings, "monitor", "--web")
    try:
        yield {
            "stream-agg worker": (worker.pid, settings.http_port),
            "stream-agg monitor --web": (page.pid, settings.monitor_port),
        }
    finally:
        worker.stop()
        page.terminate()
        page.wait(30)
        if page.stdin:
            page.stdin.close()


def test_nothing_listens_but_what_the_document_says(processes: dict[str, tuple[int, int]]) -> None:
    said = table()
    assert set(said) == set(processes)
    for name, (pid, port) in processes.items():
        assert until_it_listens(pid) == {(said[name][0], port)}


def test_the_document_says_the_defaults_and_every_path() -> None:
    default = Settings()
    served = {
        "stream-agg worker": (default.http_bind, default.http_port, _app(Observer(), True, "")),
        "stream-agg monitor --web": (default.monitor_bind, default.monitor_port, asyncio.run(_page())),
    }
    for name, (host, port, app) in served.items():
        paths = {route.resource.canonical for route in app.router.routes() if route.resource is not None}
        assert table()[name] == (host, port, paths)


async def _page() -> object:
    return _Page(replace(Settings()), View()).app()
