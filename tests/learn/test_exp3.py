"""EXP3 divides by the probability it is told, finds the best action, and stays finite."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stream_agg as sa
from stream_agg.learn.exp3 import Estimates, Exp3

Payoffs = list[tuple[float, float]]
number = st.floats(-5, 5, width=32)
tables = st.lists(st.tuples(number, number), min_size=2, max_size=6)


@given(tables, st.lists(st.floats(0.01, 1), min_size=6, max_size=6), st.integers(0, 1))
def test_estimates_have_the_mean_of_the_losses(payoffs: Payoffs, chances: list[float], state: int) -> None:
    exp3, d = Exp3(payoffs), len(payoffs)
    low, high = min(map(min, payoffs)), max(map(max, payoffs))
    weights = chances[:d]
    p = [w / sum(weights) for w in weights]
    mean = [0.0] * d
    for action in range(d):
        known = Estimates()
        exp3.learn(known, action, p[action], payoffs[action][state])
        assert (known.updates, list(known.losses)) == (1, [action])
        mean[action] += p[action] * known.losses[action]
    losses = [(high - u[state]) / (high - low) if high > low else 0.0 for u in payoffs]
    assert mean == pytest.approx(losses, abs=1e-9)


@pytest.mark.parametrize(("horizon", "m"), [(None, 9), (1000, 9), (5, 5)])
def test_weights_and_rates(horizon: int | None, m: int) -> None:
    fields = {"feedback": "payoff", "horizon": horizon, "missing": "reject"}
    experts = {name: {"levels": 3} for name in "xy"}
    actions = {"a": [4.0, 0.0], "b": [0.0, 2.0], "c": [1.0, 1.0]}
    spec = sa.SessionSpec.from_dict({"session": "s", "experts": experts, "actions": actions, **fields})
    exp3, known = Exp3.of(spec), Estimates()
    assert dict(exp3.mix(known)) == pytest.approx(dict.fromkeys(range(3), 1 / 3))
    exp3.learn(known, 1, 0.5, 1.0)
    exp3.learn(known, 1, 0.25, 3.0)
    exp3.learn(known, 2, 0.5, 4.0)
    assert known == Estimates(3, {1: 0.75 / 0.5 + 0.25 / 0.25, 2: 0.0})
    rate = math.sqrt(2 * m * math.log(3) / (3 * horizon)) if horizon else math.sqrt(math.log(3) / (3 * 4))
    weights = [1.0, math.exp(-rate * 2.5), 1.0]
    assert [p for _, p in exp3.mix(known)] == pytest.approx([w / sum(weights) for w in weights])


@given(tables, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), max_size=30), st.integers(-9, 9), number)
def test_scale_and_shift_change_nothing(
    payoffs: Payoffs, played: list[tuple[int, int]], power: int, shift: float
) -> None:
    payoffs = [(round(u0 * 8) / 8, round(u1 * 8) / 8) for u0, u1 in payoffs]  # so that sums are exact
    scale, shift = 2.0**power, round(shift * 8) / 8
    other = [(scale * (u0 + shift), scale * (u1 + shift)) for u0, u1 in payoffs]
    one, two, known, again = Exp3(payoffs), Exp3(other), Estimates(), Estimates()
    for action, state in played:
        a = action % len(payoffs)
        p = dict(one.mix(known)).get(a, 1.0)
        one.learn(known, a, p, payoffs[a][state])
        two.learn(again, a, p, other[a][state])
    assert two.mix(again) == one.mix(known)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 1000), st.sampled_from([None, 1e-6, 1.0]), st.randoms(use_true_random=False))
def test_large_numbers_stay_probabilities(d: int, rate: float | None, rng: random.Random) -> None:
    payoffs = [(rng.uniform(-1e9, 1e9), rng.choice([-1e9, 1e9])) for _ in range(d)]
    exp3, known = Exp3(payoffs, rate), Estimates()
    for _ in range(50):
        mix = exp3.mix(known)
        assert math.fsum(p for _, p in mix) == pytest.approx(1, abs=1e-12)
        action, probability = min(mix, key=lambda item: item[1])  # the least likely there is
        exp3.learn(known, action, probability, payoffs[action][rng.randrange(2)])
    assert all(0 <= x < math.inf for x in known.losses.values())


@pytest.mark.parametrize("horizon", [None, 3000])
def test_it_finds_the_best_action(horizon: int | None) -> None:
    payoffs, n = [(0.0, 1.0), (1.0, 0.0), (0.3, 0.3), (0.0, 0.0)], 3000
    exp3, regrets = Exp3(payoffs, horizon and 1 / horizon), []
    for seed in range(8):
        rng, known, regret = random.Random(seed), Estimates(), 0.0
        for _ in range(n):
            mix = exp3.mix(known)
            regret += 0.7 - sum(p * (0.7 * payoffs[a][1] + 0.3 * payoffs[a][0]) for a, p in mix)
            ((action, p),) = rng.choices(mix, [p for _, p in mix])
            exp3.learn(known, action, p, payoffs[action][rng.random() < 0.7])
        assert dict(exp3.mix(known))[0] > 0.5
        regrets.append(regret)
    constant = math.sqrt(2) if horizon else 2
    assert 0 < sum(regrets) / 8 < constant * math.sqrt(n * 4 * math.log(4))


def test_what_payoffs_are_possible() -> None:
    exp3 = Exp3([(1.0, 0.0), (0.0, 3.0)])
    assert all(map(exp3.possible, (0, 1, 3.0, 2.2, 3.0 + 1e-12, -1e-12)))
    assert not any(map(exp3.possible, (-0.001, 3.001, 1e9)))
    flat = Exp3([(2.0, 2.0)])
    known = Estimates()
    flat.learn(known, 0, 1.0, 2.0)
    assert flat.possible(2.0)
    assert (known, flat.mix(known)) == (Estimates(1, {0: 0.0}), ((0, 1.0),))
