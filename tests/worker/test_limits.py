"""Where a worker stops because too many records cannot be used."""

from __future__ import annotations

import pytest

from stream_agg.errors import RefusedError
from stream_agg.worker.limits import WINDOW, Limits


def test_a_run_goes_on_from_batch_to_batch() -> None:
    limits = Limits(5, 0)
    limits.check("forecasts", 0, [True] * 4 + [False] + [True] * 3, "x")
    limits.check("forecasts", 1, [True] * 4, "x")  # another partition has a run of its own
    limits.check("forecasts", 0, [True, False], "x")
    with pytest.raises(RefusedError, match=r"forecasts\[0\]: 5 records in a row .*the last: why.*DEAD_LETTER_RUN=0"):
        limits.check("forecasts", 0, [False, *[True] * 5, False], "why")


def test_the_ratio_is_of_the_latest_records() -> None:
    limits = Limits(0, 0.5)
    limits.check("states", 2, [True] * (WINDOW - 1), "x")  # too few to tell
    limits = Limits(0, 0.5)
    limits.check("states", 2, [True, False] * (WINDOW // 2), "x")
    limits.check("states", 2, [False] * WINDOW, "x")
    limits.check("states", 2, [True, False] * (WINDOW // 2), "x")
    with pytest.raises(RefusedError, match=r"states\[2\]: 1,001 of the last 2,000 records .*DEAD_LETTER_RATIO=0"):
        limits.check("states", 2, [True] * 3, "x")


def test_zero_lets_all_pass() -> None:
    Limits(0, 0).check("forecasts", 0, [True] * 3 * WINDOW, "x")
