"""The compiled program behind the robust rule: its arrays, its basis, and what follows from that. `pivots.py` moves it.

    max over |lambda| <= gamma of
    sum_e N(e) phi(s_e + shift_e) - sum_j [z_j N_j lambda_j + (epsilon N_j + dead_j) |lambda_j|]

with s_e the sum of lambda over the rows of profile e. The objective is concave and piecewise linear; a vertex is r
kinks, of profiles (s_e + shift_e = tau_l) or of rows (lambda_j = -gamma, 0 or gamma).

`shift` and `dead` are fixed generic numbers that make the optimal vertex unique, whatever the path to it. `dead` is
carried beside exact sums as an infinitesimal: a multiplier within SNAP of its bound is on it, and DEAD times its
generic part decides. Sums over profiles are kept as counts by segment (`held`), exact in any order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from stream_agg.rule.layout import (
    AGE,
    AT_PLUS,
    AT_ZERO,
    COMPARED,
    EPSILON,
    GAMMA,
    GRAD,
    LAM,
    LEVEL,
    LISTED,
    MASS,
    PROFILES,
    PROVEN,
    RADIUS,
    ROUNDS,
    TRACKED,
    Floats,
    Ints,
    State,
)
from stream_agg.rule.solution import SHIFT


@njit(cache=True)
def hashed(at: Ints, out: Floats) -> None:
    """A fixed number in [0, 1) for every profile, from its rows alone (splitmix64)."""
    for e in range(at.shape[0]):
        h = np.uint64(0x9E3779B97F4A7C15)
        for i in range(at.shape[1]):
            h = h ^ np.uint64(at[e, i] + 1)
            h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            h = h ^ (h >> np.uint64(31))
        out[e] = np.float64(h >> np.uint64(11)) * 2.0**-53


@njit(cache=True)
def price_of(lam: Floats, shift: Floats, at: Ints, e: int) -> float:
    """The shifted price of a profile."""
    price: float = shift[e]
    for i in range(at.shape[1]):
        price += lam[at[e, i]]
    return price


@njit(cache=True)
def encode(s: State, e: int) -> None:
    """The codes of a profile: for every group of experts, which of their joint reports it is."""
    silent, starts, first = s.slot.size, s.starts, 0
    for g in range(s.codes.shape[0]):
        code, size = 0, 1
        for i in range(s.groups[g], s.groups[g + 1]):
            levels = starts[i + 1] - starts[i]
            size *= levels + 1
            code = code * (levels + 1) + (s.at[e, i] - starts[i] if s.at[e, i] < silent else levels)
        s.codes[g, e] = first + code
        first += size


@njit(cache=True)
def gather(s: State, codes: Ints, k: int, values: Floats, out: Floats) -> None:
    """Add to `out` (k,) the values of every profile's rows: first all sums that a group of experts can have, then one
    of them a group, instead of one value an expert."""
    starts, table, first = s.starts, s.table, 0
    for g in range(codes.shape[0]):
        table[first], size = 0.0, 1
        for i in range(s.groups[g], s.groups[g + 1]):
            levels = starts[i + 1] - starts[i]
            for a in range(size - 1, -1, -1):  # from behind: what is read has not been written
                base, at = table[first + a], first + a * (levels + 1)
                table[at + levels] = base
                for z in range(levels - 1, -1, -1):
                    table[at + z] = base + values[starts[i] + z]
            size *= levels + 1
        first += size
    for g in range(codes.shape[0]):
        code = codes[g]
        for e in range(k):
            out[e] += table[code[e]]


@njit(cache=True)
def project(s: State, out: Floats) -> None:
    """The shifted price of every profile, in `out` (k,)."""
    k = s.wholes[PROFILES]
    out[:k] = s.shift[:k]
    gather(s, s.codes, k, s.rows[LAM], out)


@njit(cache=True)
def segment_of(tau: Floats, price: float) -> int:
    """How many kinks lie below a price."""
    seg = 0
    while seg < tau.size and tau[seg] < price:
        seg += 1
    return seg


@njit(cache=True)
def row_kink(k: int, gamma: float) -> float:
    """Where kink k of a row is."""
    return 0.0 if k == AT_ZERO else (gamma if k == AT_PLUS else -gamma)


@njit(cache=True)
def admit(s: State, first: int, last: int) -> None:
    """Profiles first..last-1 are new in `at`: hash them, give them the segment that the prices put them in, and make
    them candidates. They are not counted yet."""
    lam, tau, at, place, listed = s.rows[LAM], s.tau, s.at, s.place, s.wholes[LISTED]
    hashed(at[first:last], s.shift[first:last])
    for e in range(first, last):
        s.shift[e] *= SHIFT
        price = price_of(lam, s.shift, at, e)
        place[0, e], place[1, e] = segment_of(tau, price), -1
        encode(s, e)
        for g in range(s.codes.shape[0]):
            s.near_codes[g, listed] = s.codes[g, e]
        s.near[listed], s.price[listed] = e, price
        listed += 1
    s.wholes[LISTED], s.wholes[PROFILES] = listed, last


@njit(cache=True)
def count(s: State, first: int, last: int, amounts: Floats) -> None:
    """Count profiles first..last-1 so many times more, O(n) each."""
    r, grad, mass, level, epsilon = s.slot.size, s.rows[GRAD], s.rows[MASS], s.rows[LEVEL], s.reals[EPSILON]
    slot, segment, at, place, held, counts, rhos = s.slot, s.segment, s.at, s.place, s.held, s.counts, s.rho
    for e in range(first, last):
        amount, seg, nonbasic = amounts[e - first], place[0, e], place[1, e] < 0
        rho = rhos[seg] if nonbasic else 0.0
        for i in range(at.shape[1]):
            j = at[e, i]
            if j == r:
                continue
            mass[j] += amount
            lean = 0.0
            if slot[j] < 0:
                lean = epsilon if segment[j] == 1 else -epsilon
            grad[j] += amount * (rho - level[j] + lean)
            if nonbasic:
                held[j, seg] += amount
        if nonbasic:
            held[r, seg] += amount
        counts[e] += amount
        s.reals[ROUNDS] += amount


@njit(cache=True)
def exchange(edges: Floats, at: Ints, p: int, what: int) -> bool:
    """A row (what < r) or a profile takes slot p: rank-one update of the edges. False where they would be singular."""
    r = edges.shape[0]
    share = np.zeros(r)
    if what < r:
        share[:] = edges[what]
    else:
        for i in range(at.shape[1]):
            j = at[what - r, i]
            if j < r:
                row = edges[j]
                for q in range(r):
                    share[q] += row[q]
    pivot = share[p]
    if abs(pivot) < 1e-9:
        return False
    share[p] = 0.0
    for j in range(r):
        row = edges[j]
        if row[p] != 0.0:
            x = row[p] / pivot
            for q in range(r):
                row[q] -= x * share[q]
            row[p] = x
    return True


@njit(cache=True)
def refactor(s: State) -> bool:
    """Edges, prices and gradient afresh, in an order that is the basis's own. False where it is singular."""
    r, edges, lam, basic, slot, shift, at = s.slot.size, s.edges, s.rows[LAM], s.basic, s.slot, s.shift, s.at
    who, keys, kinks, at_kink, found = np.empty(r, np.int64), np.empty(r), np.empty(r, np.int64), np.full(r, -1), 0
    for p in range(r):
        what = basic[0, p]
        if what >= r:
            who[found], keys[found], kinks[found] = what, shift[what - r], basic[1, p]
            found += 1
        else:
            at_kink[what] = basic[1, p]
    edges[:, :] = 0.0
    for j in range(r):
        edges[j, j] = 1.0
        slot[j] = j if at_kink[j] >= 0 else -1
        basic[0, j], basic[1, j] = (j, at_kink[j]) if at_kink[j] >= 0 else (-1, 0)
    for i in range(1, found):  # few: insertion
        key, a, b, h = keys[i], who[i], kinks[i], i
        while h > 0 and keys[h - 1] > key:
            keys[h], who[h], kinks[h] = keys[h - 1], who[h - 1], kinks[h - 1]
            h -= 1
        keys[h], who[h], kinks[h] = key, a, b
    for h in range(found):
        best, p = 1e-9, -1
        for q in range(r):
            if basic[0, q] < 0:
                share = 0.0
                for i in range(at.shape[1]):
                    if at[who[h] - r, i] < r:
                        share += edges[at[who[h] - r, i], q]
                if abs(share) > best + 1e-9:
                    best, p = abs(share), q
        if p < 0 or not exchange(edges, at, p, who[h]):
            return False
        basic[0, p], basic[1, p], s.place[1, who[h] - r] = who[h], kinks[h], p
    lam[:] = 0.0
    for p in range(r):
        value = (
            s.tau[basic[1, p]] - shift[basic[0, p] - r] if basic[0, p] >= r else row_kink(basic[1, p], s.reals[GAMMA])
        )
        if value != 0.0:
            for j in range(r):
                lam[j] += value * edges[j, p]
    regrade(s)
    s.wholes[AGE], s.wholes[TRACKED] = 0, 0
    return True


