"""`stream-agg replay --topics`: what was decided, decided again; and what would have been."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from _deployment import environment, held, worker

from stream_agg.cli import run
from stream_agg.events import parse_duration
from stream_agg.replay import kafka
from stream_agg.replay.source import Source
from stream_agg.spec import SessionSpec
from stream_agg.worker.broker import create_topics
from stream_agg.worker.settings import Settings

SPEC: dict[str, Any] = {
    "session": "rain",
    "experts": {name: {"levels": 11} for name in ("ecmwf", "gfs", "icon")},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
    "feedback": "state",
    "policy": "robust",
    "schedule": {"growth": 0.2},
    "gamma": 2,
}


@pytest.fixture(scope="module")
def worked(local: Settings, made_up: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A deployment that a worker has gone through, to the end of its session."""
    topics = {f: f"{getattr(local, f)}-again" for f in Settings.__slots__ if f.startswith("topic_")}
    settings = replace(local, app="test-again", partitions=2, **topics)  # type: ignore[arg-type]
    asyncio.run(create_topics(settings))
    with worker(settings, tmp_path_factory.mktemp("again") / "log"):
        delay = parse_duration("P3D")
        asyncio.run(kafka.replay(Source(made_up), SessionSpec.from_dict(SPEC), delay, settings))
    return settings


@pytest.fixture(autouse=True)
def found_by_commands(worked: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(worked, monkeypatch)


def lines(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_all_of_it_gives_the_very_records_that_were_published(worked: Settings, tmp_path: Path) -> None:
    assert run(["replay", "--topics", "--out", str(tmp_path)]) == 0
    for topic, name in ((worked.topic_actions, "actions"), (worked.topic_regret, "regret")):
        published = [record.value for record in held(worked, topic)]
        assert published
        assert (tmp_path / f"{name}.jsonl").read_bytes().splitlines() == published


def test_what_if(worked: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "--topics", "--set", "gamma=8", "--out", str(tmp_path), "--json"]) == 0
    told = orjson.loads(capsys.readouterr().out)
    assert told["actions"] == 1500
    assert told["sessions"][0]["robust"]["gamma"] == 8.0
    assert [a["event"] for a in lines(tmp_path / "actions.jsonl")] == [
        orjson.loads(record.value)["event"] for record in held(worked, worked.topic_actions)
    ]


def test_into_other_topics(worked: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "--topics", "--into", "if-"]) == 1
    assert "--create-topics" in capsys.readouterr().err
    assert run(["replay", "--topics", "--into", "if-", "--create-topics"]) == 0
    again = [record.value for record in held(worked, "if-" + worked.topic_actions)]
    assert again == [record.value for record in held(worked, worked.topic_actions)]
    assert len(held(worked, worked.topic_actions)) == 1500


def test_a_part(worked: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition,) = {record.partition for record in held(worked, worked.topic_actions)}
    bounds = ["--from", f"{partition}:200", "--to", f"{partition}:500"]
    assert run(["replay", "--topics", *bounds, "--dry-run", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["forecasts"] == 300
    assert run(["replay", "--topics", *bounds, "--out", str(tmp_path / "offsets")]) == 0
    decided = lines(tmp_path / "offsets" / "actions.jsonl")
    assert [a["round"] for a in decided] == list(range(1, 301))
    published = [orjson.loads(record.value)["event"] for record in held(worked, worked.topic_actions)]
    assert [a["event"] for a in decided] == published[200:500]
    assert run(["replay", "--topics", "--from", "2000-01-01T00:00:00Z", "--out", str(tmp_path / "times")]) == 0
    assert len(lines(tmp_path / "times" / "actions.jsonl")) == 1500
    assert run(["replay", "--topics", "--from", "2200-01-01T00:00:00Z", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out.splitlines()[-1])["actions"] == 0


def test_a_dry_run_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "--topics", "--dry-run", "--out", str(tmp_path / "out")]) == 0
    assert "1,500 forecasts" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--topics", "feed.csv"],
        ["--topics", "--from", "yesterday"],
        ["--topics", "--out", "a", "--into", "b"],
        ["--from", "2026-01-01T00:00:00Z", "feed.csv"],
        [],
        ["--topics", "--set", "gamma=-1"],
    ],
)
def test_what_is_misused_is_said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
