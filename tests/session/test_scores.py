"""Reports against a second implementation: plain folds of the published actions, and linear programs by scipy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from scipy.optimize import linprog
from scipy.stats import binomtest

import stream_agg as sa
from stream_agg.events import Forecast, Regret, State
from stream_agg.session.engine import Output

Event = Forecast | State
Put = Callable[[sa.Session, Event], list[Output]]
Feed = Callable[..., tuple[sa.SessionSpec, list[Event]]]
Profile = tuple[float | None, ...]
Lines = list[tuple[float, float]]


class Oracle:
    """What a session must have counted, from what it was told and what it published."""

    def __init__(self, spec: sa.SessionSpec) -> None:
        self.levels = [a.levels for a in spec.experts.values()]
        self.experts, self.actions, self.epsilon = list(spec.experts), dict(spec.actions), spec.epsilon
        self.seen: dict[Profile, int] = defaultdict(int)
        self.payoff0: dict[Profile, float] = defaultdict(float)
        self.slope: dict[Profile, float] = defaultdict(float)
        self.known: list[tuple[Profile, str, dict[str, float], int]] = []
        self.played: dict[str, tuple[Profile, str, dict[str, float]]] = {}
        self.early: dict[str, int] = {}

    def put(self, event: Event, outputs: list[Output]) -> None:
        """One event and what came of it."""
        if isinstance(event, State):
            assert event.state is not None
            self.early[event.event] = event.state
        for action in outputs:
            if isinstance(action, sa.Action):
                assert isinstance(event, Forecast)
                profile = tuple(
                    self.nearest(event.forecasts.get(name), levels)
                    for name, levels in zip(self.experts, self.levels, strict=True)
                )
                assert action.profile == dict(zip(self.experts, profile, strict=True))
                self.seen[profile] += 1
                for name, p in action.strategy.items():
                    u0, u1 = self.actions[name]
                    self.payoff0[profile] += p * u0
                    self.slope[profile] += p * (u1 - u0)
                self.played[event.event] = (profile, action.action, dict(action.strategy))
        if event.event in self.played and event.event in self.early:
            self.known.append((*self.played[event.event], self.early.pop(event.event)))

    @staticmethod
    def nearest(p: float | None, levels: Sequence[float]) -> float | None:
        """The level nearest to p; of two the lower."""
        return None if p is None else min(levels, key=lambda z: (round(abs(z - p), 9), z))

    def earned(self) -> tuple[float, float]:
        """Payoff of the drawn actions, and of the mixed ones."""
        return (
            math.fsum(self.actions[name][s] for _, name, _, s in self.known),
            math.fsum(p * self.actions[name][s] for _, _, mix, s in self.known for name, p in mix.items()),
        )

    def best_by(self, of: Callable[[Profile], Any]) -> float:
        """The best map from what `of` sees to actions, in hindsight: brute force."""
        groups: dict[Any, list[int]] = defaultdict(list)
        for profile, _, _, s in self.known:
            groups[of(profile)].append(s)
        return sum(max(math.fsum(u[s] for s in states) for u in self.actions.values()) for states in groups.values())

    def in_hindsight(self) -> float:
        """OIH: one expert's reports, level by level, silence among them."""
        return max(self.best_by(lambda e, i=i: e[i]) for i in range(len(self.experts)))  # type: ignore[misc]

    def off(self) -> dict[str, tuple[float, dict[float, float]]]:
        """expert -> (mean |frequency - level|, level -> |states - level * rounds|)."""
        found = {}
        for i, name in enumerate(self.experts):
            rounds = [(e[i], s) for e, _, _, s in self.known if e[i] is not None]
            if rounds:
                each = {z: abs(sum(s - z for y, s in rounds if y == z)) for z in self.levels[i]}
                found[name] = (sum(each.values()) / len(rounds), each)
        return found

    def rows(self) -> tuple[list[Profile], np.ndarray, np.ndarray, np.ndarray]:
        """Profiles, and A, b, N of every calibration row that was seen: | A rho - b | <= epsilon N."""
        profiles = sorted(self.seen, key=repr)
        at = [(i, z) for i, levels in enumerate(self.levels) for z in levels if any(e[i] == z for e in profiles)]
        held = np.array([[self.seen[e] * (e[i] == z) for e in profiles] for i, z in at], dtype=float)
        held = held.reshape(len(at), len(profiles))
        mass = held.sum(axis=1)
        return profiles, held, np.array([z for _, z in at]) * mass, mass

    def minimum(self, gamma: float, payoffs: Callable[[Profile], Lines]) -> tuple[float, float, float]:
        """min over rho of sum_e max over lines (c, d) of c + d rho(e), + gamma * violations; and the least and the
        largest that those penalties come to where it is attained (to a millionth: rho need not be unique).

        Columns: rho, then the height of each profile, then the violation of each row.
        """
        profiles, held, b, mass = self.rows()
        k, r, slack = len(profiles), len(b), self.epsilon * mass
        lines = [(j, c, d) for j, e in enumerate(profiles) for c, d in payoffs(e)]
        above = np.zeros((len(lines), 2 * k + r))
        for row, (j, _, d) in enumerate(lines):
            above[row, j], above[row, k + j] = d, -1
        sides = [np.hstack([sign * held, np.zeros((r, k)), -np.eye(r)]) for sign in (1, -1)]
        hard = math.isinf(gamma)
        penalty = np.concatenate([np.zeros(2 * k), np.full(r, 0.0 if hard else gamma)])
        cost = penalty + np.repeat([0.0, 1.0, 0.0], [k, k, r])
        rows, bound = np.vstack([above, *sides]), np.concatenate([[-c for _, c, _ in lines], b + slack, slack - b])
        box = [(0, 1)] * k + [(None, None)] * k + [(0, 0 if hard else None)] * r
        least = solved(cost, rows, bound, box)
        rows, bound = np.vstack([rows, cost]), np.append(bound, least + 1e-6)
        return least, solved(penalty, rows, bound, box), -solved(-penalty, rows, bound, box)

    def value(self, gamma: float) -> tuple[float, float, float]:
        """The best any rule can be sure of: the adversary answers it, by minimax, at its best response."""
        return self.minimum(gamma, lambda e: [(self.seen[e] * u0, self.seen[e] * (u1 - u0)) for u0, u1 in self.pairs()])

    def worst(self, gamma: float) -> tuple[float, float, float]:
        """The least that what was played earns."""
        return self.minimum(gamma, lambda e: [(self.payoff0[e], self.slope[e])])

    def pairs(self) -> list[tuple[float, float]]:
        return list(self.actions.values())

    def smallest_epsilon(self) -> float:
        """min eps with |A rho - b| <= eps N for some rho."""
        profiles, held, b, mass = self.rows()
        if not len(b):
            return 0.0
        k = len(profiles)
        sides = np.vstack([np.hstack([sign * held, -mass[:, None]]) for sign in (1, -1)])
        return solved([0.0] * k + [1.0], sides, np.concatenate([b, -b]), [(0, 1)] * k + [(0, None)])


