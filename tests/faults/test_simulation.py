"""The made-up worlds: nothing breaks in them, they are the same each time, and a planted bug shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from _faults.bugs import BUGS
from _faults.simulation import quiet, seeds_until_found, simulate


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    """Says nothing meanwhile, and afterwards what it said before."""
    loggers = [logging.getLogger(name) for name in ("stream_agg", "asyncio")]
    levels = [logger.level for logger in loggers]
    quiet()
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_nothing_breaks_in_a_hundred_worlds() -> None:
    did = {}
    for seed in range(100):
        world = simulate(seed, programs=seed % 20 == 0)
        assert world.faults == [], f"seed {seed}"
        did |= world.did
    assert {"deaths", "moved", "frozen", "answer lost", "commit fenced", "commit stale", "not acknowledged"} <= set(did)


def test_a_world_is_its_seed() -> None:
    first, again = simulate(7), simulate(7)
    assert (first.out, first.did) == (again.out, again.did)
    assert first.out != simulate(8).out


@pytest.mark.parametrize("bug", [bug.name for bug in BUGS])
def test_a_planted_bug_is_found(bug: str) -> None:
    assert seeds_until_found(bug, 0) is not None
    assert simulate(0).faults == []  # and is gone
