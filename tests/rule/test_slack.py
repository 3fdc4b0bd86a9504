"""Prices that hold by a proof without pivots: they are those of a cold solve, at every event."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_agg.rule import layout, slack
from stream_agg.rule.ascent import Ascent
from stream_agg.rule.support import Profile

AnyProgram = Callable[..., Any]
MATCHING = [(1.0, 0.0), (0.0, 1.0)]


def followed(made: Any, rounds: int, seed: int, noise: float) -> tuple[int, Ascent, Any]:
    """A stream of experts on equal grids, each with a bias of its own and now and then silent: at every event, prices
    are those of a cold solve, or `follow` says that they are no more. How many events a proof has covered."""
    rng, ascent, seen, proven = random.Random(seed), made.empty(), dict[Profile, float](), 0
    bias = [rng.gauss(0, 0.1) for _ in made.alphabets]
    published = np.zeros(sum(map(len, made.alphabets)))
    for _ in range(rounds):
        truth = rng.random() ** 3
        told = [truth + b + noise * rng.gauss(0, 1) for b in bias]
        e = tuple(
            -1 if rng.random() < 0.02 else round(min(max(x, 0.0), 1.0) * (len(z) - 1))
            for x, z in zip(told, made.alphabets, strict=True)
        )
        seen[e] = seen.get(e, 0) + 1
        held = ascent.follow(e)
        if not held:
            published = ascent.solution().duals
        proven += held and bool(ascent._state.wholes[layout.PROVEN])
        so_far = replace(made, counts=seen)
        assert published.tobytes() == so_far.solved().duals.tobytes()
    return proven, ascent, so_far


@pytest.mark.parametrize("epsilon", [0.0, 0.02])
@pytest.mark.parametrize("experts", [3, 5])
def test_prices_that_are_proven_are_the_optimal_ones(any_program: AnyProgram, experts: int, epsilon: float) -> None:
    grid = tuple(k / 4 for k in range(5))
    made = replace(any_program(0), payoffs=MATCHING, alphabets=[grid] * experts, gamma=1.0, epsilon=epsilon)
    proven, ascent, so_far = followed(made, 600, experts, noise=0.15)
    assert proven >= 50
    if ascent._state.wholes[layout.PROVEN]:
        is_a_proof(ascent, so_far)


@pytest.mark.parametrize("seed", range(20))
def test_any_program_is_followed(any_program: AnyProgram, seed: int) -> None:
    made = any_program(seed + 300)
    made = replace(made, epsilon=max(made.epsilon, 0.5)) if math.isinf(made.gamma) else made
    followed(made, 100, seed, noise=0.2)


def is_a_proof(ascent: Ascent, made: Any) -> None:
    """What is kept is an answer that the prices allow and that asks for no others, by sums of its own."""
    state, support = ascent._state, made.support
    ones = {e: state.ones[at] for e, at in ascent._index.items()}
    rho = np.array([ones[tuple(e)] for e in support.profiles.tolist()]) / support.counts
    duals = ascent.prices()
    price = support.prices(duals)
    worth = made.cost.value(rho) + price * rho
    assert np.abs(worth - made.cost.phi(price)).max() <= 1e-8  # rho answers the prices
    residual, margin = support.residuals(rho), made.epsilon * support.mass
    assert np.abs(residual - state.rows[layout.RESIDUAL, :-1]).max() <= 1e-9 * support.total
    for j in np.flatnonzero(support.mass):
        off = residual[j] * np.sign(duals[j]) - margin[j] if duals[j] else margin[j] - abs(residual[j])
        assert off >= (slack.SPARE / 2 if duals[j] else -1e-9)