def solved(cost: Any, rows: Any, bound: Any, box: Any) -> float:
    result = linprog(cost, rows, bound, bounds=box)
    assert result.status == 0, result.message
    assert result.fun is not None
    return result.fun


def check_robust(spec: sa.SessionSpec, report: Regret, oracle: Oracle) -> None:
    """The robust part, where it covers all rounds that the oracle has seen."""
    part, t = report.robust, sum(oracle.seen.values())
    assert part.round == t
    gamma = math.inf if part.gamma is None else part.gamma
    assert spec.gamma in ("auto", gamma)
    (value, *value_penalty), (worst, *penalty) = oracle.value(gamma), oracle.worst(gamma)
    assert part.value * t == pytest.approx(value, abs=1e-7 * t)
    assert part.worst_case * t == pytest.approx(worst, abs=1e-7)
    assert part.regret == pytest.approx(value - worst, abs=1e-7 * t)
    assert part.regret >= -1e-7
    for said, (least, most) in [(part.value_penalty, value_penalty), (part.penalty, penalty)]:
        assert least - 1e-5 <= said * t <= most + 1e-5
    assert part.epsilon_min == pytest.approx(oracle.smallest_epsilon(), abs=1e-7)
    n, u = len(spec.experts), max(abs(x) for pair in spec.actions.values() for x in pair)
    m = math.prod(len(a.levels) + 1 for a in spec.experts.values())
    k = n * gamma
    proven = 4 * (u + k) * math.sqrt((m - 1) * t) + 2 * u + 2 * k + (2 * k * spec.epsilon * t if spec.epsilon else 0)
    assert part.bound == pytest.approx(min(proven, 2 * u * t))
    assert part.regret <= part.bound


