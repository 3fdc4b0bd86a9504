"""The same account a second time, slowly: folds the input topics in plain Python. Shares no code with the package.

It is given what the topics hold and what was published, and says where the two disagree. What it takes from the
published actions is their strategy, and `states_seen`, which tells how the two input topics were interleaved.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

import numpy as np
from scipy.optimize import linprog

Place = tuple[str, int, int]
"""Topic ("forecasts" or "states"), partition, offset."""
CLOSE = 1e-9
LARGEST, DEEPEST = 1 << 17, 8
"""Bytes of an event, and values within values: the settings' defaults."""
_DAYS = re.compile(r"P(\d+)D")


class Refused(Exception):  # noqa: N818 - it is no error of ours
    """A record that has to be a dead letter, with its reason."""


def event_of(value: bytes, kind: str) -> dict[str, Any]:
    """The checked record of a topic; `Refused` where it is none."""
    if len(value) > LARGEST:
        _refuse("limit")
    try:
        record = json.loads(value.decode(), parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        _refuse("bad_json")
    if _depth(record) > DEEPEST:
        _refuse("limit")
    if not isinstance(record, dict):
        _refuse("bad_event")
    for name in ("session", "event"):
        text = record.get(name)
        if not isinstance(text, str) or not 0 < len(text) <= 512:
            _refuse("bad_event")
    record["us"] = _microseconds(record.get("time"))
    if kind == "states":
        known = record.get("state")
        if isinstance(known, bool) or known not in (0, 1) or record.get("payoff") is not None:
            _refuse("bad_event")
        return record
    reports = record.get("forecasts")
    if not isinstance(reports, dict):
        _refuse("bad_event")
    for p in reports.values():
        if p is not None and not (type(p) in (int, float) and 0 <= p <= 1):
            _refuse("bad_event")
    return record


def _depth(value: Any) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _finite(text: str) -> float:
    number = float(text)
    return number if abs(number) <= sys.float_info.max else _no_number(text)


def _no_number(text: str) -> Any:
    _refuse("bad_json")


def _refuse(reason: str) -> Any:
    raise Refused(reason)


def _microseconds(text: Any) -> int:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return int((moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")) / timedelta(microseconds=1))
    except (AttributeError, ValueError, TypeError):
        return int(_refuse("bad_event"))


def number_of(seed: int, session: str, event: str) -> float:
    """The number in [0, 1) that draws the action of an event."""
    text = f"{seed}:{len(session.encode())}:{session}{event}".encode()
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11) / 2**53


@dataclass
class Round:
    """A decision as the account needs it."""

    number: int
    us: int
    profile: tuple[Any, ...]
    action: str
    strategy: Mapping[str, float]
    state: int | None = None


@dataclass
class Account:
    """What one session must hold after the records that `forecast` and `state` were given."""

    spec: Mapping[str, Any]
    round: int = 0
    states_seen: int = 0
    states: int = 0
    payoff: float = 0.0
    expected: float = 0.0
    forecast_us: int | None = None
    state_us: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    rounds: dict[str, Round] = field(default_factory=dict)
    parked: dict[str, tuple[int, int, Place, int]] = field(default_factory=dict)
    """event -> (time, state, place, number among the states)"""
    tallies: dict[tuple[Any, ...], list[float]] = field(default_factory=dict)
    """profile -> rounds, sum of x.u0, sum of x.(u1 - u0), known rounds in state 0 and in state 1"""

    def __post_init__(self) -> None:
        self.deadline_us = int(_DAYS.fullmatch(self.spec["state_deadline"])[1]) * 86_400_000_000  # type: ignore[index]
        self.levels = {name: [k / (e["levels"] - 1) for k in range(e["levels"])] for name, e in self._experts.items()}
        self.dead: list[tuple[Place, str]] = []
        self.learned: list[tuple[int, int]] = []
        self._by_time: list[tuple[int, str]] = []
        self._parked_by_time: list[tuple[int, str]] = []

    @property
    def _experts(self) -> Mapping[str, Any]:
        return self.spec["experts"]  # type: ignore[no-any-return]

    def profile(self, reports: Mapping[str, float | None]) -> tuple[Any, ...]:
        """The nearest level of every expert, the lower one of two; None for silence."""
        if set(reports) - set(self._experts):
            _refuse("unknown_expert")
        found: list[Any] = []
        for name, levels in self.levels.items():
            p = reports.get(name)
            steps = itertools.pairwise(levels)
            found.append(None if p is None else levels[sum(p > (a + b) / 2 + 1e-9 for a, b in steps)])
        return tuple(found)

    def forecast(self, event: str, us: int, profile: tuple[Any, ...], action: Mapping[str, Any]) -> None:
        """A decision, with the strategy and draw that were published."""
        chosen, strategy = action["action"], action["strategy"]
        self.round += 1
        self.rounds[event] = Round(self.round, us, profile, chosen, strategy)
        heappush(self._by_time, (us, event))
        tally = self.tallies.setdefault(profile, [0, 0.0, 0.0, 0, 0])
        tally[0] += 1
        for name, share in strategy.items():
            u0, u1 = self.spec["actions"][name]
            tally[1] += share * u0
            tally[2] += share * (u1 - u0)
        if event in self.parked:
            early_us, state, place, _ = self.parked.pop(event)
            self._learn(event, early_us, state, place)

    def arrives(self, us: int) -> None:
        """A forecast of that time is about to be decided: what is past its time goes."""
        self.forecast_us = max(us, self.forecast_us or us)
        self._expire()

    def state(self, event: str, us: int, state: int, place: Place) -> None:
        """A state, whenever it comes."""
        self.states_seen += 1
        self.state_us = max(us, self.state_us or us)
        if event in self.rounds:
            self._learn(event, us, state, place)
        elif event not in self.parked:
            self.parked[event] = (us, state, place, self.states_seen)
            heappush(self._parked_by_time, (us, event))
        elif self.parked[event][1] == state:
            self.counts["duplicate"] += 1
        else:
            self._drop("conflict", place)
        self._expire()

    def draws(self, event: str, strategy: Mapping[str, float]) -> str:
        """The action that the strategy gives to this event."""
        at, total, last = number_of(self.spec["seed"], self.spec["session"], event), 0.0, ""
        for name in self.spec["actions"]:
            if strategy.get(name):
                last, total = name, total + strategy[name]
                if at < total:
                    return name
        return last

    def hindsight(self) -> tuple[float, float]:
        """The best single expert's best map from reports to actions, and the best map from profiles to actions."""
        if not self.states:
            return 0.0, 0.0
        return max(self._best(lambda e, i=i: e[i]) for i in range(len(self._experts))), self._best(lambda e: e)

    def robust(self, gamma: float) -> tuple[float, float]:
        """Per round: what the best rule guarantees, and what the strategies that were played do, by linear programs."""
        profiles = sorted(self.tallies, key=repr)
        table = np.array([self.tallies[e] for e in profiles])
        total = table[:, 0].sum()
        share, slope = table[:, 0] / total, table[:, 2] / total
        told = sorted({(i, z) for e in profiles for i, z in enumerate(e) if z is not None})
        rows = np.array([[w * (e[i] == z) for e, w in zip(profiles, share, strict=True)] for i, z in told])
        due = np.array([z for _, z in told]) * rows.sum(axis=1)
        k, r, u = len(profiles), len(told), np.array(list(self.spec["actions"].values()), dtype=float)
        off = np.block([[rows, -np.eye(r)], [-rows, -np.eye(r)]])
        limit, box = np.concatenate([due, -due]), [(0.0, 1.0)] * k + [(0.0, None)] * r
        worst = table[:, 1].sum() / total + _least(np.append(slope, np.full(r, gamma)), off, limit, box)
        rise = np.hstack([np.kron(np.eye(k), (u[:, 1] - u[:, 0])[:, None]), np.zeros((k * len(u), r))])
        above = np.hstack([rise, -np.kron(np.eye(k), np.ones((len(u), 1)))])
        every = np.vstack([np.hstack([off, np.zeros((2 * r, k))]), above])
        cost = np.concatenate([np.zeros(k), np.full(r, gamma), share])
        best = _least(cost, every, np.append(limit, -np.tile(u[:, 0], k)), [*box, *[(None, None)] * k])
        return best, worst

    def _best(self, group: Any) -> float:
        groups: dict[Any, list[float]] = {}
        for e, tally in self.tallies.items():
            known = groups.setdefault(group(e), [0, 0])
            known[0], known[1] = known[0] + tally[3], known[1] + tally[4]
        payoffs = list(self.spec["actions"].values())
        return sum(max(n0 * u0 + n1 * u1 for u0, u1 in payoffs) for n0, n1 in groups.values())

    def _learn(self, event: str, us: int, state: int, place: Place) -> None:
        decided = self.rounds[event]
        if decided.state is not None:
            if decided.state == state:
                self.counts["duplicate"] += 1
            else:
                self._drop("conflict", place)
            return
        if us - decided.us > self.deadline_us:
            self._drop("late", place)
            return
        decided.state = state
        self.states += 1
        self.payoff += self.spec["actions"][decided.action][state]
        self.expected += sum(share * self.spec["actions"][name][state] for name, share in decided.strategy.items())
        self.tallies[decided.profile][3 + state] += 1
        self.learned.append((self.round, self.states))

    def _expire(self) -> None:
        if self.forecast_us is None:
            return
        if self.state_us is not None:
            past = min(self.forecast_us, self.state_us) - 2 * self.deadline_us
            while self._by_time and self._by_time[0][0] < past:
                _, event = heappop(self._by_time)
                self.counts["expired"] += self.rounds.pop(event).state is None
        past = self.forecast_us - self.deadline_us
        while self._parked_by_time and self._parked_by_time[0][0] < past:
            us, event = heappop(self._parked_by_time)
            if event in self.parked and self.parked[event][0] == us:
                self._drop("unknown", self.parked.pop(event)[2])

    def _drop(self, reason: str, place: Place) -> None:
        self.counts[reason] += 1
        self.dead.append((place, reason))


def _least(cost: Any, rows: Any, limit: Any, box: Sequence[Any]) -> float:
    tight: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found: Any = linprog(cost, rows, limit, bounds=box, method="highs", options=tight)
    if not found.success:
        raise ArithmeticError(found.message)
    return float(found.fun)


def differs(told: float | None, known: float) -> bool:
    """More than 1e-9, relative above 1."""
    return told is None or abs(told - known) > CLOSE * max(1.0, abs(known))


def same(pairs: Iterable[tuple[str, Any, Any]]) -> list[str]:
    """What differs among (name, published, known)."""
    return [
        f"{name} is {told!r}, not {known!r}"
        for name, told, known in pairs
        if (differs(told, known) if isinstance(known, float) else told != known)
    ]
