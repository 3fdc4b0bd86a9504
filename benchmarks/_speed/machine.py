"""The machine and the versions that a figure is of."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from _servers import missing, versions

PACKAGES = ("stream-agg", "faust-streaming", "aiokafka", "numba", "quixstreams", "bytewax", "confluent-kafka")

_LOAD = os.getloadavg()[0]  # as this is imported: of others, before our own begins


def machine() -> dict[str, Any]:
    """For a reader who wants to know what to compare with."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine())
    kilobytes = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "day": datetime.now(UTC).date().isoformat(),
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gb": round(kilobytes / (1 << 20), 1),
        "load": _LOAD,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "servers": None if missing() else versions(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
