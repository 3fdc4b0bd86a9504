"""The logistic pool: a mean at first, then what states say; the same in any order."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from stream_agg.learn.logistic import SURE, LogisticPool, inputs
from stream_agg.learn.squint import Floats


def array(*reports: float | None) -> Floats:
    return np.array(reports, dtype=np.float64)


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def fitted(distort: float, bias: float, states: int, seed: int = 0) -> tuple[float, float]:
    """(sum of weights, b) of a pool of two that hears log-odds `distort` times too large and off by `bias`."""
    pool, rng = LogisticPool(2), random.Random(seed)
    known = pool.nothing()
    for _ in range(states):
        truth = rng.uniform(0.05, 0.95)
        told = [1 / (1 + math.exp(-distort * logit(truth) - bias + rng.gauss(0, 0.1))) for _ in range(2)]
        pool.learn(known, array(*told), pool.log_odds(known, array(*told)), int(rng.random() < truth))
    first, second, bias_found = pool.weights(known).tolist()
    return first + second, bias_found


def test_it_starts_as_the_mean_of_log_odds() -> None:
    pool = LogisticPool(3)
    assert pool.log_odds(pool.nothing(), array(0.2, 0.5, 0.9)) == pytest.approx((logit(0.2) + logit(0.9)) / 3, abs=1e-9)
    assert inputs(array(0.2, None, 0.8)).tolist() == pytest.approx([logit(0.2), 0.0, logit(0.8), 1.0])
    assert inputs(array(None, None, None)).tolist() == [0.0, 0.0, 0.0, 1.0]
    assert inputs(array(0.0, 1.0, 0.5)).tolist() == pytest.approx([logit(SURE), logit(1 - SURE), 0.0, 1.0])


@pytest.mark.parametrize(("distort", "factor"), [(0.5, 2.0), (1.0, 1.0), (2.0, 0.5)])
def test_it_learns_to_extremise(distort: float, factor: float) -> None:
    weights, bias = fitted(distort, 0.0, 4000)
    assert weights == pytest.approx(factor, rel=0.15)
    assert abs(bias) < 0.15


def test_it_takes_a_bias_out() -> None:
    weights, bias = fitted(1.0, 1.0, 4000)
    assert (weights, bias) == (pytest.approx(1.0, rel=0.15), pytest.approx(-1.0, abs=0.15))


def test_it_trusts_who_knows() -> None:
    pool, rng = LogisticPool(2), random.Random(2)
    known = pool.nothing()
    for _ in range(2000):
        truth = rng.uniform(0.02, 0.98)
        x = array(truth, rng.uniform(0.02, 0.98))
        pool.learn(known, x, pool.log_odds(known, x), int(rng.random() < truth))
    knowing, guessing, _ = pool.weights(known)
    assert knowing > 0.8
    assert abs(guessing) < 0.15


def test_a_surprise_does_not_turn_it_over() -> None:
    """All say 0.02, and it happens: the next 0.02 of all is still no better than even odds."""
    pool = LogisticPool(8)
    known, x = pool.nothing(), array(*[0.02] * 8)
    pool.learn(known, x, pool.log_odds(known, x), 1)
    assert logit(0.02) < pool.log_odds(known, x) < 0.0


def test_order_leaves_no_trace() -> None:
    pool, rng = LogisticPool(3), random.Random(3)
    events = [(array(*[rng.random() for _ in range(3)]), rng.uniform(-3, 3), rng.randrange(2)) for _ in range(100)]

    def learned(order: Sequence[int]) -> tuple[list[list[int]], list[int]]:
        known = pool.nothing()
        for i in order:
            pool.learn(known, *events[i])
        return known.curvature.tolist(), known.pull.tolist()

    assert learned(rng.sample(range(100), 100)) == learned(range(100))
