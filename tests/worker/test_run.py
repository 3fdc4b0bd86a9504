"""A worker's start: what it does before the first record."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = """
import asyncio, sys
from stream_agg.errors import UnavailableError
from stream_agg.worker.run import run
from stream_agg.worker.settings import Settings

before = "scipy.special" in sys.modules
try:
    asyncio.run(run(Settings(brokers="127.0.0.1:1", kafka_timeout_s=0.1), asyncio.Event()))
except UnavailableError:
    print(before, "scipy.special" in sys.modules)
"""


@pytest.mark.timeout(120)
def test_a_worker_has_its_slow_imports_behind_it_before_it_meets_a_broker() -> None:
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout.split() == ["False", "True"], done.stderr
