"""A second implementation: the paper's programs written down naively for scipy, and random worlds to compare on.

Works on levels and payoffs as plain numbers; knows nothing of how the package solves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

import stream_agg as sa

Floats = NDArray[np.float64]
Levels = tuple[float | None, ...]


class Paper:
    """The programs over rho of one payoff table and one distribution of profiles, per round."""

    def __init__(self, spec: sa.SessionSpec, counts: Mapping[Levels, float]) -> None:
        self.payoffs = np.array(list(spec.actions.values()))
        self.profiles = [e for e, n in counts.items() if n > 0]
        weights = np.array([counts[e] for e in self.profiles], dtype=float)
        self.P = weights / weights.sum()
        told = [(i, z) for i in range(len(spec.experts)) for z in {e[i] for e in self.profiles} if z is not None]
        self.A = np.array([[p * (e[i] == z) for e, p in zip(self.profiles, self.P, strict=True)] for i, z in told])
        self.A = self.A.reshape(len(told), len(self.profiles))
        self.mass = self.A.sum(axis=1)
        self.b = np.array([z for _, z in told]) * self.mass

    def value(self, gamma: float, epsilon: float) -> float:
        """min_rho sum P max_a (...) + gamma * violations: by minimax the best worst case of any rule."""
        k, r = len(self.P), len(self.mass)
        slopes = self.payoffs[:, 1] - self.payoffs[:, 0]
        # v_e >= u(a,0) + rho_e (u(a,1) - u(a,0)) for every e, a; columns rho, violations, v
        rise = np.hstack([np.kron(np.eye(k), slopes[:, None]), np.zeros((k * len(slopes), r))])
        rows = np.hstack([rise, -np.kron(np.eye(k), np.ones((len(slopes), 1)))])
        cost = np.concatenate([np.zeros(k), np.full(r, _finite(gamma)), self.P])
        calibration, bound = self._calibration(epsilon)
        return self._solve(
            cost,
            np.vstack([np.hstack([calibration, np.zeros((2 * r, k))]), rows]),
            np.concatenate([bound, -np.tile(self.payoffs[:, 0], k)]),
            [*self._box(gamma), *[(None, None)] * k],
        )

    def worst_case(self, strategy: Callable[[Levels], Mapping[str, float]], gamma: float, epsilon: float) -> float:
        """What that strategy earns against the rho that is worst for it."""
        mixes = np.array([list(strategy(e).values()) for e in self.profiles])
        base, slope = mixes @ self.payoffs[:, 0], mixes @ (self.payoffs[:, 1] - self.payoffs[:, 0])
        cost = np.concatenate([self.P * slope, np.full(len(self.mass), _finite(gamma))])
        return float(self.P @ base) + self._solve(cost, *self._calibration(epsilon), self._box(gamma))

    def epsilon_min(self) -> float:
        """The least epsilon for which some rho is calibrated."""
        k = len(self.P)
        rows = np.vstack([np.hstack([self.A, -self.mass[:, None]]), np.hstack([-self.A, -self.mass[:, None]])])
        return self._solve(np.append(np.zeros(k), 1.0), rows, np.append(self.b, -self.b), [*[(0, 1)] * k, (0, None)])

    def least_violation(self, epsilon: float) -> float:
        """min_rho of the violations per round."""
        cost = np.concatenate([np.zeros(len(self.P)), np.ones(len(self.mass))])
        return self._solve(cost, *self._calibration(epsilon), self._box(1.0))

    def rho_range(self, profile: Levels, epsilon: float) -> tuple[float, float]:
        """Least and largest calibrated rho(profile)."""
        cost = np.zeros(len(self.P) + len(self.mass))
        cost[self.profiles.index(profile)] = 1.0
        at = (*self._calibration(epsilon), self._box(math.inf))
        return self._solve(cost, *at), -self._solve(-cost, *at)

    def _calibration(self, epsilon: float) -> tuple[Floats, Floats]:
        eye, margin = np.eye(len(self.mass)), epsilon * self.mass
        rows = np.vstack([np.hstack([self.A, -eye]), np.hstack([-self.A, -eye])])
        return rows, np.concatenate([self.b + margin, margin - self.b])

    def _box(self, gamma: float) -> list[tuple[float, float | None]]:
        return [*[(0.0, 1.0)] * len(self.P), *[(0.0, 0.0 if math.isinf(gamma) else None)] * len(self.mass)]

    @staticmethod
    def _solve(cost: Floats, rows: Floats, bound: Floats, box: Sequence[Any]) -> float:
        tight: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        found: Any = linprog(cost, A_ub=rows, b_ub=bound, bounds=box, method="highs", options=tight)
        assert found.success, found.message
        return float(found.fun)


def _finite(gamma: float) -> float:
    return 0.0 if math.isinf(gamma) else gamma


@pytest.fixture(scope="session")
def paper() -> type[Paper]:
    """The second implementation."""
    return Paper


@pytest.fixture(scope="session")
def make_spec() -> Callable[..., sa.SessionSpec]:
    """A spec from level lists (or counts) and payoff pairs."""

    def make(levels: Sequence[Any], payoffs: Sequence[Sequence[float]], **fields: Any) -> sa.SessionSpec:
        experts = {f"e{i}": {"levels": z} for i, z in enumerate(levels)}
        actions = {f"a{i}": list(pair) for i, pair in enumerate(payoffs)}
        return sa.SessionSpec.from_dict({"session": "s", "experts": experts, "actions": actions, **fields})

    return make


@pytest.fixture(scope="session")
def world(make_spec: Callable[..., sa.SessionSpec]) -> Callable[..., tuple[sa.SessionSpec, dict[Levels, int]]]:
    """A random spec with counted profiles; every third seed's forecasts come from one truth, so they nearly agree."""

    def make(seed: int, **fields: Any) -> tuple[sa.SessionSpec, dict[Levels, int]]:
        rng = random.Random(seed)
        levels = [
            rng.randint(2, 7)
            if rng.random() < 0.7
            else sorted(rng.sample([k / 20 for k in range(21)], rng.randint(1, 7)))
            for _ in range(rng.randint(1, 5))
        ]
        payoffs = [(round(rng.uniform(-3, 3), 2), round(rng.uniform(-3, 3), 2)) for _ in range(rng.randint(1, 6))]
        fields.setdefault("gamma", rng.choice([0.1, 0.5, 1, 3, 10, 100, "inf", "auto"]))
        fields.setdefault("epsilon", rng.choice([0.0, 0.0, 0.02, 0.05, 0.2]))
        spec = make_spec(levels, payoffs, **fields)
        alphabets = [a.levels for a in spec.experts.values()]
        silence = rng.choice([0.0, 0.15])
        counts: dict[Levels, int] = {}
        for _ in range(rng.randint(1, 40)):
            truth = rng.random()
            e = tuple(
                None
                if rng.random() < silence
                else (min(z, key=lambda x: abs(x - truth)) if seed % 3 == 0 else rng.choice(z))
                for z in alphabets
            )
            counts[e] = counts.get(e, 0) + rng.randint(1, 30)
        return spec, counts

    return make