def check_realized(report: Regret, oracle: Oracle) -> None:
    part = report.realized
    payoff, expected = oracle.earned()
    contextual = oracle.best_by(lambda e: e)
    assert part.states == len(oracle.known)
    assert part.payoff == pytest.approx(payoff, abs=1e-9)
    assert part.expected_payoff == pytest.approx(expected, abs=1e-9)
    assert part.optimal_in_hindsight == pytest.approx(oracle.in_hindsight(), abs=1e-9)
    assert part.contextual == pytest.approx(contextual, abs=1e-9)
    assert part.contextual_regret == pytest.approx(contextual - payoff, abs=1e-9)
    assert report.open == len(oracle.played) - len(oracle.known)
    off = oracle.off()
    assert report.calibration.keys() == off.keys()
    for name, (error, each) in off.items():
        assert report.calibration[name].error == pytest.approx(error, abs=1e-9)
        found, i = report.calibration[name], oracle.experts.index(name)
        assert each[found.worst_level] == pytest.approx(max(each.values()), abs=1e-9)
        assert found.n == sum(e[i] is not None for e, *_ in oracle.known)
        there = [s for e, _, _, s in oracle.known if e[i] == found.worst_level]
        interval = binomtest(sum(there), len(there)).proportion_ci(method="wilson")
        assert found.interval == pytest.approx((interval.low, interval.high), abs=1e-9)


@pytest.mark.parametrize("seed", range(16))
def test_reports_are_what_a_second_implementation_says(feed: Feed, put: Put, seed: int) -> None:
    spec, events = feed(seed, 90)
    session, oracle = sa.Session(spec), Oracle(spec)
    reports = 0
    for event in events:
        before = sum(oracle.seen.values())
        outputs = put(session, event)
        for output in outputs:
            if isinstance(output, Regret) and output.reason == "solve":
                assert output.round == before
                check_robust(spec, output, oracle)  # the action that follows is not in it
                reports += 1
        oracle.put(event, outputs)
        for output in outputs:
            if isinstance(output, Regret) and output.reason == "states":
                check_realized(output, oracle)
                reports += 1
    assert reports > 10
    check_robust(spec, session.report(), oracle)
    check_realized(session.report(), oracle)
    check_tallies(session, oracle)


@pytest.mark.parametrize("seed", range(8))
def test_regret_is_of_all_that_was_played_whatever_was_forgotten(feed: Feed, put: Put, seed: int) -> None:
    """Repeats are not counted, decisions past their window are; a new gamma and epsilon judge the old rounds too."""
    spec, events = feed(seed, 60, messy=True)
    session, oracle = sa.Session(spec), Oracle(spec)
    for i, event in enumerate(events):
        if i == len(events) // 2:
            spec = replace(spec, gamma=[3.0, "auto"][seed % 2], epsilon=0.1)
            assert session.change(spec)
            oracle.epsilon = 0.1
        oracle.put(event, put(session, event))
    assert session.counters.counts["duplicate"] > 0
    assert len(session.events) < len(oracle.played)
    check_robust(spec, session.report(), oracle)
    check_robust(spec, session.close(), oracle)


@pytest.mark.parametrize("schedule", [{"every": 1}, {"growth": 0.05}, {"certified": 0.1}])
@pytest.mark.parametrize("gamma", [2.0, "auto", "inf"])
def test_orders_nobody_can_foresee_cost_a_sixth_of_the_rounds(schedule: Any, gamma: Any) -> None:
    """Section 4.3: two orders of forecasts with the same first third; the regret of one of them is at least T/6."""
    expert, third = {"levels": 3}, 20
    record = {"session": "s", "experts": {"x": expert, "y": expert}, "actions": {"0": [1, 0], "1": [0, 1]}}
    spec = sa.SessionSpec.from_dict({**record, "gamma": gamma, "schedule": schedule})
    regrets, first = [], []
    for end in (0.0, 1.0):
        profiles = [(0.5, 0.5)] * third + [(0.5, end)] * third + [(end, 0.5)] * third
        session = sa.Session(spec)
        actions = [
            session.decide(f"e{t}", {"x": x, "y": y}, "2026-01-01T00:00:00Z") for t, (x, y) in enumerate(profiles)
        ]
        first.append([(action.strategy, action.action) for action in actions[:third]])
        part = session.close().robust
        assert part.round == 3 * third
        assert part.value == pytest.approx(1.0, abs=1e-9)
        assert part.epsilon_min == 0.0
        regrets.append(part.regret)
    assert first[0] == first[1]
    assert max(regrets) >= 3 * third / 6 - 1e-6


def check_tallies(session: sa.Session, oracle: Oracle) -> None:
    """The stored accumulators N, C, D, n0, n1, by the text of their profile."""
    rows = session.tables()["profiles"]
    assert len(rows) == len(oracle.seen)
    for profile in oracle.seen:
        text = " ".join("-" if z is None else repr(z) for z in profile)
        seen, payoff0, slope, n0, n1 = orjson.loads(rows[text])
        states = [s for e, _, _, s in oracle.known if e == profile]
        assert (seen, n0, n1) == (oracle.seen[profile], states.count(0), states.count(1))
        assert payoff0 == pytest.approx(oracle.payoff0[profile], abs=1e-9)
        assert slope == pytest.approx(oracle.slope[profile], abs=1e-9)
