"""One program from scratch by four solvers: what each takes, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import scipy.sparse as sparse
from _clock import timed
from _worlds import Program, first, independent, latent
from scipy.optimize import linprog

import stream_agg as sa

SOLVERS = ("paper", "highs", "ascent", "solve")
"""The paper's LP by scipy's linprog; HiGHS on the reduced program; the compiled ascent on it; `sa.solve`."""


def papers(of: Program, limit_s: float) -> Callable[[], float | None]:
    """The paper's LP (eq. RMM_LP_dualized; prices of at least -gamma make it the penalised one) on seen profiles, built
    sparse: solves it to its value per round, or None past the limit. Columns x(e, a), lambda+, lambda-, mu."""
    seen, (u0, u1) = of.support, np.array(list(of.spec.actions.values())).T
    (k, n), r, d = seen.profiles.shape, len(seen.mass), len(u0)
    p, b = seen.counts / seen.total, seen.levels * seen.mass / seen.total
    incidence = sparse.csr_array((np.ones(k * n), (seen.rows.ravel(), np.repeat(np.arange(k), n))), shape=(r, k))
    each = sparse.eye_array(k, format="csr")
    gain = np.concatenate([np.kron(p, u0), b, -b, p])
    rows = sparse.hstack([sparse.kron(each, -(u1 - u0)[None]), incidence.T, -incidence.T, each], format="csr")
    sums = sparse.hstack([sparse.kron(each, np.ones((1, d))), sparse.csr_array((k, 2 * r + k))], format="csr")
    box = np.concatenate(
        [np.tile([0.0, math.inf], (k * d, 1)), np.tile([-of.gamma, 0.0], (2 * r, 1)), np.tile([-math.inf, 0.0], (k, 1))]
    )
    lp: Any = (-gain, rows, np.zeros(k), sums, np.ones(k), box)

    def solve() -> float | None:
        found: Any = linprog(*lp, method="highs", options={"time_limit": limit_s})
        if found.status not in (0, 1):
            raise RuntimeError(found.message)
        return -float(found.fun) if found.status == 0 else None

    return solve


def cold(world: str, of: Program, limit_s: float) -> dict[str, Any]:
    """One program by all four from arrays (`sa.solve`: from counts by levels): values per round, and what each took."""
    of.by_levels  # noqa: B018 - made before the clock runs

    def ascend() -> float:
        ascent = of.ascent()
        ascent.solve()
        return ascent.solution().lower / of.support.total

    works: dict[str, Callable[[], float | None]] = {
        "paper": papers(of, limit_s),
        "highs": lambda: of.robust().lower / of.support.total,
        "ascent": ascend,
        "solve": lambda: sa.solve(of.spec, of.by_levels).value,
    }
    done = {name: timed(work) for name, work in works.items()}
    values = [value for value, _ in done.values() if value is not None]
    return {
        "world": world,
        "experts": len(of.spec.experts),
        "k": len(of.counts),
        "rounds": of.support.total,
        "value": values[-1],
        "off": max(values) - min(values),
        "unfinished": [name for name, (value, _) in done.items() if value is None],
        "spent": {name: asdict(spent) for name, (_, spent) in done.items()},
    }


def colds(sizes: Sequence[tuple[int, int]], limit_s: float) -> list[dict[str, Any]]:
    """Both kinds of forecasters, 11 levels, at every (experts, k)."""
    found = []
    for world, make in (("latent", latent), ("independent", independent)):
        found += [cold(world, Program.of(n, 11, first(make(n, 11), k)), limit_s) for n, k in sizes]
    return found
