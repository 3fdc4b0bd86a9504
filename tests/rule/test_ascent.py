"""The compiled ascent against HiGHS; and against itself, on other ways to the same counts: the same to the bit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_agg.rule import layout, program
from stream_agg.rule.ascent import Ascent
from stream_agg.rule.solution import Solution
from stream_agg.rule.support import Profile
from stream_agg.spec import Alphabet

AnyProgram = Callable[..., Any]


def bits(found: Solution) -> tuple[bytes, ...]:
    numbers = np.array([found.lower, found.payoff, found.rounds])
    return (found.duals.tobytes(), numbers.tobytes(), found.residual.tobytes(), found.mass.tobytes())


def agree(made: Any) -> None:
    """The ascent's prices are HiGHS's, and its bounds hold and meet."""
    found, other = made.solved(), program.robust(made.support, made.cost, made.gamma, made.epsilon)
    assert made.apart(found.duals, other.duals) <= 1e-9
    assert np.abs(found.duals).max() <= made.gamma
    scale = found.rounds * made.cost.unit
    assert -1e-10 <= (made.upper(found) - found.lower) / scale <= 1e-7
    assert abs(made.upper(found) - made.upper(other)) / scale <= 1e-6
    assert (found.rounds, found.mass.tolist()) == (other.rounds, other.mass.tolist())


@pytest.mark.parametrize("batch", range(10))
def test_prices_agree_with_highs(any_program: AnyProgram, batch: int) -> None:
    for seed in range(200 * batch, 200 * (batch + 1)):
        agree(any_program(seed))


@pytest.mark.parametrize("seed", range(6))
def test_prices_agree_with_highs_on_many_profiles(any_program: AnyProgram, seed: int) -> None:
    agree(any_program(seed, profiles=random.Random(seed).randint(500, 2_000)))


@pytest.mark.parametrize("scale", [1e-6, 1e9])
def test_prices_scale_with_payoffs(any_program: AnyProgram, scale: float) -> None:
    for made in map(any_program, range(300)):
        if not any(made.cost.slopes):
            continue  # whatever is done pays the same: their unit is 1 at every scale
        payoffs = [(u0 * scale, u1 * scale) for u0, u1 in made.payoffs]
        scaled = replace(made, payoffs=payoffs, gamma=made.gamma * scale)
        found, other = made.solved(), scaled.solved()
        assert made.apart(found.duals, other.duals / scale) <= 1e-9
        most = (np.abs(made.payoffs).max() + made.cost.unit) * found.rounds
        assert abs(other.lower / scale - found.lower) <= 1e-9 * most
        assert -1e-10 * most <= (scaled.upper(other) - other.lower) / scale <= 1e-7 * most


@pytest.mark.parametrize("slope", [1e-5, 1e-13, 1e-40, 1e-142, 5e-324])
def test_a_finite_gamma_is_no_hard_constraint(any_program: AnyProgram, slope: float) -> None:
    """However large it is against the slopes: rows that contradict each other have a price then."""
    counts = {(0, 0): 1, (0, 1): 1, (1, 0): 1}
    levels = [(0.1, 0.4)] * 2
    found = replace(
        any_program(0), payoffs=[(0.0, 0.0), (0.0, slope)], alphabets=levels, counts=counts, gamma=1.0, epsilon=0.0
    ).solved()
    # (0.1, 0.4) is to hold 0.4 by one expert and at most 0.2 by the other; so is (0.4, 0.1)
    assert found.excess == pytest.approx(0.4)
    assert found.lower == pytest.approx(0.4, abs=2 * slope + 1e-9)


def arrivals(made: Any, seed: int) -> list[Profile]:
    """Every round by itself, in a random order."""
    rounds = [e for e, n in made.counts.items() for _ in range(int(n))]
    random.Random(seed).shuffle(rounds)
    return rounds


def in_any_order(made: Any, seed: int) -> Ascent:
    ascent: Ascent = made.empty()
    ascent.count(arrivals(made, seed))
    ascent.solve()
    return ascent


def one_by_one(made: Any, seed: int) -> Ascent:
    ascent: Ascent = made.empty()
    for e in arrivals(made, seed):
        ascent.count([e])
        ascent.solve()
    return ascent


def by_chunks(made: Any, seed: int) -> Ascent:
    ascent, left, rng = made.empty(), arrivals(made, seed), random.Random(seed)
    while left:
        ascent.count([left.pop() for _ in range(min(len(left), rng.randint(1, 40)))])
        ascent.solve()
        if rng.random() < 0.3:
            ascent.solution()
    assert isinstance(ascent, Ascent)
    return ascent


def by_other_terms(made: Any, seed: int) -> Ascent:
    """There and back: another gamma and epsilon at some of the counts, another epsilon at all of them."""
    ascent, left, rng = made.empty(), arrivals(made, seed), random.Random(seed)
    for _ in range(2):
        ascent.count([left.pop() for _ in range(rng.randint(0, len(left)))])
        ascent.terms(rng.choice([0.3, 2.0, 50.0]), rng.choice([made.epsilon, 0.03]))
        ascent.solve()
    ascent.count(left)
    for epsilon in (0.5, made.epsilon):
        ascent.terms(made.gamma, epsilon)
        ascent.solve()
    assert isinstance(ascent, Ascent)
    return ascent


def feasible_on_the_way(made: Any) -> Any:
    """Hard rows that the last counts meet need not be met by the first ones."""
    return replace(made, epsilon=max(made.epsilon, 0.5)) if math.isinf(made.gamma) else made


@pytest.mark.parametrize("way", [in_any_order, one_by_one, by_chunks, by_other_terms])
def test_the_way_to_the_counts_leaves_no_bit_behind(any_program: AnyProgram, way: Callable[[Any, int], Ascent]) -> None:
    for seed in range(100):
        made = feasible_on_the_way(any_program(seed))
        assert bits(way(made, seed).solution()) == bits(made.solved()), seed


def stream(made: Any, rounds: int, seed: int, noise: float) -> Iterator[tuple[Ascent, Any]]:
    """The ascent solved after every round, beside its program."""
    rng, ascent, seen = random.Random(seed), made.empty(), dict[Profile, float]()
    alphabets = [Alphabet(z) for z in made.alphabets]
    for _ in range(rounds):
        truth = rng.random()
        e = tuple(a.nearest(min(max(rng.gauss(truth, noise), 0.0), 1.0)) for a in alphabets)
        seen[e] = seen.get(e, 0) + 1
        ascent.count([e])
        ascent.solve()
        yield ascent, replace(made, counts=seen)


@pytest.mark.parametrize("seed", range(6))
def test_every_event_of_a_stream_is_solved_as_if_it_were_the_last(any_program: AnyProgram, seed: int) -> None:
    made = feasible_on_the_way(any_program(seed + 40))
    for ascent, so_far in stream(made, 300, seed, noise=0.2):
        warm, found = ascent.prices(), ascent.solution()
        assert made.apart(warm, found.duals) <= 1e-9
        assert np.abs(found.duals).max() <= made.gamma
        assert bits(found) == bits(so_far.solved())


@pytest.mark.parametrize(("experts", "rounds"), [(2, 2_000), (3, 2_000), (6, 500)])
def test_nothing_jumps_where_the_basis_is_made_anew(any_program: AnyProgram, experts: int, rounds: int) -> None:
    """Matching payoffs and tenths, so that profiles tie. `prices` leaves the edges as they have become; a cold
    solve is made wherever the compiled loop made them anew, and now and then between."""
    grid, last, anew = tuple(k / 10 for k in range(11)), 0, 0
    made = replace(any_program(0), payoffs=[(1.0, 0.0), (0.0, 1.0)], alphabets=[grid] * experts, gamma=1.0, epsilon=0.0)
    for t, (ascent, so_far) in enumerate(stream(made, rounds, experts, noise=0.15), 1):
        prices, again = ascent.prices(), ascent.pivots // layout.REFACTOR > last // layout.REFACTOR
        last, anew = ascent.pivots, anew + again
        assert np.abs(prices).max() <= made.gamma
        if again or t % 97 == 0:
            cold = so_far.solved()
            assert made.apart(prices, cold.duals) <= 1e-9
            assert worth(so_far, prices) == pytest.approx(cold.lower, abs=1e-9 * t)
    assert anew >= 2
    agree(so_far)


def worth(made: Any, prices: Any) -> float:
    """What prices prove where epsilon is 0: sum N phi(s) - sum z N lambda."""
    support = made.support
    return float(support.counts @ made.cost.phi(support.prices(prices)) - prices @ (support.levels * support.mass))
