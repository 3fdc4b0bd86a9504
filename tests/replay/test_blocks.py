"""The block bootstrap against plain resampling, and against what is known of an autoregression."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_agg.replay.blocks import RESAMPLES, SEED, Blocks


def naive(times: list[int], values: list[float]) -> np.ndarray:
    """Means of the same resamples, event by event."""
    moments = sorted(set(times))
    length = next(n for n in range(1, len(moments) + 1) if n**3 >= len(moments))
    starts = np.random.default_rng(SEED).integers(0, len(moments), (RESAMPLES, -(-len(moments) // length)))
    by_time = {t: [x for s, x in zip(times, values, strict=True) if s == t] for t in moments}
    means = []
    for row in starts.tolist():
        picked = [x for s in row for j in range(length) for x in by_time[moments[(s + j) % len(moments)]]]
        means.append(np.mean(picked))
    return np.array(means)


def test_it_is_the_resampling_it_says_it_is() -> None:
    rng = np.random.default_rng(1)
    times, values = sorted(rng.integers(0, 9, 40).tolist()), rng.normal(size=40)
    found, means = Blocks(np.array(times)).mean(values), naive(times, values.tolist())
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(np.quantile(means, (0.025, 0.975)))
    assert found.error == pytest.approx(means.std(ddof=1))


def test_events_of_one_time_count_as_one() -> None:
    """Twenty copies of an event know no more than it."""
    values = np.random.default_rng(2).normal(size=300)
    once = Blocks(np.arange(300)).mean(values)
    often = Blocks(np.repeat(np.arange(300), 20)).mean(np.repeat(values, 20))
    assert (often.low, often.high, often.error) == pytest.approx((once.low, once.high, once.error))


def test_independent_times_have_the_textbook_error() -> None:
    values = np.random.default_rng(3).normal(size=4000)
    assert Blocks(np.arange(4000)).mean(values).error == pytest.approx(values.std() / 4000**0.5, rel=0.1)


def test_times_that_go_together_widen_the_interval() -> None:
    """An autoregression of 0.7 has sqrt(1.7 / 0.3) = 2.4 times the error of independent draws; blocks of the cube root
    find most of that, single draws none."""
    rng, series = np.random.default_rng(4), [0.0]
    for shock in rng.normal(size=4000):
        series.append(0.7 * series[-1] + shock)
    values = np.array(series[1:])
    ratio = (Blocks(np.arange(4000)).mean(values).error or 0) / (values.std() / 4000**0.5)
    assert 1.9 < ratio < 2.5


def test_intervals_hold_their_level() -> None:
    rng, inside = np.random.default_rng(5), 0
    for _ in range(200):
        values = np.repeat(rng.normal(size=100), 3) + 0.2 * rng.normal(size=300)
        found = Blocks(np.repeat(np.arange(100), 3)).mean(values)
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 0 <= found.high
    assert 180 <= inside <= 198  # 95 %, less a little for blocks of five


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.integers(1, 5))
def test_the_interval_holds_the_values_and_a_paired_difference_of_nothing_is_nothing(
    values: list[float], per_time: int
) -> None:
    blocks, series = Blocks(np.arange(len(values)) // per_time), np.array(values)
    found, nothing = blocks.mean(series), blocks.mean(series - series)
    if found.low is not None and found.high is not None:
        assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
        assert (nothing.mean, nothing.low, nothing.high, nothing.error) == (0.0, 0.0, 0.0, 0.0)


def test_a_single_time_has_no_interval() -> None:
    found = Blocks(np.zeros(5, dtype=np.int64)).mean(np.arange(5.0))
    assert (found.mean, found.low, found.high, found.error) == (2.0, None, None, None)
