"""The fault cases in their small form, on real servers: each a run of the script, as a person would run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "faults.py"

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("real"), pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("cases", "delivery"),
    [
        (("1", "3", "14"), "at_least_once"),
        (("1",), "exactly_once"),
        (("6", "10", "11"), "at_least_once"),
        (("13", "16"), "at_least_once"),
    ],
)
def test_small_cases_hold(cases: tuple[str, ...], delivery: str) -> None:
    command = [sys.executable, str(SCRIPT), *cases, "--smoke", "--json", "--delivery", delivery]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=850)
    results = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {result["case"]: result["failing"] for result in results} == {case: {} for case in cases}
    assert all(len(result["invariants"]) > 1 for result in results)
    assert (ended.returncode, ended.stderr) == (0, "")
