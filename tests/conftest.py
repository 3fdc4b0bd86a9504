"""Fixtures of several rooms: the paper's programs by another solver, embedded servers and a deployment of one's own on
them, the real data if it is there."""

from __future__ import annotations

import asyncio
import csv
import math
import os
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

import stream_agg as sa
from stream_agg.cli.local import servers
from stream_agg.session.warm import warm_up
from stream_agg.worker.broker import create_topics
from stream_agg.worker.settings import Settings

ROOT = Path(__file__).parent.parent
Floats = NDArray[np.float64]
Levels = tuple[float | None, ...]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiles what is not compiled yet, before any test's time begins."""
    if not session.config.option.collectonly:
        warm_up()


@pytest.fixture(scope="session")
def local() -> Iterator[Settings]:
    """Settings of one embedded broker and Redis for the whole run."""
    with servers(Settings()) as settings:
        yield settings


@pytest.fixture
def fresh(local: Settings) -> Callable[..., Settings]:
    """Makes a deployment nobody else uses on the shared servers: its own app name and topics, created."""

    def make(**changes: object) -> Settings:
        name = uuid.uuid4().hex[:8]
        topics = {f: f"{getattr(local, f)}-{name}" for f in Settings.__slots__ if f.startswith("topic_")}
        settings = replace(local, app=f"test-{name}", partitions=2, **topics, **changes)  # type: ignore[arg-type]
        asyncio.run(create_topics(settings))
        return settings

    return make


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """The path of a real data set, from STREAM_AGG_DATA or a `data` folder beside the project; skips without it."""
    places = [Path(os.environ["STREAM_AGG_DATA"])] if "STREAM_AGG_DATA" in os.environ else []
    places += sorted(ROOT.parent.glob("*/data"))

    def find(name: str) -> Path:
        for place in places:
            path = place / f"{name}.csv.gz"
            if path.exists():
                return path
        pytest.skip(f"the real forecasts {name}.csv.gz are not here: set STREAM_AGG_DATA to their folder")

    return find


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 1,500 rows: three experts, gaps, 12 rows a day, some outcomes never known."""
    rng = random.Random(5)
    path = tmp_path_factory.mktemp("made-up") / "rain.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["event_id", "time", "outcome", "ecmwf", "gfs", "icon"])
        for i in range(1500):
            day, p = i // 12, rng.random()
            reports = ["" if rng.random() < 0.1 else f"{min(max(rng.gauss(p, 0.2), 0), 1):.3f}" for _ in range(3)]
            outcome = "" if rng.random() < 0.05 else int(rng.random() < p)
            out.writerow([f"e{i}", date(2024, 1, 1) + timedelta(day), outcome, *reports])
    return path


class Paper:
    """A second implementation: the paper's programs of one payoff table and one distribution of profiles, per round.

    Written down naively on levels and payoffs as plain numbers; knows nothing of how the package solves.
    """

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

    def program(self, gamma: float, epsilon: float) -> float:
        """The same number the paper's way (eq. RMM_LP_dualized): one column for each profile and action."""
        k, (u0, u1) = len(self.P), self.payoffs.T
        simplices = np.kron(np.eye(k), np.ones(len(u0)))
        return self._maximin(np.kron(self.P, u0), np.kron(np.diag(self.P), u1 - u0), simplices, gamma, epsilon)

    def correlated(self, gamma: float, epsilon: float) -> float:
        """The best distribution over all d^k maps from profiles to actions (Proposition 1, right-hand side)."""
        maps = np.array(list(product(range(len(self.payoffs)), repeat=len(self.P))))
        base, slope = self.payoffs[maps, 0], (self.payoffs[:, 1] - self.payoffs[:, 0])[maps]
        return self._maximin(base @ self.P, (self.P * slope).T, np.ones((1, len(maps))), gamma, epsilon)

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

    def _maximin(self, base: Floats, slope: Floats, simplices: Floats, gamma: float, epsilon: float) -> float:
        """The best mix of columns, column j paying base_j + slope_j . rho; each row of `simplices` adds up to one.

        The adversary's minimum over rho is dualised: prices lambda+, lambda-, mu <= 0 of its calibration rows and of
        rho <= 1. A penalty gamma, instead of hard rows, is a lower bound on lambda.
        """
        k, r, margin = len(self.P), len(self.mass), epsilon * self.mass
        gain = np.concatenate([base, self.b + margin, margin - self.b, np.ones(k)])
        prices: tuple[float | None, float] = (None if math.isinf(gamma) else -gamma, 0.0)
        return -self._solve(
            -gain,
            np.hstack([-slope, self.A.T, -self.A.T, np.eye(k)]),
            np.zeros(k),
            [*[(0.0, None)] * len(base), *[prices] * (2 * r), *[(None, 0.0)] * k],
            np.hstack([simplices, np.zeros((len(simplices), 2 * r + k))]),
        )

    def _calibration(self, epsilon: float) -> tuple[Floats, Floats]:
        eye, margin = np.eye(len(self.mass)), epsilon * self.mass
        rows = np.vstack([np.hstack([self.A, -eye]), np.hstack([-self.A, -eye])])
        return rows, np.concatenate([self.b + margin, margin - self.b])

    def _box(self, gamma: float) -> list[tuple[float, float | None]]:
        return [*[(0.0, 1.0)] * len(self.P), *[(0.0, 0.0 if math.isinf(gamma) else None)] * len(self.mass)]

    @staticmethod
    def _solve(cost: Floats, rows: Floats, bound: Floats, box: Sequence[Any], ones: Floats | None = None) -> float:
        tight: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        sums = None if ones is None else np.ones(len(ones))
        found: Any = linprog(cost, rows, bound, ones, sums, box, method="highs", options=tight)
        assert found.success, found.message
        return float(found.fun)


def _finite(gamma: float) -> float:
    return 0.0 if math.isinf(gamma) else gamma


@pytest.fixture(scope="session")
def paper() -> type[Paper]:
    """The second implementation."""
    return Paper
