"""The compiled dual ascent: from any basis of the program (`kernel.py`) to its optimal one.

A pivot lets go of one kink, along the steepest edge, and walks to the exact maximum over all kinks on the way: the
bounded dual simplex with bound flipping.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from stream_agg.rule.kernel import exchange, hold, refactor
from stream_agg.rule.layout import (
    AGE,
    AT_MINUS,
    AT_PLUS,
    BROKEN,
    CAP,
    CENTRE,
    EPSILON,
    GAMMA,
    GENERIC,
    GRAD,
    INFEASIBLE,
    LAM,
    LIMIT,
    LISTED,
    MASS,
    MOVED,
    OPTIMAL,
    PIVOTS,
    PROFILES,
    RADIUS,
    REFACTOR,
    RELIST,
    ROUNDS,
    SINCE,
    SNAP,
    Floats,
    Ints,
    State,
)
from stream_agg.rule.search import ahead, crossing, enlist, reach, stretch
from stream_agg.rule.solution import DEAD


@njit(cache=True)
def _leave(s: State, p: int, seg: int) -> None:
    """What is basic at slot p becomes nonbasic, in that segment."""
    r, what = s.slot.size, s.basic[0, p]
    if what < r:
        s.slot[what], s.segment[what] = -1, seg
        s.rows[GRAD, what] += s.reals[EPSILON] * s.rows[MASS, what] * (1.0 if seg == 1 else -1.0)
    else:
        s.place[0, what - r], s.place[1, what - r] = seg, -1
        hold(s.rows[GRAD], s.held, s.rho, s.at, what - r, seg, s.counts[what - r])


@njit(cache=True)
def _enter(s: State, p: int, what: int, kink: int) -> None:
    """A nonbasic row or profile becomes basic at slot p, at that kink."""
    r = s.slot.size
    s.basic[0, p], s.basic[1, p] = what, kink
    if what < r:
        s.rows[GRAD, what] -= s.reals[EPSILON] * s.rows[MASS, what] * (1.0 if s.segment[what] == 1 else -1.0)
        s.slot[what] = p
    else:
        hold(s.rows[GRAD], s.held, s.rho, s.at, what - r, s.place[0, what - r], -s.counts[what - r])
        s.place[1, what - r] = p


@njit(cache=True)
def _worst(s: State) -> tuple[int, float]:
    """The slot whose kink is most worth leaving, and the rate of gain, negative for downwards; slot -1 at the
    optimum."""
    r, grad, generic, mass, edges = s.slot.size, s.rows[GRAD], s.rows[GENERIC], s.rows[MASS], s.edges
    slot, segment, basic, counts, rho, epsilon = s.slot, s.segment, s.basic, s.counts, s.rho, s.reals[EPSILON]
    y, y_generic, norm = np.zeros(r), np.zeros(r), np.zeros(r)
    for j in range(r):
        if slot[j] >= 0:
            y[slot[j]] -= grad[j]
            norm[slot[j]] += 1.0
            continue
        lean, g, row = generic[j] if segment[j] == 1 else -generic[j], grad[j], edges[j]
        for p in range(r):
            y[p] -= g * row[p]
            y_generic[p] -= lean * row[p]
            norm[p] += row[p] * row[p]
    snap = SNAP * (1.0 + 1e-6 * s.reals[ROUNDS])
    best, found, gain = 0.0, -1, 0.0
    for p in range(r):
        what, j = basic[0, p], basic[1, p]
        if what >= r:
            low, high = counts[what - r] * rho[j + 1], counts[what - r] * rho[j]
            low_generic, high_generic = 0.0, 0.0
        else:
            high, high_generic = epsilon * mass[what], generic[what] if mass[what] > 0 else 0.0
            low, low_generic = -high, -high_generic
            if j == AT_MINUS:
                low, low_generic, high = high, high_generic, np.inf
            elif j == AT_PLUS:
                high, high_generic, low = low, low_generic, -np.inf
        up, down = low - y[p], y[p] - high
        up = (0.0 if abs(up) < snap else up) + DEAD * (low_generic - y_generic[p])
        down = (0.0 if abs(down) < snap else down) + DEAD * (y_generic[p] - high_generic)
        v = max(up, down)
        if v > 1e-13 and v * v > best * norm[p]:
            best, found, gain = v * v / norm[p], p, v if up >= down else -v
    return found, gain


@njit(cache=True)
def _pass(s: State, hit: int, until: float, hits: Ints, kinks: Ints, met: Floats) -> None:
    """Everything met before `until` goes through its kink to the next segment."""
    r, grad, held, rho, at, place, counts = s.slot.size, s.rows[GRAD], s.held, s.rho, s.at, s.place, s.counts
    segment, mass, epsilon = s.segment, s.rows[MASS], s.reals[EPSILON]
    for h in range(hit):  # kinks of one profile stand in the order in which they are met
        if met[0, h] >= until:
            continue
        w, up = hits[h], met[2, h] > 0
        seg = kinks[h] + 1 if up else kinks[h]
        if w < r:
            grad[w] += 2 * epsilon * mass[w] * (-1.0 if up else 1.0)
            segment[w] = seg
        else:
            e = w - r
            hold(grad, held, rho, at, e, place[0, e], -counts[e])
            place[0, e] = seg
            hold(grad, held, rho, at, e, seg, counts[e])


@njit(cache=True)
def ascend(s: State, limit: float) -> tuple[int, float]:
    """Pivot to the optimum from the basis at hand. How it ended (OPTIMAL, INFEASIBLE: unbounded ascent, LIMIT: more
    than `limit` operations, BROKEN: numerically), and how many operations it took."""
    r, n, lam, edges = s.slot.size, s.at.shape[1], s.rows[LAM], s.edges
    d, cap, work, least = np.zeros(r + 1), s.reals[CAP], 0.0, 2 * r + 64
    price, pull = s.price, s.pull
    # No kink of a profile is that far; those of rows are at gamma, at most at gamma / FLAT along d.
    farthest = 1e12 * max(s.reals[GAMMA], 1.0) if s.reals[GAMMA] < np.inf else 1e12
    hits, kinks, met = np.empty(256, np.int64), np.empty(256, np.int64), np.empty((3, 256))
    while True:
        p, gain = _worst(s)
        work += 4.0 * r * r
        if p < 0:
            return OPTIMAL, work
        if work > limit:
            return LIMIT, work
        for j in range(r):
            d[j] = edges[j, p] if gain > 0 else -edges[j, p]
        _leave(s, p, s.basic[1, p] + (1 if gain > 0 else 0))
        pace, rate, chosen, hit = reach(s.starts, d), abs(gain), -1, 0
        while True:
            room = np.inf if s.reals[RADIUS] == np.inf else s.reals[RADIUS] - reach(s.starts, lam - s.rows[CENTRE])
            ahead(s, d)
            work += 2.0 * n * s.wholes[LISTED]
            while True:
                hit, total = stretch(s, d, cap, hits, kinks, met)
                if hit > hits.size:
                    hits, kinks, met = np.empty(2 * hit, np.int64), np.empty(2 * hit, np.int64), np.empty((3, 2 * hit))
                elif total >= rate or cap * pace > room or cap > farthest:
                    break
                else:
                    cap *= 6.0
            chosen = crossing(met[0], met[1], hit, rate)
            if chosen >= 0 and met[0, chosen] * pace <= room:
                break
            if room == np.inf:
                return INFEASIBLE, work
            s.reals[RADIUS] *= 4.0
            enlist(s, least)
            work += 2.0 * n * s.wholes[PROFILES]
        _pass(s, hit, met[0, chosen], hits, kinks, met)
        step, enters = met[0, chosen], hits[chosen]
        _enter(s, p, enters, kinks[chosen])
        for j in range(r):
            lam[j] += step * d[j]
        for c in range(s.wholes[LISTED]):
            price[c] += step * pull[c]
        if not exchange(edges, s.at, p, enters):
            return BROKEN, work
        s.wholes[PIVOTS] += 1
        s.wholes[AGE] += 1
        s.wholes[SINCE] += 1
        s.reals[MOVED] += step * pace
        cap = 0.5 * cap + 1.5 * step + 1e-12
        s.reals[CAP] = cap
        if s.wholes[AGE] >= REFACTOR:
            if not refactor(s):
                return BROKEN, work
            work += 1.0 * r * r * r
        if s.wholes[SINCE] >= RELIST:
            if s.wholes[LISTED] > 2 * least and 2 * s.reals[MOVED] < s.reals[RADIUS]:
                s.reals[RADIUS] = s.reals[MOVED] + 1e-12
                enlist(s, least)
                work += 2.0 * n * s.wholes[PROFILES]
            s.wholes[SINCE], s.reals[MOVED] = 0, 0.0
