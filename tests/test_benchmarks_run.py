"""The scripts in benchmarks/ run, on a small file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent.parent / "benchmarks"


def test_smallest_epsilon(made_up: Path) -> None:
    args = [sys.executable, str(SCRIPTS / "smallest_epsilon.py"), str(made_up), "--rows", "100", "--json"]
    ended = subprocess.run(args, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    first, whole = map(json.loads, ended.stdout.splitlines())
    assert (first["rows"], whole["rows"], whole["silent"]) == (100, 1500, True)
    assert 0 < whole["smallest_epsilon"] < 0.5
