"""The compiled loops of the dual ascent. The only file that knows numba; plain arrays in, plain arrays changed.

    max over |lambda| <= gamma of  sum_e N(e) phi(s_e + shift_e) - sum_j [z_j N_j lambda_j + (epsilon N_j + dead_j) |lambda_j|]

with s_e the sum of lambda over the rows of profile e. The objective is concave and piecewise linear; a vertex is r kinks,
of profiles (s_e + shift_e = tau_l) or of rows (lambda_j = -gamma, 0 or gamma). A pivot lets go of one kink, along the
steepest edge, and walks to the exact maximum over all kinks on the way: the bounded dual simplex with bound flipping.

`shift` and `dead` are fixed generic numbers (`program.py`) that make the optimal vertex unique, whatever the path to it.
`dead` is carried beside exact sums as an infinitesimal: a multiplier within SNAP of its bound is on it, and DEAD times its
generic part decides. Sums over profiles are kept as counts by segment (`held`), exact in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stream_agg.rule.solution import DEAD, DECIMALS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OPTIMAL, INFEASIBLE, LIMIT, BROKEN = 0, 1, 2, 3

SNAP = 1e-7
FLAT = 1e-10  # a direction that moves a price by less does not move it
OFF = 1e-11  # a profile further than this from the segment it is counted in has moved

LAM, GRAD, MASS, LEVEL, GENERIC, CENTRE = range(6)  # rows of `State.rows`
GAMMA, EPSILON, ROUNDS, RADIUS, MOVED, CAP = range(6)  # of `State.reals`; MOVED: how far prices went in SINCE pivots
PROFILES, LISTED, PIVOTS, AGE, SINCE = range(5)  # of `State.wholes`; AGE: pivots since edges were made anew

AT_MINUS, AT_ZERO, AT_PLUS = 0, 1, 2  # kinks of a row
REFACTOR, RELIST = 200, 16  # pivots until edges and candidates are made anew


class State(NamedTuple):
    """Arrays of one program: k profiles of n experts, r rows, L kinks of phi.

    `tau` (L,) kinks ascending, `rho` (L+1,) slope of phi after so many of them, `starts` (n+1,) first row of each expert;
    `rows` (6, r+1) see above, the last entry is for silent experts and stays 0; `segment` (r,) the interval of lambda
    between its kinks, `slot` (r,) where a row is basic, or -1; `basic` (2, r) what is basic (row, or r + profile) and at
    which kink; `edges` (r, r): column p is the direction in which only the basic kink p is left, and the row of a basic
    row is a unit vector; `count`, `shift` (cap,), `at` (cap, n) rows of a profile, `place` (2, cap) its segment and its
    slot or -1; `held` (r+1, L+1) counts of nonbasic profiles by row and segment, in the last row of all;
    `near` (cap,) the profiles that a move by less than RADIUS from CENTRE can bring to a kink; `moving` (cap + r,) and
    `speeds` (2, cap + r) are room to work in.
    """

    tau: Floats
    rho: Floats
    starts: Ints
    rows: Floats
    segment: Ints
    slot: Ints
    basic: Ints
    edges: Floats
    count: Floats
    shift: Floats
    at: Ints
    place: Ints
    held: Floats
    near: Ints
    moving: Ints
    speeds: Floats
    reals: Floats
    wholes: Ints


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
def _price(lam: Floats, shift: Floats, at: Ints, e: int) -> float:
    price = shift[e]
    for i in range(at.shape[1]):
        price += lam[at[e, i]]
    return price


@njit(cache=True)
def _segment(tau: Floats, price: float) -> int:
    seg = 0
    while seg < tau.size and tau[seg] < price:
        seg += 1
    return seg


@njit(cache=True)
def _row_kink(k: int, gamma: float) -> float:
    return 0.0 if k == AT_ZERO else (gamma if k == AT_PLUS else -gamma)


@njit(cache=True)
def settle(s: State, first: int, last: int) -> None:
    """Profiles first..last-1 are new: give them the segment that the prices put them in. They are not counted yet."""
    lam, tau, shift, at, place, near, listed = s.rows[LAM], s.tau, s.shift, s.at, s.place, s.near, s.wholes[LISTED]
    for e in range(first, last):
        place[0, e], place[1, e] = _segment(tau, _price(lam, shift, at, e)), -1
        near[listed] = e
        listed += 1
    s.wholes[LISTED], s.wholes[PROFILES] = listed, last


@njit(cache=True)
def count(s: State, first: int, last: int, amounts: Floats) -> None:
    """Count profiles first..last-1 so many times more, O(n) each."""
    r, grad, mass, level, epsilon = s.slot.size, s.rows[GRAD], s.rows[MASS], s.rows[LEVEL], s.reals[EPSILON]
    slot, segment, at, place, held, counts, rhos = s.slot, s.segment, s.at, s.place, s.held, s.count, s.rho
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
def _exchange(edges: Floats, at: Ints, p: int, what: int) -> bool:
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
    for h in np.argsort(keys[:found]):
        best, p = 1e-9, -1
        for q in range(r):
            if basic[0, q] < 0:
                share = 0.0
                for i in range(at.shape[1]):
                    if at[who[h] - r, i] < r:
                        share += edges[at[who[h] - r, i], q]
                if abs(share) > best + 1e-9:
                    best, p = abs(share), q
        if p < 0 or not _exchange(edges, at, p, who[h]):
            return False
        basic[0, p], basic[1, p], s.place[1, who[h] - r] = who[h], kinks[h], p
    lam[:] = 0.0
    for p in range(r):
        value = (
            s.tau[basic[1, p]] - shift[basic[0, p] - r] if basic[0, p] >= r else _row_kink(basic[1, p], s.reals[GAMMA])
        )
        if value != 0.0:
            for j in range(r):
                lam[j] += value * edges[j, p]
    regrade(s)
    s.wholes[AGE] = 0
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
        s.place[0, e], s.place[1, e], s.near[e] = _segment(s.tau, s.shift[e]), -1, e
        _hold(s.rows[GRAD], s.held, s.rho, s.at, e, s.place[0, e], s.count[e])
    s.wholes[LISTED], s.wholes[AGE], s.reals[RADIUS] = s.wholes[PROFILES], 0, np.inf
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
def _hold(grad: Floats, held: Floats, rho: Floats, at: Ints, e: int, seg: int, m: float) -> None:
    """Nonbasic profile e is counted m times more in a segment."""
    r = held.shape[0] - 1
    for i in range(at.shape[1]):
        j = at[e, i]
        if j < r:
            grad[j] += m * rho[seg]
            held[j, seg] += m
    held[r, seg] += m


@njit(cache=True)
def _leave(s: State, p: int, seg: int) -> None:
    """What is basic at slot p becomes nonbasic, in that segment."""
    r, what = s.slot.size, s.basic[0, p]
    if what < r:
        s.slot[what], s.segment[what] = -1, seg
        s.rows[GRAD, what] += s.reals[EPSILON] * s.rows[MASS, what] * (1.0 if seg == 1 else -1.0)
    else:
        s.place[0, what - r], s.place[1, what - r] = seg, -1
        _hold(s.rows[GRAD], s.held, s.rho, s.at, what - r, seg, s.count[what - r])


@njit(cache=True)
def _enter(s: State, p: int, what: int, kink: int) -> None:
    """A nonbasic row or profile becomes basic at slot p, at that kink."""
    r = s.slot.size
    s.basic[0, p], s.basic[1, p] = what, kink
    if what < r:
        s.rows[GRAD, what] -= s.reals[EPSILON] * s.rows[MASS, what] * (1.0 if s.segment[what] == 1 else -1.0)
        s.slot[what] = p
    else:
        _hold(s.rows[GRAD], s.held, s.rho, s.at, what - r, s.place[0, what - r], -s.count[what - r])
        s.place[1, what - r] = p


@njit(cache=True)
def rearrange(s: State) -> None:
    """Put nonbasic profiles into the segments that the prices say."""
    lam, grad, tau, shift, at, place, counts = s.rows[LAM], s.rows[GRAD], s.tau, s.shift, s.at, s.place, s.count
    held, rho = s.held, s.rho
    for e in range(s.wholes[PROFILES]):
        if place[1, e] < 0:
            price, seg = _price(lam, shift, at, e), place[0, e]
            if (seg < tau.size and price > tau[seg] + OFF) or (seg > 0 and price < tau[seg - 1] - OFF):
                _hold(grad, held, rho, at, e, seg, -counts[e])
                place[0, e] = _segment(tau, price)
                _hold(grad, held, rho, at, e, place[0, e], counts[e])


@njit(cache=True)
def _enlist(s: State, least: int) -> None:
    """The candidates: everything within RADIUS of a kink, which grows until they are `least`; basic ones always."""
    lam, tau, shift, at, place, near, radius = s.rows[LAM], s.tau, s.shift, s.at, s.place, s.near, s.reals[RADIUS]
    k = s.wholes[PROFILES]
    away = np.zeros(k)
    for e in range(k):
        if place[1, e] < 0:
            price, seg = _price(lam, shift, at, e), place[0, e]
            above, below = tau[seg] - price if seg < tau.size else np.inf, price - tau[seg - 1] if seg > 0 else np.inf
            away[e] = min(above, below)
    while True:
        listed = 0
        for e in range(k):
            if away[e] <= radius:
                near[listed] = e
                listed += 1
        if listed >= min(least, k) or radius == np.inf:
            break
        radius = radius * 2.0 if radius < 1e3 else np.inf
    if 3 * listed > 2 * k:
        radius, listed = np.inf, k
        for e in range(k):
            near[e] = e
    s.rows[CENTRE, :] = lam
    s.wholes[LISTED], s.reals[RADIUS] = listed, radius


@njit(cache=True)
def _reach(starts: Ints, d: Floats) -> float:
    """How far any profile's price can move along d: the largest |d| of every expert, added up."""
    total = 0.0
    for i in range(starts.size - 1):
        most = 0.0
        for j in range(starts[i], starts[i + 1]):
            most = max(most, abs(d[j]))
        total += most
    return total


