"""Every command of the README runs, and its Python prints what it says."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from stream_agg.spec import SessionSpec

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
INSTALLS = "pip install"


def console() -> str:
    """All commands in order, but for the two that install: those are CI's, and a test of the demo's."""
    blocks = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 4
    lines = [line for block in blocks for line in block.splitlines()]
    return "\n".join(line.removeprefix("$ ") for line in lines if INSTALLS not in line)


def test_the_commands_run_as_they_stand(tmp_path: Path) -> None:
    here = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", console()],  # noqa: S607 # the shell of whoever reads it
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "report" / "report.html").exists()
    assert ended.stdout.count("robust regret") == 2


def test_the_python_prints_what_it_says() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, {})  # noqa: S102 # our own README
    first = printed.getvalue().splitlines()[0]
    assert first in code


def test_the_spec_shows_the_defaults() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    shown = json.loads(text)
    required = {name: shown[name] for name in ("session", "experts", "actions")}
    assert SessionSpec.from_dict(shown) == SessionSpec.from_dict(required)
    assert set(shown) == set(SessionSpec.from_dict(shown).to_dict())


@pytest.mark.parametrize("command", ["stream-agg demo", "pytest"])
def test_the_two_commands_are_there(command: str) -> None:
    assert f"]' && {command}\n```" in README
