"""V, phi and best responses against brute force over rho and over all pairs of actions."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from stream_agg.rule.envelope import Envelope, envelope

NEAR = 1e-7  # prices within 1e-8 of a kink count as on it, slopes go up to 10

payoff = st.one_of(st.integers(-3, 3).map(float), st.floats(-5, 5, width=32))
lines = st.lists(st.tuples(payoff, payoff), min_size=1, max_size=8)
price = st.one_of(st.integers(-7, 7).map(float), st.floats(-12, 12))
check = settings(deadline=None, derandomize=True, max_examples=150)


def corners(table: list[tuple[float, float]]) -> list[float]:
    """Every rho at which V can bend, and a grid."""
    crossings = [
        (b[0] - a[0]) / ((a[1] - a[0]) - (b[1] - b[0])) for a, b in combinations(table, 2) if a[1] - a[0] != b[1] - b[0]
    ]
    return [*np.linspace(0, 1, 41), *[x for x in crossings if 0 <= x <= 1]]


def best(table: list[tuple[float, float]], rho: float) -> float:
    return max((1 - rho) * u0 + rho * u1 for u0, u1 in table)


@check
@given(lines)
def test_V_is_the_best_line_everywhere(table: list[tuple[float, float]]) -> None:
    rhos = np.array(corners(table))
    assert envelope(table).value(rhos) == pytest.approx([best(table, x) for x in rhos], abs=NEAR)


@check
@given(lines, price)
def test_phi_is_the_least_of_price_plus_V(table: list[tuple[float, float]], s: float) -> None:
    least = min(x * s + best(table, x) for x in corners(table))
    assert float(envelope(table).phi(np.array(s))) == pytest.approx(least, abs=NEAR)


@check
@given(lines, price)
def test_the_response_attains_phi_and_none_is_better(table: list[tuple[float, float]], s: float) -> None:
    found = envelope(table)
    mix = found.respond(s)
    weights = [w for _, w in mix]
    assert 1 <= len(mix) <= 2
    assert min(weights) > 0
    assert sum(weights) == pytest.approx(1.0, abs=1e-12)
    u0 = sum(w * table[a][0] for a, w in mix)
    u1 = sum(w * table[a][1] for a, w in mix)
    assert min(u0, u1 + s) == pytest.approx(float(found.phi(np.array(s))), abs=NEAR)


@check
@given(lines, price)
def test_phi_is_the_value_of_the_game_at_that_price(table: list[tuple[float, float]], s: float) -> None:
    # max y over (x, y): y <= x.u0, y <= x.u1 + s, x a mixed action
    u = np.array(table).T
    rows = np.hstack([-u, np.ones((2, 1))])
    cost = np.append(np.zeros(len(table)), -1.0)
    simplex = np.append(np.ones(len(table)), 0.0)[None, :]
    box = [*[(0, None)] * len(table), (None, None)]
    game: Any = linprog(cost, A_ub=rows, b_ub=[0.0, s], A_eq=simplex, b_eq=[1.0], bounds=box)
    assert float(envelope(table).phi(np.array(s))) == pytest.approx(-game.fun, abs=NEAR)


@check
@given(lines)
def test_the_segments_are_in_order_and_cover_everything(table: list[tuple[float, float]]) -> None:
    found = envelope(table)
    assert found.ends[0] == 0.0
    assert found.ends[-1] == 1.0
    assert all(a < b for a, b in zip(found.ends, found.ends[1:], strict=False))
    assert all(a < b for a, b in zip(found.slopes, found.slopes[1:], strict=False))
    assert len(found.actions) == len(found.slopes) == len(found.ends) - 1
    assert [table[a][1] - table[a][0] for a in found.actions] == list(found.slopes)


def test_of_equal_lines_the_first_stays_and_dominated_ones_go() -> None:
    found = envelope([(0.4, 0.4), (1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.9)])
    assert found == Envelope(actions=(1, 3), slopes=(-1.0, 1.0), ends=(0.0, 0.5, 1.0), v0=1.0)


def test_three_lines_through_one_point_need_only_two() -> None:
    assert envelope([(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)]).actions == (0, 2)


@pytest.mark.parametrize("off", [0.0, 1e-12, -1e-12, 1e-6, -1e-6])
def test_next_to_a_kink_only_rounding_is_ignored(off: float) -> None:
    found = envelope([(1.0, 0.0), (0.0, 3.0)])
    mix = found.respond(-3.0 + off)
    assert mix == (((0, pytest.approx(off / 4)), (1, pytest.approx(1 - off / 4))) if off > 1e-8 else ((1, 1.0),))


def test_the_mix_makes_the_adversary_indifferent() -> None:
    table = [(1.0, 0.0), (0.0, 3.0)]
    ((first, p), (second, q)) = envelope(table).respond(-1.0)
    assert (first, second) == (0, 1)
    assert (p, q) == pytest.approx((0.5, 0.5))  # x.(u1 - u0) = -p + 3 q = 1
