"""A proof that published prices are still optimal, kept from round to round without a pivot.

Prices lambda are optimal where the adversary has an answer rho that they allow, and that calls for none to move:

    lo_e <= rho(e) <= hi_e, the slopes of phi at the price of e (one slope, but where the price is at a kink), and
    residual_j >= epsilon N_j where lambda_j = gamma, <= -epsilon N_j where it is -gamma, between them where it is 0,

with residual_j the sum of N (rho - z) over row j. They are the only optimal ones where the first two hold with room to
spare (complementary slackness). So one rho with room is kept; a round more takes from n rows at most 1 of it. Where a
price is strictly between 0 and gamma there is no room, and no such proof.

Where thousands of profiles are at a kink, as on equal grids, a vertex has no room at all: nearly every round would take
some pivots, only to come back to the same prices.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from stream_agg.rule.exact import answers
from stream_agg.rule.kernel import gather, regrade
from stream_agg.rule.layout import (
    EPSILON,
    GAMMA,
    LEVEL,
    MASS,
    NEXT,
    PROFILES,
    PUBLISHED,
    RESIDUAL,
    Floats,
    Ints,
    State,
)
from stream_agg.rule.solution import DEAD

TIED = 1e-9
"""A price closer to a kink is at it: published ones are rounded."""

SPARE = 10 * DEAD
"""The room that is more than any dead zone."""

EASE, SHARE = 1.0, 0.25
"""The room a row wants: so many rounds, or that share of the most that it could have. Wanting more leaves less to rows
that have little."""

CHUNK = 256
"""Profiles that are gone through between two looks at all rows."""

TO_FIND, TO_KEEP = 20, 6
"""Times that all profiles are gone through for a proof, and to mend one, at most."""


@njit(cache=True)
def slopes(tau: Floats, rho: Floats, price: float) -> tuple[float, float]:
    """The lowest and the highest slope of phi at a price."""
    seg = 0
    while seg < tau.size and tau[seg] < price - TIED:
        seg += 1
    high = rho[seg]
    while seg < tau.size and tau[seg] <= price + TIED:
        seg += 1
    return rho[seg], high


@njit(cache=True)
def price_of(published: Floats, at: Ints, e: int) -> float:
    """The published price of a profile."""
    price: float = 0.0
    for i in range(at.shape[1]):
        price += published[at[e, i]]
    return price


@njit(cache=True)
def margins(s: State, j: int) -> tuple[float, float]:
    """Between what a row's residual has to be. Nothing is between where its price is no kink."""
    price, dead = s.rows[PUBLISHED, j], s.reals[EPSILON] * s.rows[MASS, j]
    if price == 0.0:
        return -dead - DEAD / 4, dead + DEAD / 4
    if price >= s.reals[GAMMA] - TIED:
        return dead + SPARE, np.inf
    if price <= TIED - s.reals[GAMMA]:
        return -np.inf, -dead - SPARE
    return np.inf, -np.inf


@njit(cache=True)
def lasts(s: State, e: int) -> bool:
    """Whether the proof covers one round more with profile e, which is counted already. The round ends half way between
    what it may; then profiles make room, in turn, until every row has some."""
    r, at, residual, k = s.slot.size, s.at, s.rows[RESIDUAL], s.wholes[PROFILES]
    least, most = slopes(s.tau, s.rho, price_of(s.rows[PUBLISHED], at, e))
    s.ones[e] += (least + most) / 2
    for i in range(at.shape[1]):
        if at[e, i] < r:
            residual[at[e, i]] += (least + most) / 2 - s.rows[LEVEL, at[e, i]]
    ease(s, e, e + 1)
    for _ in range(TO_KEEP * (k // CHUNK + 1)):
        if sound(s):
            return True
        first = s.wholes[NEXT] if s.wholes[NEXT] < k else 0
        s.wholes[NEXT] = first + CHUNK
        ease(s, first, min(first + CHUNK, k))
    return sound(s)


@njit(cache=True)
def establish(s: State) -> bool:
    """From the answer of an optimal basis to one with room, if there is any."""
    r, k, at, rho, counts, place, price = s.slot.size, s.wholes[PROFILES], s.at, s.rho, s.counts, s.place, s.pull
    residual, ones, y = s.rows[RESIDUAL], s.ones, np.empty(s.slot.size)
    for j in range(r):
        if s.rows[MASS, j] > 0 and margins(s, j)[0] == np.inf:
            return False
    regrade(s)
    if not answers(s, y):
        return False
    for j in range(r):
        residual[j] = -s.rows[LEVEL, j] * s.rows[MASS, j]
    price[:k] = 0.0
    gather(s, s.codes, k, s.rows[PUBLISHED], price)
    for e in range(k):
        low, high = slopes(s.tau, rho, price[e])
        ones[e] = y[place[1, e]] if place[1, e] >= 0 else counts[e] * rho[place[0, e]]
        ones[e] = min(max(ones[e], counts[e] * low), counts[e] * high)
        for i in range(at.shape[1]):
            residual[at[e, i]] += ones[e]
    residual[r] = 0.0
    for _ in range(TO_FIND):
        moved = ease(s, 0, k)
        if sound(s):
            return True
        if moved < 1e-3:
            break
    return False


@njit(cache=True)
def ease(s: State, first: int, last: int) -> float:
    """Coordinate descent: each of profiles first..last-1 whose price is at a kink ends in what its rows lack least by,
    in squared shares of the room they want. How far all went."""
    r, at, counts, residual, ones = s.slot.size, s.at, s.counts, s.rows[RESIDUAL], s.ones
    published, level, mass, moved = s.rows[PUBLISHED], s.rows[LEVEL], s.rows[MASS], 0.0
    for e in range(first, last):
        least, most = slopes(s.tau, s.rho, price_of(published, at, e))
        if least == most:
            continue
        down, up = counts[e] * least - ones[e], counts[e] * most - ones[e]
        pull, rows = 0.0, 0.0
        for i in range(at.shape[1]):
            j = at[e, i]
            if j == r:
                continue
            low, high = margins(s, j)
            if low > -np.inf:
                room, lack = residual[j] - low, min(EASE, SHARE * (1 - level[j]) * mass[j]) + 1e-3
                if lack > room:
                    pull, rows = pull + (lack - room) / lack**2, rows + 1 / lack**2
            if high < np.inf:
                room, lack = high - residual[j], min(EASE, SHARE * level[j] * mass[j]) + 1e-3
                if lack > room:
                    pull, rows = pull - (lack - room) / lack**2, rows + 1 / lack**2
            if high - low < 8 * SPARE:
                rows = 0.0
                break
        if rows > 0.0:
            step = min(max(pull / rows, down), up)
            ones[e] += step
            moved += abs(step)
            for i in range(at.shape[1]):
                if at[e, i] < r:
                    residual[at[e, i]] += step
    return moved


@njit(cache=True)
def sound(s: State) -> bool:
    """Whether every row is where it has to be."""
    for j in range(s.slot.size):
        if s.rows[MASS, j] > 0:
            low, high = margins(s, j)
            if not low <= s.rows[RESIDUAL, j] <= high:
                return False
    return True