@njit(cache=True)
def _worst(s: State) -> tuple[int, float]:
    """The slot whose kink is most worth leaving and the rate of gain, negative for downwards; slot -1 at the optimum."""
    r, grad, generic, mass, edges = s.slot.size, s.rows[GRAD], s.rows[GENERIC], s.rows[MASS], s.edges
    slot, segment, basic, counts, rho, epsilon = s.slot, s.segment, s.basic, s.count, s.rho, s.reals[EPSILON]
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
def _ahead(s: State, d: Floats, what: Ints, speed: Floats, first: Floats) -> int:
    """Nonbasic rows and candidates that d moves: which, how fast, and where they meet their first kink."""
    r, lam, tau, shift, at, place, counts, near = (
        s.slot.size, s.rows[LAM], s.tau, s.shift, s.at, s.place, s.count, s.near
    )  # fmt: skip
    slot, segment, gamma, found = s.slot, s.segment, s.reals[GAMMA], 0
    for j in range(r):
        if slot[j] < 0 and abs(d[j]) > FLAT:
            what[found], speed[found] = j, d[j]
            k = segment[j] if d[j] > 0 else segment[j] - 1
            first[found] = max((_row_kink(k, gamma) - lam[j]) / d[j], 0.0)
            found += 1
    for c in range(s.wholes[LISTED]):
        e = near[c]
        if place[1, e] >= 0 or counts[e] <= 0.0:
            continue
        a = 0.0
        for i in range(at.shape[1]):
            a += d[at[e, i]]
        if abs(a) > FLAT:
            k = place[0, e] if a > 0 else place[0, e] - 1
            if 0 <= k < tau.size:
                what[found], speed[found] = r + e, a
                first[found] = max((tau[k] - _price(lam, shift, at, e)) / a, 0.0)
                found += 1
    return found


