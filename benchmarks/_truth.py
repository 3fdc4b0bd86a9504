"""The paper's robust benchmark at a known distribution of profiles, by scipy: a second implementation.

It shares no code with stream_agg. Calibration is exact here (epsilon = 0) and a hard constraint, so rho ranges
over C(P): sum_{e: e^i = z} P(e) (rho(e) - z) = 0 for every expert i and level z (eq. cali_true_prob).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Floats = NDArray[np.float64]
Profile = tuple[int, ...]


@dataclass(frozen=True)
class Truth:
    """Levels of every expert, ascending; payoffs (d, 2) of actions in state 0 and 1; P(e) in the order
    of `profiles`, shape (m,)."""

    levels: tuple[tuple[float, ...], ...]
    payoffs: Floats
    chances: Floats

    @property
    def profiles(self) -> list[Profile]:
        """All m profiles, as indices of levels."""
        return list(product(*(range(len(z)) for z in self.levels)))

    def robust(self, gamma: float = math.inf) -> float:
        """RMM per round = min_{rho in C(P)} sum_e P(e) max_a [(1 - rho) u(a,0) + rho u(a,1)] (Sion's theorem), or with
        a finite gamma the penalised value: rho anywhere in [0, 1], plus gamma sum_{i,z} |sum_e P(e) (rho(e) - z)|.

        Columns: rho(e); the payoff v(e) at e, at least that of every action; what rows lack, and what they exceed.
        """
        m, d = len(self.chances), len(self.payoffs)
        u0, u1 = self.payoffs.T
        rows, right = self._calibration()
        r, hard = len(rows), math.isinf(gamma)
        above = np.hstack(
            [np.kron((u1 - u0)[:, None], np.eye(m)), -np.tile(np.eye(m), (d, 1)), np.zeros((d * m, 2 * r))]
        )
        return _least(
            np.concatenate([np.zeros(m), self.chances, np.full(2 * r, 0.0 if hard else gamma)]),
            A_ub=above,
            b_ub=-np.repeat(u0, m),
            A_eq=np.hstack([rows, np.zeros((r, m)), np.eye(r), -np.eye(r)]),
            b_eq=right,
            bounds=[(0, 1)] * m + [(None, None)] * m + [(0, 0 if hard else None)] * 2 * r,
        )

    def enough(self) -> float:
        """A gamma for which the penalised value is RMM: the largest payoff slope, doubled until it is. That is all of
        "sufficiently large" that the proof of Theorem "online_regret" uses at epsilon = 0: of any one rule the
        penalised worst case is no better than the calibrated one, whatever gamma."""
        gamma = float(np.abs(self.payoffs[:, 1] - self.payoffs[:, 0]).max()) or 1.0
        while self.robust() - self.robust(gamma) > 1e-7:
            gamma *= 2
        return gamma

    def worst(self, in_state_0: Floats, rise: Floats) -> float:
        """min_{rho in C(P)} sum_e [in_state_0(e) + rise(e) rho(e)]: what was played, (m,) each, at its worst."""
        rows, right = self._calibration()
        scale = float(np.abs(rise).max()) or 1.0  # the solver's tolerances are absolute
        return float(in_state_0.sum()) + scale * _least(rise / scale, A_eq=rows, b_eq=right, bounds=(0, 1))

    def _calibration(self) -> tuple[Floats, Floats]:
        """sum_{e: e^i = z} P(e) rho(e) = z P(e^i = z), as rows (r, m) and right-hand sides (r,)."""
        profiles = np.array(self.profiles)
        rows, right = [], []
        for i, levels in enumerate(self.levels):
            for at, z in enumerate(levels):
                rows.append(np.where(profiles[:, i] == at, self.chances, 0.0))
                right.append(z * rows[-1].sum())
        return np.array(rows), np.array(right)


def _least(cost: Floats, **program: object) -> float:
    found = linprog(cost, method="highs", **program)  # type: ignore[call-overload]
    if found.status != 0:
        raise ValueError(f"no rho is calibrated, or the solver stopped: {found.message}")
    return float(found.fun)
