"""The ways into the compiled program that are taken at every event: with all its arrays as one value, since to hand
them over one by one takes longer than most events do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.experimental import structref

from stream_agg.rule import exact, kernel, pivots, slack
from stream_agg.rule.layout import (
    COMPARED,
    HELD,
    OPTIMAL,
    PIVOTS,
    PROFILES,
    PROVEN,
    PUBLISHED,
    VAIN,
    WAIT,
    Floats,
    Ints,
    State,
)
from stream_agg.rule.solution import DECIMALS

SAME = 10.0 ** (1 - DECIMALS)
"""Prices closer than that are the same, in units."""

PATIENCE = 8
"""Pivots that changed no price, after which a proof that needs none is worth its price; after one that failed, so many
times as many."""


@structref.register
class BoxType(types.StructRef):
    """The compiled type of `Box`."""


class Box(structref.StructRefProxy):
    """A `State` as one value."""


structref.define_proxy(Box, BoxType, ["state"])  # type: ignore[no-untyped-call]


@njit(cache=True)
def boxed(state: State) -> Any:
    """The box of a state."""
    return Box(state)  # type: ignore[no-untyped-call]


@njit(cache=True)
def count_each(box: Any, at: Ints) -> None:
    """Count each of these profiles once more; those beyond the ones admitted are new."""
    s, one = box.state, np.ones(1)
    for e in at:
        if e >= s.wholes[PROFILES]:
            kernel.admit(s, s.wholes[PROFILES], e + 1)
        kernel.count(s, e, e + 1, one)
    s.wholes[PROVEN] = 0


@njit(cache=True)
def ascend(box: Any, limit: float) -> int:
    """Pivot to the optimum, with at most so many operations: how it ended."""
    how, _ = pivots.ascend(box.state, limit)
    return how


@njit(cache=True)
def publish(box: Any, v_at: Floats, unit: float, out: Floats) -> tuple[bool, float, float, float]:
    """`exact.publish`; from then on `follow` compares with these prices."""
    s = box.state
    s.wholes[COMPARED], s.wholes[PROVEN], s.wholes[VAIN], s.wholes[WAIT] = s.wholes[PIVOTS], 0, 0, PATIENCE
    return exact.publish(s, v_at, unit, out)


@njit(cache=True)
def follow(box: Any, e: int, limit: float) -> int:
    """Count profile e once more, which may be the next new one. HELD where published prices are optimal still, OPTIMAL
    where the basis is optimal and has others; else how the ascent ended."""
    s = box.state
    if e == s.wholes[PROFILES]:
        kernel.admit(s, e, e + 1)
    kernel.count(s, e, e + 1, np.ones(1))
    if s.wholes[PROVEN]:
        if slack.lasts(s, e):
            return HELD
        s.wholes[PROVEN] = 0
    before = s.wholes[PIVOTS]
    how, _ = pivots.ascend(s, limit)
    if how != OPTIMAL:
        return how
    if s.wholes[PIVOTS] != s.wholes[COMPARED]:
        found = np.empty(s.slot.size + 1)
        exact.prices(s, found)
        if np.abs(found - s.rows[PUBLISHED]).max() > SAME:
            return OPTIMAL
        s.wholes[COMPARED] = s.wholes[PIVOTS]
        s.wholes[VAIN] += s.wholes[PIVOTS] - before
        if s.wholes[VAIN] >= s.wholes[WAIT]:
            s.wholes[PROVEN], s.wholes[VAIN] = slack.establish(s), 0
            s.wholes[WAIT] = PATIENCE if s.wholes[PROVEN] else 2 * s.wholes[WAIT]
    return HELD
