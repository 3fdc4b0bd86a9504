"""The line search of the compiled ascent: what a direction meets, and where its gain ends. Changes no basis.

(numba's cache of a file does not see changes in the files it calls into: after those, delete `__pycache__`.)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from stream_agg.rule.kernel import gather, project, row_kink
from stream_agg.rule.layout import (
    AT_ZERO,
    CENTRE,
    EPSILON,
    FLAT,
    GAMMA,
    GENERIC,
    LAM,
    LISTED,
    MASS,
    PROFILES,
    RADIUS,
    TRACKED,
    Floats,
    Ints,
    State,
)
from stream_agg.rule.solution import DEAD


@njit(cache=True)
def enlist(s: State, least: int) -> None:
    """The candidates: everything within RADIUS of a kink, which grows until they are `least`; basic ones always."""
    tau, place, near, away, radius = s.tau, s.place, s.near, s.pull, s.reals[RADIUS]
    k, price = s.wholes[PROFILES], s.work
    project(s, price)
    for e in range(k):
        away[e] = 0.0
        if place[1, e] < 0:
            seg = place[0, e]
            above, below = (
                tau[seg] - price[e] if seg < tau.size else np.inf,
                price[e] - tau[seg - 1] if seg > 0 else np.inf,
            )
            away[e] = min(above, below)
    listed = 0
    while True:
        listed = 0
        for e in range(k):
            if away[e] <= radius:
                listed += 1
        if listed >= min(least, k) or radius == np.inf:
            break
        radius = radius * 2.0 if radius < 1e3 else np.inf
    if 3 * listed > 2 * k:
        radius = np.inf
    listed = 0
    for e in range(k):
        if away[e] <= radius:
            near[listed], s.price[listed] = e, price[e]
            for g in range(s.codes.shape[0]):
                s.near_codes[g, listed] = s.codes[g, e]
            listed += 1
    s.rows[CENTRE, :] = s.rows[LAM]
    s.wholes[LISTED], s.wholes[TRACKED], s.reals[RADIUS] = listed, 1, radius


@njit(cache=True)
def reach(starts: Ints, d: Floats) -> float:
    """How far any profile's price can move along d: the largest |d| of every expert, added up."""
    total = 0.0
    for i in range(starts.size - 1):
        most = 0.0
        for j in range(starts[i], starts[i + 1]):
            most = max(most, abs(d[j]))
        total += most
    return total


@njit(cache=True)
def ahead(s: State, d: Floats) -> None:
    """How fast d moves the price of every candidate, in `pull`."""
    listed, pull, price = s.wholes[LISTED], s.pull, s.price
    if not s.wholes[TRACKED]:
        for c in range(listed):
            price[c] = s.shift[s.near[c]]
        gather(s, s.near_codes, listed, s.rows[LAM], price)
        s.wholes[TRACKED] = 1
    pull[:listed] = 0.0
    gather(s, s.near_codes, listed, d, pull)


@njit(cache=True)
def stretch(s: State, d: Floats, cap: float, hits: Ints, kinks: Ints, met: Floats) -> tuple[int, float]:
    """Every kink that nonbasic rows and candidates meet within `cap` along d: whose, which, and in `met` where, by how
    much the gain drops there, and how fast it was met. Returns how many there are (the buffers hold what fits), and the
    sum of the drops."""
    r, tau, rho, lam, place, counts, gamma = s.slot.size, s.tau, s.rho, s.rows[LAM], s.place, s.counts, s.reals[GAMMA]
    hit, total, last = 0, 0.0, s.tau.size - 1
    for j in range(r):
        a = d[j]
        if s.slot[j] >= 0 or abs(a) <= FLAT:
            continue
        k = s.segment[j] if a > 0 else s.segment[j] - 1
        while 0 <= k <= 2:
            t = max((row_kink(k, gamma) - lam[j]) / a, 0.0)
            if t > cap:
                break
            jump = np.inf
            if k == AT_ZERO:
                jump = 2 * (s.reals[EPSILON] * s.rows[MASS, j] + DEAD * s.rows[GENERIC, j])
            total += abs(a) * jump
            if hit < hits.size:
                hits[hit], kinks[hit], met[0, hit], met[1, hit], met[2, hit] = j, k, t, abs(a) * jump, a
            hit += 1
            k += 1 if a > 0 else -1
    near, price, pull, ends = s.near, s.price, s.pull, s.ends
    for c in range(s.wholes[LISTED]):
        e, a = near[c], pull[c]
        seg, to = place[0, e], price[c] + a * cap
        if ends[seg] < to < ends[seg + 1] or place[1, e] >= 0 or abs(a) <= FLAT:
            continue
        k = seg if a > 0 else seg - 1
        while 0 <= k <= last:
            t = max((tau[k] - price[c]) / a, 0.0)
            if t > cap:
                break
            jump = counts[e] * (rho[k] - rho[k + 1])
            total += abs(a) * jump
            if hit < hits.size:
                hits[hit], kinks[hit], met[0, hit], met[1, hit], met[2, hit] = r + e, k, t, abs(a) * jump, a
            hit += 1
            k += 1 if a > 0 else -1
    return hit, total


@njit(cache=True)
def crossing(where: Floats, drop: Floats, hit: int, rate: float) -> int:
    """Which of the first `hit` kinks brings the gain to 0: the sum of drops up to it, by `where`, reaches `rate`; -1 if
    none does. Selection, not sorting: what lies beyond is never put in order."""
    order = np.arange(hit)
    low, high, left = 0, hit, rate * (1 - 1e-13)
    while low < high:
        pivot = where[order[(low + high) // 2]]
        first, last, i = low, high, low  # [low, first) before the pivot, [first, i) at it, [last, high) behind it
        before, at = 0.0, 0.0
        while i < last:
            h = order[i]
            if where[h] < pivot:
                before += drop[h]
                order[i], order[first] = order[first], h
                first += 1
                i += 1
            elif where[h] > pivot:
                last -= 1
                order[i], order[last] = order[last], h
            else:
                at += drop[h]
                i += 1
        if before >= left:
            high = first
        elif before + at >= left:
            chosen: int = order[first]
            return chosen
        else:
            left -= before + at
            low = last
    return -1
