"""An alarm about a calibrated expert is rare, however often one looks."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from stream_agg.monitor.calibration import ALPHA, evidence, off, tolerance

LEVELS = tuple(k / 10 for k in range(11))


@given(st.integers(0, 200), st.integers(0, 200), st.sampled_from(LEVELS[1:-1]))
def test_evidence_is_a_likelihood_ratio(zeros: int, ones: int, level: float) -> None:
    mixed = betabinom(zeros + ones, 1, 1).logpmf(ones)  # all frequencies equally likely: every count is
    chosen = math.log(math.comb(zeros + ones, ones))
    told = ones * math.log(level) + zeros * math.log(1 - level)
    assert evidence(level, zeros, ones) == pytest.approx(mixed - chosen - told, abs=1e-8)


def test_what_cannot_happen_is_certain_evidence() -> None:
    assert evidence(0.0, 10, 1) == evidence(1.0, 1, 10) == math.inf
    assert evidence(0.0, 10, 0) < 0 < evidence(0.5, 0, 40)


def test_a_calibrated_expert_raises_hardly_ever_an_alarm_though_one_looks_after_every_outcome() -> None:
    draw, alarms, sessions = random.Random(3), 0, 400
    for _ in range(sessions):
        zeros, ones = 0, 0
        for _ in range(300):
            state = draw.random() < 0.7
            zeros, ones = zeros + (not state), ones + state
            if off({"gfs": {0.7: (zeros, ones)}}, {}):
                alarms += 1
                break
    assert alarms <= ALPHA * sessions * 2.5  # ten in four hundred: as many have a chance below 1 % at a rate of ALPHA


def test_an_expert_that_is_off_is_found_at_its_worst_level() -> None:
    calibration = {"gfs": {0.3: (70, 30), 0.7: (143, 197)}, "icon": {0.5: (51, 49)}}
    (found,) = off(calibration, {"gfs": LEVELS, "icon": LEVELS})
    assert (found.expert, found.level, found.rounds) == ("gfs", 0.7, 340)
    assert found.frequency == pytest.approx(0.579, abs=1e-3)


def test_few_outcomes_and_rounding_raise_none() -> None:
    assert off({"gfs": {0.7: (3, 2)}}, {"gfs": LEVELS}) == []
    assert off({"gfs": {0.7: (34_500, 65_500)}}, {"gfs": LEVELS}) == []  # certain, but as 0.655 it was rounded to 0.7
    assert off({"gfs": {0.5: (40_000, 60_000)}}, {"gfs": (0.0, 0.5, 1.0)}) == []
    assert off({"gfs": {0.5: (10_000, 90_000)}}, {"gfs": (0.0, 0.5, 1.0)})
    assert off({"gfs": {}}, {}) == []


def test_the_tolerance_is_half_the_distance_to_a_neighbour_and_more_than_nothing() -> None:
    assert tolerance(0.5, (0.0, 0.5, 1.0)) == 0.25
    assert tolerance(0.2, (0.0, 0.2, 1.0)) == pytest.approx(0.4)
    assert tolerance(0.7, tuple(k / 100 for k in range(101))) == 0.05
    assert tolerance(0.9, (0.9,)) == pytest.approx(0.9)
