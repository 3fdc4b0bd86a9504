"""What is published of an optimal basis: numbers that depend on the basis and on counts, not on the way to it.

The edges carry the rounding of many pivots. So what they say of prices, and of how the basic profiles answer, is
refined against the basis itself with sums in twice the precision, until each number is the one next to the true one.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from stream_agg.rule.kernel import gather, regrade, row_kink
from stream_agg.rule.layout import (
    CENTRE,
    EPSILON,
    GAMMA,
    GRAD,
    LEVEL,
    LISTED,
    MASS,
    PROFILES,
    PUBLISHED,
    RADIUS,
    ROUNDS,
    Floats,
    State,
)
from stream_agg.rule.search import enlist, reach
from stream_agg.rule.solution import DECIMALS, SHIFT

REFINED = 1e-12
"""What is left of a system, in parts of its size, that one more correction by the edges takes to nothing."""

TRIES = 6

HALF_WAY = (math.sqrt(5) - 2) * 2.0**-54


@njit(cache=True)
def plus(high: float, low: float, x: float) -> tuple[float, float]:
    """A sum in two parts, and one term more: what rounding takes from the high part goes to the low one (Knuth)."""
    total = high + x
    part = total - high
    return total, low + ((high - (total - part)) + (x - part))


@njit(cache=True)
def rounded(high: float, low: float, whole: float) -> float:
    """A sum in two parts as a multiple of what numbers next to `whole` differ by. Those half way between two multiples
    are common, and so is nothing at all; what is left of rounding decides neither: the half way is moved to where sums
    of a few numbers never are."""
    far = 1.5 * 2.0 ** np.ceil(np.log2(whole))
    total, rest = plus(far, low, high)
    result: float = total + (rest + far * HALF_WAY) - far
    return result


@njit(cache=True)
def prices(s: State, out: Floats) -> bool:
    """The basic solution without shifts, rounded to ten decimals, in `out` (r+1,). False where the edges are too far
    off to refine it."""
    r, gamma, edges, basic, at = s.slot.size, s.reals[GAMMA], s.edges, s.basic, s.at
    low, left, scale, done = np.zeros(r), np.empty(r), 0.0, False
    out[:] = 0.0
    for _ in range(TRIES):
        worst = 0.0
        for p in range(r):
            what = basic[0, p]
            if what < r:
                high, rest = plus(row_kink(basic[1, p], gamma), -low[what], -out[what])
            else:
                high, rest = s.tau[basic[1, p]], 0.0
                for i in range(at.shape[1]):
                    j = at[what - r, i]
                    if j < r:
                        high, rest = plus(high, rest - low[j], -out[j])
            left[p] = high + rest
            worst = max(worst, abs(left[p]))
        scale = max(scale, worst)  # at first, of the system itself
        for j in range(r):
            change, row = 0.0, edges[j]
            for p in range(r):
                change += row[p] * left[p]
            out[j], low[j] = plus(out[j], low[j], change)
        done = worst <= REFINED * scale
        if done:
            break
    scale = max(scale, 1.0)
    for j in range(r):
        price = min(max(np.round(rounded(out[j], low[j], scale), DECIMALS), -gamma), gamma) + 0.0
        out[j] = price if s.rows[MASS, j] > 0 else 0.0
    return done


@njit(cache=True)
def answers(s: State, y: Floats) -> bool:
    """How often each basic profile ends in state 1, N rho, in `y` (r,) by slots: what leaves nonbasic rows no gradient.
    The gradient is that of exact counts. False where the edges are too far off to refine it."""
    r, grad, edges, basic, slot, at = s.slot.size, s.rows[GRAD], s.edges, s.basic, s.slot, s.at
    low, left, rest, scale, done = np.zeros(r), np.empty(r + 1), np.empty(r + 1), 0.0, False
    y[:] = 0.0
    for _ in range(TRIES):
        left[:r], left[r] = -grad[:r], 0.0
        rest[:] = 0.0
        for p in range(r):
            if basic[0, p] >= r:
                for i in range(at.shape[1]):
                    j = at[basic[0, p] - r, i]
                    left[j], rest[j] = plus(left[j], rest[j] - low[p], -y[p])
        change, worst = np.zeros(r), 0.0
        for j in range(r):
            if slot[j] < 0:
                off, row = left[j] + rest[j], edges[j]
                worst = max(worst, abs(off))
                for p in range(r):
                    change[p] += off * row[p]
        scale = max(scale, worst)
        for p in range(r):
            if basic[0, p] >= r:
                y[p], low[p] = plus(y[p], low[p], change[p])
        done = worst <= REFINED * scale
        if done:
            break
    for p in range(r):
        y[p] = rounded(y[p], low[p], s.reals[ROUNDS])
    return done


@njit(cache=True)
def publish(s: State, v_at: Floats, unit: float, out: Floats) -> tuple[bool, float, float, float]:
    """The optimum without its generic parts, in units of payoff: in `out` (3, r) the prices, sum N (rho - z), and N of
    every row. `v_at` (L+1,) is V at `rho`, in units.

    Returns whether all could be refined; what the prices prove, what they would if rho answered them to the last bit
    less what it is off; sum N V(rho); and sum max(0, |residual| - epsilon N).
    """
    regrade(s)
    r, y, published, epsilon = s.slot.size, np.empty(s.slot.size), s.rows[PUBLISHED], s.reals[EPSILON]
    done = prices(s, published) and answers(s, y)
    duals, residual = out[0], out[1]
    payoff = _settle(s, v_at, y, residual) * unit
    lower, excess = 0.0, 0.0
    for j in range(r):
        duals[j], out[2, j] = published[j] * unit, s.rows[MASS, j]
        lower += duals[j] * residual[j] - epsilon * abs(duals[j]) * out[2, j]
        excess += max(abs(residual[j]) - epsilon * out[2, j], 0.0)
    lower += payoff - _off(s, published) * unit * s.reals[ROUNDS]
    return done, lower, payoff, excess


@njit(cache=True)
def _settle(s: State, v_at: Floats, y: Floats, residual: Floats) -> float:
    """Fills `residual` with what basic profiles answer by `y`, and the others by their segments; gives sum N V(rho)."""
    r, tau, rho, counts, at, held, key = s.slot.size, s.tau, s.rho, s.counts, s.at, s.held, np.zeros(s.slot.size)
    payoff = 0.0
    for seg in range(rho.size):
        payoff += held[r, seg] * v_at[seg]
    for j in range(r):
        residual[j] = -s.rows[LEVEL, j] * s.rows[MASS, j]
        for seg in range(rho.size):
            residual[j] += held[j, seg] * rho[seg]
        if s.basic[0, j] >= r:
            key[j] = s.shift[s.basic[0, j] - r]
    for p in np.argsort(key):  # which slot is whose depends on the way here
        e, k = s.basic[0, p] - r, s.basic[1, p]
        if e < 0 or counts[e] <= 0.0:
            continue
        ones = min(max(y[p], counts[e] * rho[k + 1]), counts[e] * rho[k])
        payoff += counts[e] * v_at[k + 1] - tau[k] * (ones - counts[e] * rho[k + 1])
        for i in range(at.shape[1]):
            if at[e, i] < r:
                residual[at[e, i]] += ones
    return payoff


@njit(cache=True)
def _off(s: State, duals: Floats) -> float:
    """The most by which a profile's price is on the wrong side of its kinks. Where the candidates say so, all others
    are further from theirs than prices have moved."""
    tau, place, near, price, listed, off = s.tau, s.place, s.near, s.pull, s.wholes[LISTED], 0.0
    if reach(s.starts, duals - s.rows[CENTRE]) + SHIFT > s.reals[RADIUS]:
        enlist(s, s.wholes[PROFILES])
        listed = s.wholes[LISTED]
    price[:listed] = 0.0
    gather(s, s.near_codes, listed, duals, price)
    for c in range(listed):
        seg, p = place[0, near[c]], place[1, near[c]]
        if p >= 0:
            off = max(off, abs(price[c] - tau[s.basic[1, p]]))
        else:
            if seg < tau.size:
                off = max(off, price[c] - tau[seg])
            if seg > 0:
                off = max(off, tau[seg - 1] - price[c])
    return off
