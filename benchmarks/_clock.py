"""How long work takes on a noisy machine: wall time, and beside it the time that this process had a processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Result = TypeVar("Result")

QUICK_S = 2.0
"""Work that takes less is repeated, `TIMES` in all, and medians are taken; slower work is done once."""

TIMES = 7


@dataclass(frozen=True)
class Spent:
    """Medians over so many `times`, in seconds."""

    wall_s: float
    cpu_s: float
    times: int


def timed(work: Callable[[], Result]) -> tuple[Result, Spent]:
    """What the work gives, and what it takes."""
    walls: list[float] = []
    cpus: list[float] = []
    while True:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        cpus.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - wall)
        if len(walls) == TIMES or walls[0] > QUICK_S:
            return result, Spent(median(walls), median(cpus), len(walls))
