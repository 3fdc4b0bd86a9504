"""`stream-agg verify` on what a worker process published, through a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from _deployment import environment, worker
from aiokafka import AIOKafkaProducer

from stream_agg.cli import run
from stream_agg.events import parse_duration
from stream_agg.replay import kafka
from stream_agg.replay.source import Source
from stream_agg.spec import SessionSpec
from stream_agg.worker.settings import Settings

SPEC: dict[str, Any] = {
    "session": "rain",
    "experts": {name: {"levels": 11} for name in ("ecmwf", "gfs", "icon")},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
    "feedback": "state",
    "policy": "robust",
    "schedule": {"growth": 0.2},
}


@pytest.fixture
def worked(fresh: Callable[..., Settings], made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A deployment whose worker died at every fail point on the way; the environment points to it."""
    settings = fresh(batch=100)
    monkeypatch.setenv("STREAM_AGG_FAIL_AT", "after_publish:3")
    with worker(settings, tmp_path / "log") as process:
        monkeypatch.setenv("STREAM_AGG_FAIL_AT", "after_commit:4")
        spec, delay = SessionSpec.from_dict(SPEC), parse_duration("P3D")
        outcome = asyncio.run(kafka.replay(Source(made_up), spec, delay, settings))
        assert process.starts > 2
        assert outcome.actions == 1500
    environment(settings, monkeypatch)
    return settings


def test_a_worker_that_died_again_and_again_published_what_its_inputs_give(
    worked: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", "--json"]) == 0
    verdict = orjson.loads(capsys.readouterr().out)
    assert (verdict["equal"], verdict["divergence"], verdict["pending"]) == (True, None, 0)
    assert verdict["actions"] == 1500
    assert verdict["repeats"] > 50
    assert verdict["events"] > 2800

    async def spoil() -> int:
        producer = AIOKafkaProducer(bootstrap_servers=worked.broker_list)
        await producer.start()
        value, headers = b'{"session":"rain"}', [("forecast_offset", b"7"), ("specs_seen", b"1")]
        sent = await producer.send_and_wait(worked.topic_actions, value, key=b"rain", headers=headers)
        await producer.stop()
        return int(sent.offset)

    offset = asyncio.run(spoil())
    assert run(["verify", "--jobs", "2"]) == 1
    said = capsys.readouterr().out
    assert f"diverged: {worked.topic_actions}[" in said
    assert f"] offset {offset}: " in said
    assert run(["verify", "--json"]) == 1
    assert orjson.loads(capsys.readouterr().out)["divergence"]["offset"] == offset


def test_without_a_broker_one_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--brokers", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("stream-agg: no Kafka broker answers at 127.0.0.1:1 ")
    assert run(["verify", "--brokers", "nowhere"]) == 2
