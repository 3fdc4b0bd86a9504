"""The master: its weights by hand, without order, and its bound against states that hate it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from stream_agg.learn.squint import RATES, Floats, Regrets, Squint

PRIOR = [0.5, 0.3, 0.15, 0.05]


def played(
    master: Squint, known: Regrets, rng: random.Random, choose: Callable[[Floats, random.Random], Floats]
) -> float:
    """One event decided and learned at once; the payoff of what was played."""
    w, then = master.weights(known), known.sums.tolist()
    gains = choose(w, rng)
    earned = float(w @ gains)
    master.learn(known, gains - earned, then)
    return earned


def spiteful(w: Floats, rng: random.Random) -> Floats:
    """Whoever weighs most has nothing, the others as it comes."""
    return np.where(w == w.max(), 0.0, [rng.random() for _ in w])


def by_chance(w: Floats, rng: random.Random) -> Floats:
    return np.array([rng.random() * (0.5 + 0.1 * k) for k in range(len(w))])


def test_weights_by_hand() -> None:
    master, known = Squint(PRIOR), Squint(PRIOR).nothing()
    for better in ([0.5, -0.25, 0.0, 0.125], [0.25, -0.5, 0.5, 0.0]):
        master.learn(known, np.array(better), known.sums.tolist())
    regrets, squares = [0.75, -0.75, 0.5, 0.125], [0.3125, 0.3125, 0.25, 0.015625]
    weights = [
        p * sum(e * math.exp(e * r - e * e * v) for e in RATES) for p, r, v in zip(PRIOR, regrets, squares, strict=True)
    ]
    assert master.weights(known) == pytest.approx([w / sum(weights) for w in weights], abs=1e-11)
    assert known.overlaps.tolist() == [0.0] * 4


def test_those_who_wait_together_count_together() -> None:
    """Four events decided before any of their states: V is the square of their sum, whatever comes first."""
    known, master = Squint(PRIOR).nothing(), Squint(PRIOR)
    block = [[0.5, -0.5, 0.25, 0.0], [0.25, 0.5, 0.0, 0.0], [0.5, -0.5, 0.0, 0.125], [1.0, 0.0, -0.25, 0.0]]
    for better in random.Random(1).sample(block, 4):
        master.learn(known, np.array(better), [0] * 4)
    sums = np.array(block).sum(axis=0)
    squares = (np.array(block) ** 2).sum(axis=0)
    assert known.variances == pytest.approx(np.maximum(sums**2, squares))


@pytest.mark.parametrize("choose", [spiteful, by_chance])
@pytest.mark.parametrize("seed", range(10))
def test_the_bound_without_delay(choose: Callable[[Floats, random.Random], Floats], seed: int) -> None:
    """With nothing measured: log Phi never exceeds 0, and regrets are below twice the root of V times the price."""
    master, rng, earned = Squint(PRIOR), random.Random(seed), 0.0
    known, totals = master.nothing(), np.zeros(4)
    for t in range(1, 1501):
        before = known.sums.copy()
        earned += played(master, known, rng, choose)
        assert master.log_potential(known) <= 1e-9
        totals += (known.sums - before) / 2.0**32
        if t % 300 == 0:
            bounds = master.bounds(known)
            assert (totals <= bounds).all()
            price = np.log(12 / np.array(PRIOR))
            assert (bounds <= 2.13 * np.sqrt(known.variances * price) + 4 * price + 1e-5).all()
    assert totals.max() > 1.0  # somebody is worth following


def test_order_leaves_no_trace() -> None:
    rng, master = random.Random(5), Squint(PRIOR)
    events = [np.array([rng.uniform(-1, 1) for _ in PRIOR]) for _ in range(200)]

    def weights(order: Sequence[int]) -> Floats:
        known = master.nothing()
        for i in order:
            master.learn(known, events[i], [0] * 4)  # all decided before the first state
        return master.weights(known)

    first = weights(range(200))
    for _ in range(5):
        assert weights(rng.sample(range(200), 200)) == pytest.approx(first, abs=1e-12)
    assert first.max() < 1 - 1e-6
