"""The arrays of a compiled program and the names of their rows. `kernel.py` says what program it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OPTIMAL, INFEASIBLE, LIMIT, BROKEN, HELD = range(5)

SNAP = 1e-7
FLAT = 1e-10  # a direction that moves a price by less does not move it

LAM, GRAD, MASS, LEVEL, GENERIC, CENTRE, PUBLISHED, RESIDUAL = range(8)  # rows of `State.rows`
GAMMA, EPSILON, ROUNDS, RADIUS, MOVED, CAP = range(6)  # of `State.reals`; MOVED: how far prices went in SINCE pivots
PROFILES, LISTED, PIVOTS, AGE, SINCE, TRACKED, COMPARED, PROVEN, NEXT, VAIN, WAIT = range(11)  # of `State.wholes`
# AGE: pivots since edges were made anew. COMPARED: pivots when prices were the published ones. PROVEN: whether `ones`
# and RESIDUAL prove that they are still (`slack.py`); NEXT: profile to go on with. VAIN: pivots that changed no price
# since; WAIT: after how many a proof is tried.

AT_MINUS, AT_ZERO, AT_PLUS = 0, 1, 2  # kinks of a row
REFACTOR, RELIST = 200, 16  # pivots until edges and candidates are made anew


class State(NamedTuple):
    """Arrays of one program: k profiles of n experts, r rows, L kinks of phi.

    `tau` (L,) kinks ascending, `ends` (L+2,) the same between infinities, `rho` (L+1,) slope of phi after so many of
    them; `starts` (n+1,) first row of each expert, `groups` (G+1,) first expert of each group; `rows` (8, r+1) see
    above, the last entry is for silent experts and stays 0; `segment` (r,) the interval of lambda between its kinks,
    `slot` (r,) where a row is basic, or -1; `basic` (2, r) what is basic (row, or r + profile) and at which kink;
    `edges` (r, r): column p is the direction in which only the basic kink p is left, and the row of a basic row is a
    unit vector; `counts`, `shift` (cap,), `at` (cap, n) rows of a profile, `place` (2, cap) its segment and its slot or
    -1; `held` (r+1, L+1) counts of nonbasic profiles by row and segment, in the last row of all.

    `codes` (G, cap) say which joint reports of a group a profile has: places in `table`, where their sums are made. The
    line search looks at candidates, those that a move by less than RADIUS from CENTRE can bring to a kink: `near`
    (cap,) which, `near_codes` (G, cap), `price` (cap,) their shifted prices where TRACKED, `pull` (cap,) how fast they
    move. `ones` (cap,) is N rho of every profile where PROVEN; `work` (cap,) is room to work in.
    """

    tau: Floats
    rho: Floats
    ends: Floats
    starts: Ints
    groups: Ints
    rows: Floats
    segment: Ints
    slot: Ints
    basic: Ints
    edges: Floats
    counts: Floats
    shift: Floats
    at: Ints
    place: Ints
    held: Floats
    codes: Ints
    near: Ints
    near_codes: Ints
    price: Floats
    ones: Floats
    pull: Floats
    work: Floats
    table: Floats
    reals: Floats
    wholes: Ints
