"""The main job end to end: forecasts in through Kafka, actions and regret out, state in Redis, workers that die."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import orjson
import pytest
from _deployment import worker

from stream_agg.cli.local import WorkerProcess
from stream_agg.embedded import RedisServer
from stream_agg.events import parse_duration
from stream_agg.replay import files, kafka
from stream_agg.replay.files import Outcome
from stream_agg.replay.source import Source
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec
from stream_agg.store.redis import RedisStore
from stream_agg.worker.settings import Settings

DELAY_US = parse_duration("P7D")


def spec_for(path: Path, levels: int = 11, growth: float = 0.05) -> SessionSpec:
    return SessionSpec.from_dict(
        {
            "session": path.name.split(".")[0],
            "experts": {name: {"levels": levels} for name in Source(path).experts},
            "actions": {"stay": [1, 0], "prepare": [0, 3]},
            "feedback": "state",
            "policy": "robust",  # what it does hangs on no state: the two topics may be read in any order
            "schedule": {"growth": growth},
        }
    )


def through(settings: Settings, path: Path, spec: SessionSpec, out: Path) -> Outcome:
    return asyncio.run(kafka.replay(Source(path), spec, DELAY_US, settings, out))


def close_to(a: Any, b: Any) -> bool:
    """Equal, floats to 1e-9 relative or absolute."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close_to(a[k], b[k]) for k in a)
    if isinstance(a, float) or isinstance(b, float):
        return a == pytest.approx(b, rel=1e-9, abs=1e-9)
    return a == b


def ids(out: Path) -> set[str]:
    return {orjson.loads(line)["event"] for line in (out / "actions.jsonl").read_bytes().splitlines()}


def check(outcome: Outcome, out: Path, by_file: Outcome, path: Path) -> None:
    rows = Source(path).count()
    assert outcome.actions == rows == len(ids(out))
    assert outcome.refused == {}
    assert close_to(outcome.final, by_file.final)
    assert outcome.calibration == by_file.calibration


def test_a_made_up_feed_gives_the_regret_of_the_file_replay(
    fresh: Callable[..., Settings], made_up: Path, tmp_path: Path
) -> None:
    settings, spec = fresh(), spec_for(made_up)
    with worker(settings, tmp_path / "log"):
        outcome = through(settings, made_up, spec, tmp_path / "out")
    check(outcome, tmp_path / "out", files.replay(Source(made_up), spec, DELAY_US), made_up)
    assert outcome.repeats == 0


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows", "growth"),
    [
        ("flusight_trend_7m", 13_448, 0.05),
        ("solar_c1_6m", 713, 0.05),
        ("flusight_up_14m_gaps", 14_062, 0.5),  # fewer solves: profiles never repeat here, and HiGHS takes seconds
    ],
)
def test_real_forecasts_give_the_regret_of_the_file_replay(
    fresh: Callable[..., Settings], data: Callable[[str], Path], tmp_path: Path, name: str, rows: int, growth: float
) -> None:
    path, settings = data(name), fresh()
    spec = spec_for(path, growth=growth)
    with worker(settings, tmp_path / "log"):
        outcome = through(settings, path, spec, tmp_path / "out")
    assert outcome.actions == rows
    check(outcome, tmp_path / "out", files.replay(Source(path), spec, DELAY_US), path)


def killing(process: WorkerProcess, settings: Settings, spec: SessionSpec, rows: int, times: int) -> threading.Thread:
    """Kills the worker whenever another share of the rounds is in Redis."""

    async def rounds(store: RedisStore) -> int:
        for partition in range(settings.partitions):
            tables = await store.load(partition, spec.session)
            if tables is not None:
                return Session.from_tables(tables).counters.round
        return 0

    async def run() -> None:
        store = RedisStore(settings.redis_url, settings.app)
        try:
            for k in range(times):
                deadline = time.monotonic() + 120
                while await rounds(store) < rows * k // times:
                    assert time.monotonic() < deadline, "the worker does not get on"
                    await asyncio.sleep(0.02)
                process.kill()
                while process.starts < k + 2:  # a share that is there already must not find the dead one again
                    assert time.monotonic() < deadline, "the worker is not started again"
                    await asyncio.sleep(0.02)
        finally:
            await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    return thread


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.data)])
def test_a_worker_killed_five_times_ends_in_the_same_state(
    fresh: Callable[..., Settings], made_up: Path, data: Callable[[str], Path], tmp_path: Path, real: bool
) -> None:
    path = data("flusight_trend_7m") if real else made_up
    spec, settings = spec_for(path), fresh(batch=500 if real else 50)
    with worker(settings, tmp_path / "log") as process:
        killer = killing(process, settings, spec, Source(path).count(), 5)
        outcome = through(settings, path, spec, tmp_path / "out")  # raises where a repeat is not the same to the byte
        killer.join()
        assert process.starts == 6
    check(outcome, tmp_path / "out", files.replay(Source(path), spec, DELAY_US), path)


@pytest.mark.parametrize("point", ["before_commit:2", "after_commit:2", "after_publish:2"])
def test_a_worker_that_dies_at_a_fail_point_loses_and_doubles_nothing(
    fresh: Callable[..., Settings], made_up: Path, tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, settings = spec_for(made_up), fresh(batch=200)
    monkeypatch.setenv("STREAM_AGG_FAIL_AT", point)
    with worker(settings, tmp_path / "log") as process:
        monkeypatch.delenv("STREAM_AGG_FAIL_AT")  # the next start lives on
        outcome = through(settings, made_up, spec, tmp_path / "out")
        assert process.starts == 2
    check(outcome, tmp_path / "out", files.replay(Source(made_up), spec, DELAY_US), made_up)
    assert (outcome.repeats > 0) == point.startswith("after_publish")


def test_redis_away_means_a_pause_and_one_line(fresh: Callable[..., Settings], made_up: Path, tmp_path: Path) -> None:
    spec = spec_for(made_up)
    with RedisServer(tmp_path / "redis", appendonly=True) as redis:
        settings = changed(fresh(batch=100), redis_url=redis.url)
        with worker(settings, tmp_path / "log") as process:

            def interrupt() -> None:
                while b"is ours" not in (tmp_path / "log").read_bytes():
                    time.sleep(0.05)
                redis.stop()
                while b"paused" not in (tmp_path / "log").read_bytes():
                    time.sleep(0.05)
                redis.start()

            outage = threading.Thread(target=interrupt)
            outage.start()
            outcome = through(settings, made_up, spec, tmp_path / "out")
            outage.join()
            assert process.starts == 1
    log = (tmp_path / "log").read_text()
    assert log.count("paused, nothing is lost: Redis at") == log.count("resumed") == 1
    assert "[^" not in log  # how mode marks what it says of its services
    check(outcome, tmp_path / "out", files.replay(Source(made_up), spec, DELAY_US), made_up)
