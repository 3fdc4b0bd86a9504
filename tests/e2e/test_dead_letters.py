"""Dead letters as an operator meets them: a worker that stops in time, a list, records sent again once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from _deployment import environment, held, worker
from aiokafka import AIOKafkaProducer

from stream_agg.cli import run
from stream_agg.cli.local import PACKAGES
from stream_agg.worker.settings import PREFIX, Settings

SPEC = {"session": "s", "experts": {"a": {"levels": 3}}, "actions": {"stay": [1, 0], "go": [0, 1]}}


def forecast(event: str, **reports: float) -> bytes:
    record = {"session": "s", "event": event, "time": "2026-11-01T00:00:00Z", "forecasts": reports or {"a": 0.5}}
    return orjson.dumps(record)


def send(settings: Settings, *records: tuple[str, bytes]) -> None:
    """(topic, value) of session s."""

    async def sending() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=settings.broker_list)
        await producer.start()
        for topic, value in records:
            await producer.send_and_wait(getattr(settings, f"topic_{topic}"), value, key=b"s")
        await producer.stop()

    asyncio.run(sending())


def until(settings: Settings, topic: str, count: int) -> list[Any]:
    while len(found := held(settings, getattr(settings, f"topic_{topic}"))) < count:
        pass  # pytest-timeout ends it
    return found


@pytest.fixture
def settings(fresh: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch) -> Settings:
    made = fresh(dead_letter_run=40, batch=50)
    environment(made, monkeypatch)
    return made


@pytest.mark.timeout(120)
def test_dead_letters_are_listed_and_sent_again_once(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with worker(settings, tmp_path / "log"):
        send(settings, ("forecasts", forecast("early")), ("forecasts", b"\xff{"))
        until(settings, "dead_letters", 2)
        send(settings, ("sessions", orjson.dumps(SPEC)), ("forecasts", forecast("bad", who=0.5)))
        until(settings, "dead_letters", 3)

        assert run(["dead-letters", "list"]) == 0
        said = capsys.readouterr().out
        assert all(reason in said for reason in ("unknown_session", "bad_json", "unknown_expert", "3: "))
        assert run(["dead-letters", "list", "--json", "--reason", "bad_json"]) == 0
        (bad,) = orjson.loads(capsys.readouterr().out)
        assert (bad["topic"], bad["offset"], bad["session"]) == (settings.topic_forecasts, 1, "s")
        assert run(["dead-letters", "list", "--json", "--until", "2020-01-01T00:00:00Z"]) == 0
        assert orjson.loads(capsys.readouterr().out) == []

        choice = ["dead-letters", "redrive", "--reason", "unknown_session", "--json"]
        assert run([*choice, "--dry-run"]) == 0
        assert orjson.loads(capsys.readouterr().out)["sent"] == 0
        assert held(settings, settings.topic_actions) == []
        assert run(choice) == 0
        assert orjson.loads(capsys.readouterr().out)["sent"] == 1
        (action,) = until(settings, "actions", 1)
        assert orjson.loads(action.value)["event"] == "early"
        assert run(choice) == 0
        again = orjson.loads(capsys.readouterr().out)
        assert (again["sent"], again["sent_before"]) == (0, 1)
        assert run(["dead-letters", "list", "--json"]) == 0
        assert len(orjson.loads(capsys.readouterr().out)) == 2

        assert run(["dead-letters", "redrive", "--offset", bad["place"]]) == 0  # its fault is in itself
        until(settings, "dead_letters", 6)  # three, two marks, and it once more
    assert run(["verify"]) == 0


def test_what_is_misused_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dead-letters", "redrive"]) == 2
    assert "--all" in capsys.readouterr().err
    assert run(["dead-letters", "list", "--offset", "seven"]) == 2
    assert run(["dead-letters", "list", "--since", "yesterday"]) == 2
    assert run(["dead-letters", "list", "--brokers", "127.0.0.1:1"]) == 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.timeout(120)
def test_a_worker_stops_before_it_drains_a_topic_into_dead_letters(settings: Settings, tmp_path: Path) -> None:
    send(settings, ("sessions", orjson.dumps(SPEC)))
    send(settings, *[("forecasts", forecast(f"e{k}", other=0.5)) for k in range(300)])
    env = {"PYTHONPATH": PACKAGES, "PATH": ""}
    env |= {PREFIX + name.upper(): str(getattr(settings, name)) for name in Settings.__slots__}
    command = [sys.executable, "-P", "-m", "stream_agg", "worker"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1
    assert "DEAD_LETTER_RUN=0" in ended.stderr.splitlines()[-1]
    assert "unknown_expert" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(held(settings, settings.topic_dead_letters)) <= 40
    with worker(replace(settings, dead_letter_run=0), tmp_path / "log"):
        until(settings, "dead_letters", 300)
