"""The paper's benchmarks: definitions enumerated on tiny cases. Its propositions are in test_theorems."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import stream_agg as sa

Levels = tuple[float | None, ...]
PAYOFFS = [(1.0, 0.0), (0.6, 0.6), (0.0, 1.5)]


@pytest.mark.parametrize("seed", range(20))
def test_hindsight_by_trying_every_map(make_spec: Any, seed: int) -> None:
    rng = random.Random(seed)
    spec = make_spec([2, 3], PAYOFFS)
    reports: list[list[float | None]] = [[0.0, 1.0, None], [0.0, 0.5, 1.0, None]]
    profiles = rng.sample(list(product(*reports)), 5)
    outcomes = {e: (rng.randint(0, 9), rng.randint(0, 9)) for e in profiles}

    def payoff(choices: dict[Any, int], key: Callable[[Levels], Any]) -> float:
        return sum(
            n0 * PAYOFFS[choices[key(e)]][0] + n1 * PAYOFFS[choices[key(e)]][1] for e, (n0, n1) in outcomes.items()
        )

    def best_map(keys: list[Any], key: Callable[[Levels], Any]) -> float:
        maps = product(range(len(PAYOFFS)), repeat=len(keys))
        return max(payoff(dict(zip(keys, m, strict=True)), key) for m in maps)

    b = sa.benchmarks(spec, dict.fromkeys(profiles, 1), outcomes)
    single = [best_map(reports[i], lambda e, i=i: e[i]) for i in (0, 1)]  # type: ignore[misc]
    assert b.optimal_in_hindsight == pytest.approx(max(single))
    assert b.contextual == pytest.approx(best_map(profiles, lambda e: e))


def test_what_is_not_given_is_none(make_spec: Any) -> None:
    spec = make_spec([11, 11], [(1, 0), (0, 1)])
    b = sa.benchmarks(spec, {(0.4, 0.4): 10})
    assert (b.optimal_in_hindsight, b.contextual, b.bayesian) == (None, None, None)
    assert b.robust == pytest.approx(6.0)
    assert b.epsilon_min == 0.0


def test_contradicting_forecasts_have_no_hard_benchmark(make_spec: Any) -> None:
    spec = make_spec([11, 11], [(1, 0), (0, 1)], gamma=3)
    b = sa.benchmarks(spec, {(0.4, 0.6): 10}, outcomes={(0.4, 0.6): (5, 5)}, prior=0.5)
    assert b.robust is None
    assert b.epsilon_min == pytest.approx(0.1)
    assert b.optimal_in_hindsight == b.contextual == 5.0
    assert b.bayesian == pytest.approx(5.0)
    with pytest.raises(sa.InfeasibleError) as caught:
        sa.benchmarks(replace(spec, gamma=math.inf), {(0.4, 0.6): 10})
    assert caught.value.epsilon_min == pytest.approx(0.1)
    enough = sa.benchmarks(replace(spec, epsilon=0.1), {(0.4, 0.6): 10})
    assert enough.robust == pytest.approx(5.0)


def test_outcomes_may_cover_only_some_rounds(make_spec: Any) -> None:
    spec = make_spec([11], [(1, 0), (0, 1)])
    b = sa.benchmarks(spec, {(0.4,): 10, (0.9,): 5}, outcomes={(0.41,): (2, 1), (0.4,): (1, 0)})
    assert b.optimal_in_hindsight == b.contextual == 3.0
    nothing = sa.benchmarks(spec, {(0.4,): 10}, outcomes={(0.4,): (0, 0)})
    assert nothing.optimal_in_hindsight == nothing.contextual == 0.0


@pytest.mark.parametrize(
    ("profile", "rho"),
    [
        ((0.25, 0.75), 0.5),
        ((None, None), 0.5),
        ((0.25, None), 0.25),
        ((1.0, 0.25), 1.0),
        ((0.0, 0.25), 0.0),
        ((0.0, 1.0), 0.5),
        ((0.75, 0.75), 0.9),
    ],
)
def test_the_bayesian_answer_with_silence_and_certainty(make_spec: Any, profile: Levels, rho: float) -> None:
    spec = make_spec([5, 5], [(0, 1)])  # one action that pays the chance of state 1
    assert sa.benchmarks(spec, {profile: 8}, prior=0.5).bayesian == pytest.approx(8 * rho)


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, math.nan])
def test_a_prior_that_is_no_chance_is_refused(make_spec: Any, prior: float) -> None:
    with pytest.raises(ValueError, match="prior"):
        sa.benchmarks(make_spec([5], [(0, 1)]), {(0.5,): 1}, prior=prior)


def test_no_rounds_at_all(make_spec: Any) -> None:
    b = sa.benchmarks(make_spec([5], [(0, 1)]), {}, outcomes={}, prior=0.5)
    assert (b.robust, b.optimal_in_hindsight, b.contextual, b.bayesian, b.epsilon_min) == (0.0, 0.0, 0.0, 0.0, 0.0)


def test_a_bigger_prior_moves_every_uncertain_answer_down(make_spec: Any) -> None:
    """rho* falls in q for n >= 2: every forecast already contains the prior, so it is divided out n - 1 times."""
    spec = make_spec([5, 5], [(0, 1)])
    answers = [sa.benchmarks(spec, {(0.25, 0.5): 1}, prior=q).bayesian for q in np.linspace(0.1, 0.9, 9)]
    assert all(a > b for a, b in pairwise(answers))  # type: ignore[operator]
