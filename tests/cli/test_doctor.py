"""`doctor` and `completion` as a user meets them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from stream_agg.cli import run
from stream_agg.worker.broker import create_topics
from stream_agg.worker.settings import Settings


def arguments(settings: Settings) -> list[str]:
    return ["doctor", "--brokers", settings.brokers, "--redis-url", settings.redis_url]


def test_doctor_shows_findings_with_their_remedies(local: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(create_topics(local))
    assert run(arguments(local)) == 0
    text = capsys.readouterr().out
    assert "ok    broker" in text
    assert "warn  persistence" in text
    assert "-> redis-cli config set appendonly yes" in text
    assert run([*arguments(local), "--json"]) == 0
    findings = orjson.loads(capsys.readouterr().out)
    assert {"check", "state", "found", "remedy"} == set(findings[0])
    assert len(findings) == len([line for line in text.splitlines() if not line.startswith(" ")])


def test_doctor_fails_where_servers_are_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--brokers", "127.0.0.1:1", "--redis-url", "redis://127.0.0.1:1"]) == 1
    assert capsys.readouterr().out.count("bad ") == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_taken_by_their_shells(shell: str, tmp_path: Path) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "stream_agg", "completion", shell], capture_output=True, text=True, check=True
    ).stdout
    assert "stream-agg" in script
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here to try the script in")
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_what_the_scripts_ask_for_is_answered() -> None:
    env = {**os.environ, "_STREAM_AGG_COMPLETE": "bash_complete", "COMP_WORDS": "stream-agg do", "COMP_CWORD": "1"}
    ask = "import sys; sys.argv[0] = 'stream-agg'; from stream_agg.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,doctor"]