@njit(cache=True)
def _stretch(
    s: State, what: Ints, speed: Floats, first: Floats, found: int, cap: float, hits: Ints, kinks: Ints, met: Floats
) -> tuple[int, float]:
    """Every kink met within `cap`: whose (index into `what`), which, and in `met` where and by how much the gain drops
    there. Returns how many there are (the buffers hold what fits) and the sum of the drops."""
    r, lam, tau, rho, mass, generic = s.slot.size, s.rows[LAM], s.tau, s.rho, s.rows[MASS], s.rows[GENERIC]
    place, counts, gamma, hit, total = s.place, s.count, s.reals[GAMMA], 0, 0.0
    for c in range(found):
        if first[c] > cap:
            continue
        w, a = what[c], speed[c]
        seg, last, base = s.segment[w] if w < r else place[0, w - r], 2 if w < r else tau.size - 1, 0.0
        base = lam[w] if w < r else _price(lam, s.shift, s.at, w - r)
        k = seg if a > 0 else seg - 1
        while 0 <= k <= last:
            if w >= r:
                to, jump = tau[k], counts[w - r] * (rho[k] - rho[k + 1])
            else:
                to = _row_kink(k, gamma)
                jump = 2 * (s.reals[EPSILON] * mass[w] + DEAD * generic[w]) if k == AT_ZERO else np.inf
            t = max((to - base) / a, 0.0)
            if t > cap:
                break
            total += abs(a) * jump
            if hit < met.shape[1]:
                hits[hit], kinks[hit], met[0, hit], met[1, hit] = c, k, t, abs(a) * jump
            hit += 1
            k += 1 if a > 0 else -1
    return hit, total


