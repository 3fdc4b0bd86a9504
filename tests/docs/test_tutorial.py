"""The tutorial runs as it stands, in the active environment; `python docs/walk.py` does so in a new one."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def walk() -> dict[str, Callable[..., Any]]:
    return runpy.run_path(str(ROOT / "docs" / "walk.py"))


@pytest.mark.timeout(400)
def test_the_tutorial_runs_word_for_word() -> None:
    env = {**os.environ, "STREAM_AGG_MONITOR_PORT": "0", "STREAM_AGG_HTTP_PORT": "0"}  # others' may be taken
    command = [sys.executable, "docs/walk.py", "--here"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rain: expert gfs is off by " in done.stdout
    assert "equal: 400 actions" in done.stdout
    assert "monitor page: http://127.0.0.1:" in done.stdout


def test_what_is_run_is_what_is_read(walk: dict[str, Callable[..., Any]]) -> None:
    text = (
        "```console\n$ pip install x\n$ cat <<'E'\n$x pip install\nE\n```\n```python\nno\n```\n```console\n$ a b\n```\n"
    )
    assert walk["commands"](text) == "pip install x\ncat <<'E'\n$x pip install\nE\na b"
    assert walk["commands"](text, here=True) == "cat <<'E'\n$x pip install\nE\na b"


def test_a_command_that_fails_ends_it(walk: dict[str, Callable[..., Any]], tmp_path: Path) -> None:
    assert walk["walk"]("false\ntouch after", tmp_path) == 1
    assert walk["walk"]("false | cat\ntouch after", tmp_path) == 1
    assert not (tmp_path / "after").exists()
