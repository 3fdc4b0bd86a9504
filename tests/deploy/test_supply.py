"""The image is made of locked files alone, and a worker of ours needs neither a writable disk nor a capability."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "deploy" / "requirements.txt").read_text()
PINS = dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", LOCK, re.MULTILINE))


def test_every_package_of_the_image_is_one_version_with_hashes() -> None:
    entries = re.split(r"\n(?=\S)", LOCK)
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert len(packages) == len(PINS) > 20
    for entry in packages:
        assert re.match(r"[a-z0-9._-]+==\S+", entry), entry[:60]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:60]
    assert "://" not in LOCK


def test_the_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for text in (*project["project"]["dependencies"], *project["build-system"]["requires"]):
        wanted = Requirement(text)
        assert Version(PINS[wanted.name.lower()]) in wanted.specifier, f"{text}: run .ci/lock"


def test_the_image_takes_nothing_else() -> None:
    file = (ROOT / "deploy" / "Dockerfile").read_text()
    installs = re.findall(r"pip install (.*)", file)
    assert len(installs) == 2
    assert "--require-hashes -r deploy/requirements.txt" in installs[0]
    assert {"--no-deps", "--no-build-isolation"} <= set(installs[1].split())


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux'")
@pytest.mark.timeout(280)
def test_a_worker_runs_on_a_read_only_file_system_without_any_capability() -> None:
    env = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([ROOT / ".ci" / "sandbox"], env=env, capture_output=True, text=True, timeout=270, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert "CapEff:\t0000000000000000" in done.stderr
    assert "NoNewPrivs:\t1" in done.stderr
    assert "robust regret" in done.stdout