@njit(cache=True)
def _pass(s: State, what: int, kink: int, a: float) -> None:
    """A nonbasic row or profile goes through a kink to the next segment."""
    r = s.slot.size
    if what < r:
        s.rows[GRAD, what] += 2 * s.reals[EPSILON] * s.rows[MASS, what] * (-1.0 if a > 0 else 1.0)
        s.segment[what] = kink + 1 if a > 0 else kink
    else:
        e, grad = what - r, s.rows[GRAD]
        _hold(grad, s.held, s.rho, s.at, e, s.place[0, e], -s.count[e])
        s.place[0, e] = kink + 1 if a > 0 else kink
        _hold(grad, s.held, s.rho, s.at, e, s.place[0, e], s.count[e])


@njit(cache=True)
def ascend(s: State, limit: float) -> tuple[int, float]:
    """Pivot to the optimum from the basis at hand. How it ended (OPTIMAL, INFEASIBLE: unbounded ascent, LIMIT: more than
    `limit` operations, BROKEN: numerically), and how many operations it took."""
    r, n, lam, edges = s.slot.size, s.at.shape[1], s.rows[LAM], s.edges
    d, cap, work, least = np.zeros(r + 1), s.reals[CAP], 0.0, 2 * r + 64
    what, speed, first = s.moving, s.speeds[0], s.speeds[1]
    # No kink of a profile is that far; those of rows are at gamma, at most at gamma / FLAT along d.
    farthest = 1e12 * max(s.reals[GAMMA], 1.0) if s.reals[GAMMA] < np.inf else 1e12
    hits, kinks, met = np.empty(256, np.int64), np.empty(256, np.int64), np.empty((2, 256))
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
        pace, rate, chosen, passed = _reach(s.starts, d), abs(gain), -1, 0
        order = np.empty(0, np.int64)
        while True:
            room = np.inf if s.reals[RADIUS] == np.inf else s.reals[RADIUS] - _reach(s.starts, lam - s.rows[CENTRE])
            found = _ahead(s, d, what, speed, first)
            work += 2.0 * n * s.wholes[LISTED]
            while True:
                hit, total = _stretch(s, what, speed, first, found, cap, hits, kinks, met)
                if hit > hits.size:
                    hits, kinks, met = np.empty(2 * hit, np.int64), np.empty(2 * hit, np.int64), np.empty((2, 2 * hit))
                elif total >= rate or cap * pace > room or cap > farthest:
                    break
                else:
                    cap *= 6.0
            order, left, passed = np.argsort(met[0, :hit]), rate * (1 - 1e-13), 0
            for h in order:
                left -= met[1, h]
                if left <= 0:
                    chosen = h
                    break
                passed += 1
            if chosen >= 0 and met[0, chosen] * pace <= room:
                break
            if room == np.inf:
                return INFEASIBLE, work
            chosen = -1
            s.reals[RADIUS] *= 4.0
            rearrange(s)
            _enlist(s, least)
            work += 2.0 * n * s.wholes[PROFILES]
        for i in range(passed):
            _pass(s, what[hits[order[i]]], kinks[order[i]], speed[hits[order[i]]])
        step, enters = met[0, chosen], what[hits[chosen]]
        _enter(s, p, enters, kinks[chosen])
        for j in range(r):
            lam[j] += step * d[j]
        if not _exchange(edges, s.at, p, enters):
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
                rearrange(s)
                _enlist(s, least)
                work += 2.0 * n * s.wholes[PROFILES]
            s.wholes[SINCE], s.reals[MOVED] = 0, 0.0


