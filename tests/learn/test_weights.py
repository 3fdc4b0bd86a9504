"""Exponents become probabilities at any size; profiles are counted without overflow."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import stream_agg as sa
from stream_agg.learn.weights import NEGLIGIBLE, mixed, profiles_within


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=50))
@example([0.0] * 1000)
@example([1e300, -1e300])
def test_a_mix_is_a_distribution_in_the_order_of_exponents(exponents: list[float]) -> None:
    mix = mixed(exponents)
    assert math.fsum(p for _, p in mix) == pytest.approx(1, abs=1e-12)
    assert [a for a, _ in mix] == sorted({a for a, _ in mix})
    by_action = dict(mix)
    top = max(exponents)
    for a, x in enumerate(exponents):
        share = by_action.get(a, 0.0) / max(by_action.values())
        assert share == pytest.approx(math.exp(x - top), rel=1e-12, abs=NEGLIGIBLE)
        assert (a in by_action) == (math.exp(x - top) > NEGLIGIBLE)


@pytest.mark.parametrize(
    ("missing", "levels", "rounds", "most"),
    [
        ("allow", [2, 3], 1000, 12),
        ("reject", [2, 3], 1000, 6),
        ("allow", [2, 3], 5, 5),
        ("reject", [11] * 12, 10**6, 10**6),
        ("allow", [1001] * 64, 2**62, 2**62),
    ],
)
def test_profiles_within_a_horizon(missing: str, levels: list[int], rounds: int, most: int) -> None:
    experts = {f"x{i}": {"levels": n} for i, n in enumerate(levels)}
    spec = sa.SessionSpec.from_dict({"session": "s", "experts": experts, "actions": {"a": [0, 1]}, "missing": missing})
    assert profiles_within(spec, rounds) == most