@njit(cache=True)
def restart(s: State) -> None:
    """Back to the origin: every row at its kink at zero, profiles where their shifts put them, counts as they are."""
    r = s.slot.size
    s.edges[:, :] = 0.0
    s.held[:, :] = 0.0
    s.rows[LAM, :] = 0.0
    for j in range(r):
        s.edges[j, j], s.slot[j], s.segment[j], s.basic[0, j], s.basic[1, j] = 1.0, j, 1, j, AT_ZERO
    for e in range(s.wholes[PROFILES]):
        s.place[0, e], s.place[1, e], s.near[e] = segment_of(s.tau, s.shift[e]), -1, e
        s.near_codes[:, e] = s.codes[:, e]
        hold(s.rows[GRAD], s.held, s.rho, s.at, e, s.place[0, e], s.counts[e])
    s.wholes[LISTED], s.wholes[AGE], s.wholes[TRACKED], s.reals[RADIUS] = s.wholes[PROFILES], 0, 0, np.inf
    s.wholes[PROVEN], s.wholes[COMPARED] = 0, -1
    regrade(s)


@njit(cache=True)
def regrade(s: State) -> None:
    """The gradient from the exact counts."""
    grad, mass, level, held, rho, slot = s.rows[GRAD], s.rows[MASS], s.rows[LEVEL], s.held, s.rho, s.slot
    for j in range(slot.size):
        g = -level[j] * mass[j]
        for seg in range(rho.size):
            g += held[j, seg] * rho[seg]
        if slot[j] < 0:
            g += s.reals[EPSILON] * mass[j] * (1.0 if s.segment[j] == 1 else -1.0)
        grad[j] = g


@njit(cache=True)
def hold(grad: Floats, held: Floats, rho: Floats, at: Ints, e: int, seg: int, m: float) -> None:
    """Nonbasic profile e is counted m times more in a segment."""
    r = held.shape[0] - 1
    for i in range(at.shape[1]):
        j = at[e, i]
        if j < r:
            grad[j] += m * rho[seg]
            held[j, seg] += m
    held[r, seg] += m
