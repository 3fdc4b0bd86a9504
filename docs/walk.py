"""Runs docs/tutorial.md word for word: every command of it, in order, in a copy of this checkout of its own.

`python docs/walk.py` makes a new environment as the tutorial says, and needs a package index for that; with `--here`
the commands that install are left out, and the active environment is used. Fails where a command does, or when all
takes longer than the fifteen minutes that the tutorial promises.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROMISED_S = 900.0
INSTALLS = ("venv", "pip install")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "site", "build", "dist")


def commands(text: str, here: bool = False) -> str:
    """The console blocks of a document as one script; lines without a prompt belong to the command above them."""
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    kept = [line for line in lines if not (here and line.startswith("$ ") and any(word in line for word in INSTALLS))]
    return "\n".join(line.removeprefix("$ ") for line in kept)


def walk(script: str, place: Path) -> int:
    """Run a script of commands in `place`; its exit code. What it leaves running is ended."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shell = ["bash", "-euxo", "pipefail", "-c", script]
    process = subprocess.Popen(shell, cwd=place, env=environment, start_new_session=True)
    try:
        return process.wait(PROMISED_S)
    except subprocess.TimeoutExpired:
        print(f"it takes longer than {PROMISED_S:g} s", file=sys.stderr)
        return 1
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def main() -> int:
    """Exit code."""
    here, started = "--here" in sys.argv, time.monotonic()
    script = commands((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), here)
    with tempfile.TemporaryDirectory(prefix="stream-agg-tutorial-") as home:
        place = Path(home) / "checkout"
        shutil.copytree(ROOT, place, ignore=LEFT_OUT)
        code = walk(script, place)
    print(f"the tutorial {'took' if code == 0 else 'failed after'} {time.monotonic() - started:.0f} s", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
