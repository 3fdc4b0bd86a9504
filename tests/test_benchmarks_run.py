"""The scripts in benchmarks/ run, on a small file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent.parent / "benchmarks"


def test_smallest_epsilon(made_up: Path) -> None:
    args = [sys.executable, str(SCRIPTS / "smallest_epsilon.py"), str(made_up), "--rows", "100", "--json"]
    ended = subprocess.run(args, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    first, whole = map(json.loads, ended.stdout.splitlines())
    assert (first["rows"], whole["rows"], whole["silent"]) == (100, 1500, True)
    assert 0 < whole["smallest_epsilon"] < 0.5


def test_hedge() -> None:
    args = [sys.executable, str(SCRIPTS / "hedge.py"), "--smoke", "--json"]
    ended = subprocess.run(args, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["below"] is True
    rows = {tuple(r[name] for name in ("driver", "states", "rate", "delay", "rounds")): r for r in found["rows"]}
    assert len(rows) == len(found["rows"]) == 36
    for (driver, *case, rounds), row in rows.items():
        assert [(c["seed"], c["below"], c["regret"] <= c["bound"]) for c in row["checks"]] == [
            (0, True, True),
            (1, True, True),
        ]
        assert all(0 < c["known"] <= rounds for c in row["checks"])
        if driver == "session":  # the engine's own words are those of the bare learner
            same_figures(row["checks"], rows["direct", *case, rounds]["checks"])


def same_figures(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    for a, b in zip(some, others, strict=True):
        assert a["known"] == b["known"]
        assert abs(a["regret"] - b["regret"]) + abs(a["bound"] - b["bound"]) < 1e-9