@njit(cache=True)
def prices(s: State, out: Floats) -> None:
    """The basic solution without shifts, rounded to ten decimals, in `out` (r,)."""
    r, gamma, edges = s.slot.size, s.reals[GAMMA], s.edges
    out[:] = 0.0
    for p in range(r):
        value = s.tau[s.basic[1, p]] if s.basic[0, p] >= r else _row_kink(s.basic[1, p], gamma)
        if value != 0.0:
            for j in range(r):
                out[j] += value * edges[j, p]
    for j in range(r):
        out[j] = min(max(np.round(out[j], DECIMALS), -gamma), gamma) + 0.0 if s.rows[MASS, j] > 0 else 0.0


@njit(cache=True)
def answer(s: State, v_at: Floats, prices: Floats, residual: Floats) -> tuple[float, float]:
    """At the optimum, what the adversary's rho adds up to, without the generic parts.

    `v_at` (L+1,) V at `rho`; fills `residual` (r,) = sum N (rho - z); returns sum N V(rho), and the most by which the
    price of a profile is off the prices that its rho answers.
    """
    regrade(s)
    r, tau, rho, counts, at, place, edges = s.slot.size, s.tau, s.rho, s.count, s.at, s.place, s.edges
    payoff, off = 0.0, 0.0
    for j in range(r):
        residual[j] = -s.rows[LEVEL, j] * s.rows[MASS, j]
        for seg in range(rho.size):
            residual[j] += s.held[j, seg] * rho[seg]
    for seg in range(rho.size):
        payoff += s.held[r, seg] * v_at[seg]
    for p in range(r):
        e, k, y = s.basic[0, p] - r, s.basic[1, p], 0.0
        if e < 0 or counts[e] <= 0.0:
            continue
        for j in range(r):
            y -= s.rows[GRAD, j] * edges[j, p]
        y = min(max(y, counts[e] * rho[k + 1]), counts[e] * rho[k])
        payoff += counts[e] * v_at[k + 1] - tau[k] * (y - counts[e] * rho[k + 1])
        for i in range(at.shape[1]):
            if at[e, i] < r:
                residual[at[e, i]] += y
    for e in range(s.wholes[PROFILES]):
        price, seg, p = 0.0, place[0, e], place[1, e]
        for i in range(at.shape[1]):
            if at[e, i] < r:
                price += prices[at[e, i]]
        if p >= 0:
            off = max(off, abs(price - tau[s.basic[1, p]]))
        else:
            if seg < tau.size:
                off = max(off, price - tau[seg])
            if seg > 0:
                off = max(off, tau[seg - 1] - price)
    return payoff, off
