"""Backup and restore as an operator does them: export under load, wipe, import, and the tail is replayed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from _deployment import environment, worker
from redis import Redis

from stream_agg.cli import run
from stream_agg.replay.tap import Tap
from stream_agg.store.backup import Backup
from stream_agg.worker.settings import Settings

SPEC: dict[str, Any] = {
    "session": "rain",
    "experts": {"ecmwf": {"levels": 11}, "gfs": {"levels": 5}},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
    "feedback": "state",
    "policy": "robust",
    "schedule": {"growth": 0.2},
}


@pytest.fixture
def settings(fresh: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch) -> Settings:
    made = fresh(batch=20)
    environment(made, monkeypatch)
    return made


async def feed(settings: Settings, start: int, end: int, wait: bool = True, states: bool = False) -> int:
    """Events of that number; the session's partition."""
    async with Tap(settings, lambda *_: None) as tap:
        partition = await tap.send(settings.topic_sessions, "rain", SPEC)
        for k in range(start, end):
            at = f"2026-{1 + k // 28:02d}-{1 + k % 28:02d}T00:00:00Z"
            record = {"session": "rain", "event": f"e{k}", "time": at}
            reports = {"ecmwf": k % 11 / 10, "gfs": k % 3 / 4}
            await tap.send_soon(settings.topic_forecasts, "rain", {**record, "forecasts": reports})
            if states:
                await tap.send_soon(settings.topic_states, "rain", {**record, "state": k * 7 % 3 % 2})
        await tap.flush()
        if wait:
            await tap.until_drained([settings.topic_forecasts, settings.topic_states], partition, lambda: None)
        return partition


async def held(settings: Settings, partition: int) -> Any:
    store = Backup(settings.redis_url, settings.app)
    try:
        return (await store.snapshot(partition)).sessions
    finally:
        await store.close()


@pytest.mark.timeout(150)
def test_a_wiped_redis_is_put_back_and_the_tail_replayed(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = str(tmp_path / "backup.jsonl")
    with worker(settings, tmp_path / "log"):
        asyncio.run(feed(settings, 0, 60, states=True))
        asyncio.run(feed(settings, 60, 120, wait=False))  # and the worker is at it
        assert run(["session", "export", backup]) == 0
        partition = asyncio.run(feed(settings, 120, 200))
        assert run(["session", "list", "--json"]) == 0
        capsys.readouterr()
    before = asyncio.run(held(settings, partition))

    assert run(["session", "import", backup]) == 1
    assert "--overwrite" in capsys.readouterr().err
    with Redis.from_url(settings.redis_url) as redis:
        redis.delete(*redis.scan_iter(f"{{{settings.app}:*"))
    assert run(["session", "list"]) == 0
    assert capsys.readouterr().out == "no sessions\n"
    assert run(["session", "import", backup, "--dry-run"]) == 0
    assert run(["session", "import", backup, "--json"]) == 0
    told = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["written"]
    assert told["sessions"] == 1
    assert run(["session", "show", "rain", "--json"]) == 0
    shown = orjson.loads(capsys.readouterr().out)
    assert 60 <= shown["rounds"] < 200
    assert shown["next_offsets"][settings.topic_forecasts] == shown["rounds"]

    with worker(settings, tmp_path / "log"):
        deadline = time.monotonic() + 60
        while asyncio.run(held(settings, partition)) != before:
            assert time.monotonic() < deadline, "the tail was not replayed to the same state"
    assert run(["verify", "--json"]) == 0
    verdict = orjson.loads(capsys.readouterr().out)
    assert verdict["actions"] == 200
    assert verdict["repeats"] > 0


@pytest.mark.timeout(150)
def test_states_of_the_tail_meet_the_forecasts_as_they_did(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = str(tmp_path / "backup.jsonl")
    with worker(settings, tmp_path / "log"):
        asyncio.run(feed(settings, 0, 60, states=True))
        assert run(["session", "export", backup]) == 0
        for start in range(60, 200, 20):  # the worker takes what is there by then, in an order of its own
            partition = asyncio.run(feed(settings, start, start + 20, states=True, wait=start % 3 == 0))
        partition = asyncio.run(feed(settings, 200, 210, states=True))
    before = asyncio.run(held(settings, partition))
    with Redis.from_url(settings.redis_url) as redis:
        redis.delete(*redis.scan_iter(f"{{{settings.app}:*"))
    assert run(["session", "import", backup, "--catch-up"]) == 0
    assert asyncio.run(held(settings, partition)) == before
    with worker(settings, tmp_path / "log"):
        asyncio.run(feed(settings, 210, 230, states=True))
    capsys.readouterr()
    assert run(["verify", "--json"]) == 0
    verdict = orjson.loads(capsys.readouterr().out)
    assert (verdict["actions"], verdict["divergence"]) == (230, None)


def test_what_there_is_to_see(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with worker(settings, tmp_path / "log"):
        asyncio.run(feed(settings, 0, 10))
    assert run(["session", "list"]) == 0
    assert "rain" in capsys.readouterr().out
    assert run(["session", "show", "rain"]) == 0
    said = capsys.readouterr().out
    assert "counters:" in said
    assert "next_offsets:" in said
    assert run(["session", "show", "nobody"]) == 1
    assert "session list" in capsys.readouterr().err
    assert run(["session", "export", "-"]) == 0
    assert orjson.loads(capsys.readouterr().out.splitlines()[0])["format"] == "stream-agg sessions"


def test_what_is_no_backup_is_said_before_anything_is_touched(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = [b'{"format":"stream-agg sessions","schema":1,"partitions":1}', b'{"partition":0,"epoch":1,"meta":{}}']
    for text in (b"", b"[1]", b"\n".join(whole), whole[0], whole[0].replace(b":1,", b":99,")):
        (tmp_path / "x.jsonl").write_bytes(text)
        assert run(["session", "import", str(tmp_path / "x.jsonl")]) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert run(["session", "import", str(tmp_path / "none.jsonl")]) == 2
    assert run(["session", "export", str(tmp_path / "no" / "such" / "folder")]) == 2
    assert run(["session", "list", "--redis-url", "redis://127.0.0.1:1/0"]) == 1
    assert run(["session", "list", "--redis-url", "http://x"]) == 2
