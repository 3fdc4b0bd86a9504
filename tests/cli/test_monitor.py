"""The monitor in a terminal, for programs, and beside a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import orjson
import pytest

from stream_agg.cli import run
from stream_agg.cli.common import printable
from stream_agg.cli.monitor import table
from stream_agg.events import Forecast, State
from stream_agg.learn.calibration import wilson
from stream_agg.monitor.shown import overview
from stream_agg.monitor.view import View
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec
from stream_agg.worker.publish import AtLeastOnce
from stream_agg.worker.settings import PREFIX, Settings
from stream_agg.worker.wire import Applied, Encoder, Outputs, Row

AT = Applied(0, 0, 0)

SPEC = {
    "session": "paris-rain",
    "experts": {"gfs": {"levels": 11}, "icon": {"levels": 11}},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
    "feedback": "state",
}


def env_of(settings: Settings) -> dict[str, str]:
    return {PREFIX + f.name.upper(): str(getattr(settings, f.name)) for f in fields(Settings)}


@pytest.fixture
def told(fresh: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A deployment whose output topics tell of one session: gfs says 0.7 and is right in 3 of 10; and a dead letter."""
    settings = fresh()
    session, encoder, rows = Session(SessionSpec.from_dict(SPEC)), Encoder(settings), []
    for k in range(200):
        record = {"session": "paris-rain", "event": f"e{k}", "time": "2026-11-21T06:00:00Z"}
        forecast = Forecast.from_record({**record, "forecasts": {"gfs": 0.7, "icon": 0.3}})
        rows += (encoder.row(output, AT) for output in session.forecast(forecast))
        _, known = session.state(State.from_record({**record, "state": int(k % 10 < 3)}))
        rows += [encoder.row(output, AT) for output in known]  # type: ignore[arg-type]
    rows += [encoder.row(session.report(), AT)]
    rows += [Row(settings.topic_dead_letters, "x", b"{", (("reason", "bad_json"), ("detail", "not JSON")))]

    async def publish() -> None:
        publisher = AtLeastOnce(settings)
        await publisher.start()
        await publisher.publish(0, Outputs("", 0, rows))
        await publisher.stop()

    asyncio.run(publish())
    for name, value in env_of(settings).items():
        monkeypatch.setenv(name, value)
    return settings


def test_once_shows_a_table(told: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitor", "--once", "--session", "paris-rain"]) == 0
    said = capsys.readouterr().out
    assert "ALARM  no worker is running; no input waits" in said
    assert "ALARM  paris-rain: expert gfs is off by 0.4 at level 0.7 over 200 outcomes" in said
    assert "expert icon" not in said
    assert "1 sessions, 0 closed   200 decisions   0 open   lag 0   workers 0   1 dead letters" in said
    (line,) = [line for line in said.splitlines() if line.startswith("! paris-rain")]
    assert line.split()[3] == "200"
    assert "dead letters: 1 x bad_json" in said
    (level,) = [line.split() for line in said.splitlines() if line.startswith("gfs ")]
    assert level == ["gfs", "0.7", "200", "0.300", "0.241", "0.367"]


def test_once_as_json_is_one_line_with_the_same_numbers(told: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitor", "--once", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    shown = orjson.loads(line)
    (session,) = shown["sessions"]
    assert (session["session"], session["round"], session["states"]) == ("paris-rain", 200, 200)
    (level,) = session["calibration"]["icon"]
    assert level == [0.3, 200, 0.3, *map(pytest.approx, wilson(140, 60))]
    assert shown["totals"]["lag"] == 0
    assert [a["key"] for a in shown["alarms"]] == ["worker", "calibration/paris-rain/gfs"]


def test_a_session_that_is_not_there_is_a_mistake(told: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitor", "--once", "--session", "oslo"]) == 2
    assert capsys.readouterr().err == "stream-agg: no session 'oslo' is told of by the output topics\n"


@pytest.mark.parametrize("args", [["--web", "--once"], ["--web", "--json"], ["--port", "1"], ["--bind", "127.0.0.1"]])
def test_what_does_not_go_together_is_a_mistake(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitor", *args]) == 2
    assert "--web" in capsys.readouterr().err


def test_lines_come_until_it_is_told_to_stop(told: Settings) -> None:
    command = [sys.executable, "-P", "-m", "stream_agg", "monitor", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first, second = (orjson.loads(process.stdout.readline()) for _ in range(2))
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=30)
    assert (process.returncode, complaints) == (0, "")
    assert second["now"] > first["now"]


def test_a_worker_serves_the_page_and_takes_it_with_it(tmp_path: Path) -> None:
    env = {**os.environ, "STREAM_AGG_MONITOR_PORT": "0"}
    command = [sys.executable, "-P", "-m", "stream_agg", "worker", "--embedded", "--create-topics", "--monitor"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = next(line.split()[-1] for line in process.stderr if line.startswith("monitor page: http://127.0.0.1:"))
    with urllib.request.urlopen(address, timeout=10) as page:  # noqa: S310 # our own address
        assert b"stream_agg monitor" in page.read()
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=10)  # noqa: S310


def test_names_have_no_power_over_the_terminal() -> None:
    view = View()
    evil = "rain\x1b[2J\r\n\x07\u202e"
    action = {
        "event": evil, "time": "2026-11-21T06:00:00Z", "round": 1, "action": evil, "strategy": {evil: 1.0},
        "policy": "robust", "rule": {"gap": None},
    }  # fmt: skip
    view.take("action", evil, action, 0.0)
    view.take_dead("p", evil, evil, 0.0)
    for _ in range(10):
        view.take_dead("p", evil, evil, 0.0)
    text = table(overview(view, 0.0))
    assert all(c == "\n" or c.isprintable() for c in text)
    assert text.count("\n") < 12
    assert printable("naïve ✓") == "naïve ✓"
