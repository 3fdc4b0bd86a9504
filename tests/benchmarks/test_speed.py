"""The scripts that measure speed run in their small form, do all the work, and claim nothing of so short a time."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from _servers import missing

SCRIPTS = Path(__file__).parent.parent.parent / "benchmarks"

real = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]


def run(script: str, *args: str) -> dict[str, Any]:
    """What the script found; it checks itself that every event was done, and counted once."""
    command = [sys.executable, str(SCRIPTS / script), *args, "--smoke", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=850)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["claims"] == {}
    assert found["machine"]["cores"] >= 1
    return found


class TestThroughput:
    pytestmark = real

    def test_every_program_that_is_installed_does_the_job(self) -> None:
        found = run("throughput.py")
        there = {"stream_agg", "stream_agg exactly_once", "Faust with a Table"}
        for module, names in {
            "quixstreams": ("quixstreams", "quixstreams, no changelog", "quixstreams exactly_once"),
            "bytewax": ("bytewax",),
        }.items():
            there |= set(names) if find_spec(module) else set()
        assert set(found["rows"]) == there
        for row in found["rows"].values():
            assert row["events_per_s"] > 0
            assert row["cpu_us"] > 0
            assert row["peak_mb"] > 10


class TestLatency:
    pytestmark = real

    def test_the_worker_and_the_echo_answer_every_event(self) -> None:
        found = run("latency.py")
        assert [(r["program"], r["rate"]) for r in found["rows"]] == [
            (name, rate) for name in ("echo", "stream_agg") for rate in (100, 1000)
        ]
        for row in found["rows"]:
            assert row["events"] == row["rate"] * 2 * 0.9
            assert 0 <= row["p50_ms"] <= row["p99_ms"] <= row["p99.9_ms"]


class TestScaleOfWorkers:
    pytestmark = real

    def test_workers_and_a_backlog(self) -> None:
        parts = run("scale.py", "workers", "backlog")["parts"]
        assert [(row["partitions"], row["workers"]) for row in parts["workers"]] == [(1, 1), (2, 1), (2, 2)]
        assert [len(row["shares"]) for row in parts["workers"]] == [1, 1, 2]
        assert sum(parts["workers"][-1]["shares"]) == pytest.approx(1)
        backlog = parts["backlog"][0]
        assert len(backlog["rss_mb"]) == len(backlog["at_s"]) == 10
        assert all(row["cpu_us"] > 0 for row in parts["workers"])


def test_scale_of_the_engine() -> None:
    parts = run("scale.py", "experts", "decisions", "profiles", "replay")["parts"]
    assert [row["experts"] for row in parts["experts"]] == [2, 8]
    for row in parts["experts"] + parts["profiles"]:
        assert row["cpu_us"] == pytest.approx(sum(row["steps"].values()))
        assert min(cost for step, cost in row["steps"].items() if step != "learn") > 0
    assert [row["profiles"] for row in parts["profiles"]] == [100, 1000]
    assert all(row["solve_s"] > 0 for row in parts["profiles"])
    (decisions,) = parts["decisions"]
    assert decisions["open"] == 2000
    assert decisions["held_bytes"] > 50  # an id, a profile, an action
    assert [row["rows"] for row in parts["replay"]] == [2000] * 3


def test_the_page_is_what_the_figures_give() -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPTS / "performance.py"), "--check"], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_page_of_nothing_is_refused_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "performance.py"), "--from", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "throughput.json" in ended.stderr
