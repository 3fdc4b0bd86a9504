"""Calibration against scipy: Wilson's intervals, isotonic regression, the Beta posterior."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.stats import beta, binomtest

from stream_agg.learn.calibration import PRIOR, mean_error, observed, recalibrated, wilson

COUNTS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=11)


def grid(size: int) -> list[float]:
    return [k / (size - 1) if size > 1 else 0.5 for k in range(size)]


@pytest.mark.parametrize(("ones", "n"), [(0, 1), (1, 1), (3, 10), (0, 40), (40, 40), (17, 10_000)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.9999])
def test_intervals_are_scipys(ones: int, n: int, confidence: float) -> None:
    theirs = binomtest(ones, n).proportion_ci(confidence, method="wilson")
    assert wilson(n - ones, ones, confidence) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_nothing_is_known_without_rounds() -> None:
    (row,) = observed([0.3], [0], [0])
    assert (row.n, row.frequency, row.low, row.high) == (0, None, 0.0, 1.0)


def test_every_level_is_observed() -> None:
    rows = observed([0.0, 0.5, 1.0], [9, 5, 0], [1, 5, 7])
    assert [row.frequency for row in rows] == [0.1, 0.5, 1.0]
    assert all(row.low <= row.frequency <= row.high for row in rows if row.frequency is not None)


@given(COUNTS)
def test_recalibrated_levels_are_the_isotonic_posterior_means(counts: list[tuple[int, int]]) -> None:
    levels, (zeros, ones) = grid(len(counts)), zip(*counts, strict=True)
    tiny = 1e-12  # a Beta prior has no parameter 0; its mean at the ends of [0, 1] is the limit
    means = [
        beta(n1 + max(PRIOR * z, tiny), n0 + max(PRIOR * (1 - z), tiny)).mean()
        for z, n0, n1 in zip(levels, zeros, ones, strict=True)
    ]
    weights = np.array(zeros) + np.array(ones) + PRIOR
    assert recalibrated(levels, zeros, ones) == pytest.approx(isotonic_regression(means, weights=weights).x, abs=1e-9)


@given(COUNTS)
def test_recalibrated_levels_stay_levels(counts: list[tuple[int, int]]) -> None:
    found = recalibrated(grid(len(counts)), *zip(*counts, strict=True))
    assert all(0 <= z <= 1 for z in found)
    assert list(found) == sorted(found)


def test_without_states_nothing_moves_and_with_many_they_decide() -> None:
    levels = grid(6)
    assert recalibrated(levels, [0] * 6, [0] * 6) == tuple(levels)
    assert recalibrated([0.2, 0.8], [700_000, 400_000], [300_000, 600_000]) == pytest.approx((0.3, 0.6), abs=1e-5)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 300), st.integers(0, 300)), min_size=1))
def test_the_measured_error_is_the_mean_over_rounds(rows: list[tuple[float, int, int]]) -> None:
    each = [abs(n1 / (n0 + n1) - z) for z, n0, n1 in rows for _ in range(n0 + n1)]
    assert mean_error(rows) == pytest.approx(np.mean(each) if each else 0.0, abs=1e-9)


def test_chance_makes_the_measured_error_larger_in_the_mean() -> None:
    drawn = np.random.default_rng(3).binomial(20, [0.25, 0.7], (2000, 2))  # stated: 0.2 and 0.7
    means = [mean_error([(0.2, 20 - a, a), (0.7, 20 - b, b)]) for a, b in drawn.tolist()]
    assert np.mean(means) > 0.025 + 0.02
    assert mean_error([(0.2, 750_000, 250_000), (0.7, 300_000, 700_000)]) == pytest.approx(0.025)
