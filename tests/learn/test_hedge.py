"""Hedge from counts is Algorithm 2, whatever the order and the size of payoffs; its regret stays below its bound."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stream_agg as sa
from stream_agg.learn.hedge import Hedge

Payoffs = list[tuple[float, float]]
Play = Callable[..., tuple[int, float, float]]
number = st.floats(-5, 5, width=32)
tables = st.lists(st.tuples(number, number), min_size=1, max_size=6)
rates = st.one_of(st.none(), st.floats(1e-4, 1.0))  # profiles a round, as in a horizon


def spans(payoffs: Payoffs) -> float:
    return max(max(u) - min(u) for u in zip(*payoffs, strict=True))


def algorithm_2(payoffs: Payoffs, states: Sequence[int], rate: float) -> np.ndarray:
    """One profile's weights, multiplied state by state."""
    weights = np.ones(len(payoffs))
    for s in states:
        weights *= np.exp(rate * np.array([u[s] for u in payoffs]))
        weights /= weights.max()
    return weights / weights.sum()


def dense(mix: Sequence[tuple[int, float]], d: int) -> np.ndarray:
    found = np.zeros(d)
    for a, p in mix:
        found[a] = p
    return found


@settings(deadline=None)
@given(tables, st.lists(st.integers(0, 1), max_size=30), st.integers(1, 40), st.integers(1, 10**6), st.randoms())
def test_the_mix_is_that_of_algorithm_2(
    payoffs: Payoffs, states: list[int], m: int, more: int, rng: random.Random
) -> None:
    horizon, u, d = m + more, spans(payoffs) / 2, len(payoffs)
    if u < 1e-3:
        return
    rng.shuffle(states)
    n1 = sum(states)
    paper = math.sqrt(m * math.log(d) / (2 * horizon)) / u
    found = dense(Hedge(payoffs, m / horizon).mix(len(states) - n1, n1), d)
    assert found == pytest.approx(algorithm_2(payoffs, states, paper), abs=1e-9)
    anytime = math.sqrt(math.log(d) / (len(states) + 1)) / u
    found = dense(Hedge(payoffs).mix(len(states) - n1, n1), d)
    assert found == pytest.approx(algorithm_2(payoffs, states, anytime), abs=1e-9)


@given(tables, rates, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-9, 9), st.integers(-9, 9))
def test_scale_and_what_a_state_adds_to_all_change_nothing(
    payoffs: Payoffs, rate: float | None, n0: int, n1: int, power: int, shift: int
) -> None:
    payoffs = [(round(u0 * 8) / 8, round(u1 * 8) / 8) for u0, u1 in payoffs]  # so that sums are exact
    scale = 2.0**power
    other = [(scale * (u0 + shift), scale * (u1 - 2 * shift)) for u0, u1 in payoffs]
    assert Hedge(other, rate).mix(n0, n1) == Hedge(payoffs, rate).mix(n0, n1)
    assert Hedge(other, rate).bound([n0, n1], 0.0) == scale * Hedge(payoffs, rate).bound([n0, n1], 0.0)


@pytest.mark.parametrize("rate", [None, 1e-9, 1.0])
@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (10**9, 0), (10**9, 10**9), (0, 10**15)])
def test_large_numbers_stay_probabilities(rate: float | None, counts: tuple[int, int]) -> None:
    rng = random.Random(1)
    payoffs = [(rng.uniform(-1e9, 1e9), rng.uniform(-1e9, 1e9)) for _ in range(1000)]
    hedge = Hedge(payoffs, rate)
    mix = hedge.mix(*counts)
    assert math.fsum(p for _, p in mix) == pytest.approx(1, abs=1e-12)
    assert all(0 < p <= 1 for _, p in mix)
    best = max(range(1000), key=lambda a: counts[0] * payoffs[a][0] + counts[1] * payoffs[a][1])
    assert dict(mix)[best] == max(p for _, p in mix)
    assert 0 <= hedge.bound(counts, 0.0) <= 2e9 * sum(counts)


def test_small_differences_of_large_payoffs_keep_their_digits() -> None:
    plain = [(0.0, 1.0), (1.0, 0.0), (0.5, 0.75)]
    large = [(1e9 - 1 + u0, -1e9 + u1) for u0, u1 in plain]
    assert Hedge(large).mix(700_000, 699_000) == Hedge(plain).mix(700_000, 699_000)


@pytest.mark.parametrize("payoffs", [[(3.0, -1.0)], [(2.0, 5.0), (2.0, 5.0)]])
def test_where_there_is_nothing_to_choose(payoffs: Payoffs) -> None:
    for rate in (None, 0.5):
        hedge = Hedge(payoffs, rate)
        assert hedge.mix(7, 4) == tuple((a, 1 / len(payoffs)) for a in range(len(payoffs)))
        assert hedge.bound([7, 4], hedge.delay_cost(2, 9)) == 0


class TestManyProfiles:
    """m = 12^11, far beyond the horizon."""

    @pytest.fixture
    def spec(self) -> sa.SessionSpec:
        experts = {f"x{i}": {"levels": 11} for i in range(11)}
        actions = {"stay": [1.0, 0.0], "prepare": [0.0, 3.0]}
        fields = {"feedback": "state", "policy": "hedge", "horizon": 10_000}
        return sa.SessionSpec.from_dict({"session": "s", "experts": experts, "actions": actions, **fields})

    def test_the_rate_is_that_of_as_many_profiles_as_rounds(self, spec: sa.SessionSpec) -> None:
        payoffs, u = list(spec.actions.values()), 1.5
        found = dense(Hedge.of(spec).mix(2, 1), 2)
        assert found == pytest.approx(algorithm_2(payoffs, [0, 0, 1], math.sqrt(math.log(2) / 2) / u))
        assert found.min() > 0.05  # not yet sure of anything

    def test_its_bound_is_the_theorems(self, spec: sa.SessionSpec) -> None:
        theorem = 2 * 1.5 * math.sqrt(2 * 10_000 * 10_000 * math.log(2))
        assert Hedge.of(spec).bound([1] * 10_000, 0.0) <= theorem
        assert Hedge.of(spec).bound([1000] * 10, 0.0) <= theorem


@settings(deadline=None)
@given(
    tables, st.lists(st.integers(0, 300), min_size=1, max_size=20), st.integers(0, 10), st.integers(0, 5000), st.data()
)
def test_without_delay_the_bound_is_at_most_the_theorems(
    payoffs: Payoffs, states: list[int], unseen: int, left: int, data: st.DataObject
) -> None:
    m, horizon = len(states) + unseen, sum(states) + left
    m, horizon = min(m, max(horizon, 1)), max(horizon, 1)
    known = states if len([n for n in states if n]) <= m else states[:m]
    rate = data.draw(st.sampled_from([None, m / horizon]))
    theorem = 2 * (spans(payoffs) / 2) * math.sqrt(2 * m * horizon * math.log(len(payoffs)))
    assert Hedge(payoffs, rate).bound(known, 0.0) <= theorem * (1 + 1e-12)


class TestBound:
    @settings(deadline=None, max_examples=300)
    @given(payoffs=tables, rate=rates, data=st.data())
    def test_it_holds_for_any_states_in_any_order(
        self, play: Play, payoffs: Payoffs, rate: float | None, data: st.DataObject
    ) -> None:
        n = data.draw(st.integers(1, 40))
        arrivals = data.draw(st.lists(st.one_of(st.none(), st.integers(0, n)), min_size=n, max_size=n))
        states = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
        known, regret, bound = play(Hedge(payoffs, rate), payoffs, arrivals, states)
        assert known == sum(a is not None for a in arrivals)
        assert regret <= bound + 1e-9

    @pytest.mark.parametrize("rate", [None, 1 / 3000])
    @pytest.mark.parametrize("delay", ["none", "fixed", "batches", "heavy"])
    @pytest.mark.parametrize("seed", range(3))
    def test_it_holds_against_an_adversary(self, play: Play, rate: float | None, delay: str, seed: int) -> None:
        rng, n = random.Random(seed), 3000
        payoffs = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(5)] + [(1.5, -1.0), (-1.0, 1.5)]
        later = {
            "none": lambda t: t + 1,
            "fixed": lambda t: t + 20,
            "batches": lambda t: (t // 50 + 1) * 50,
            "heavy": lambda t: t + 1 + int(rng.paretovariate(1.1)),
        }[delay]
        hedge, arrivals = Hedge(payoffs, rate), [later(t) for t in range(n)]
        known, regret, bound = play(hedge, payoffs, arrivals, lambda zero, one: int(one > zero))
        assert known == n
        assert 0 < regret <= bound < hedge.span * n

    @pytest.mark.parametrize("rate", [None, 1 / 100])
    def test_an_out_of_date_mix_can_cost_more_than_the_bound_without_delay(
        self, play: Play, rate: float | None
    ) -> None:
        payoffs = [(1.0, 0.0), (0.0, 1.0)]
        hedge = Hedge(payoffs, rate)
        # All states of 50 rounds come at once, and are then those of the action that was not played.
        arrivals = [(t // 50 + 1) * 50 for t in range(100)]
        known, regret, bound = play(hedge, payoffs, arrivals, lambda zero, one: int(one > zero))
        assert hedge.bound([known], 0.0) < regret <= bound

    def test_what_delay_costs(self) -> None:
        payoffs = [(2.0, 0.0), (0.0, 1.0)]
        for rate in (None, 0.01):
            hedge = Hedge(payoffs, rate)
            assert [hedge.delay_cost(k - 1, k) for k in (1, 7, 10**9)] == [0.0] * 3
            costs = [hedge.delay_cost(100, 100 + k) for k in range(1, 4000)]
            assert costs == sorted(costs)
            assert 0 < costs[1] < costs[-1] == hedge.span == 2.0
            # at worst the change of the mix in these steps, if all states were the same
            for start, steps in ((0, 1), (0, 5), (10, 1), (100, 30)):
                then, now = (dense(hedge.mix(n, 0), 2) for n in (start, start + steps))
                assert hedge.span * (now - then).max() <= hedge.delay_cost(start, start + steps + 1) + 1e-12
