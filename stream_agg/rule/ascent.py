"""The reduced program on arrays that grow with the stream, solved by the compiled dual ascent (`kernel.py`).

A solve starts from the basis of the last one. The optimum does not depend on that: generic parts of both sides make the
basis unique, and what is published follows from the basis and from counts alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np

from stream_agg.errors import SolveError
from stream_agg.rule import exact, follow, kernel, layout
from stream_agg.rule.envelope import Envelope
from stream_agg.rule.layout import State
from stream_agg.rule.solution import Solution, generic
from stream_agg.rule.support import Floats, Ints, Profile, Support

OPERATIONS_PER_SECOND = 5e8
"""What a nominal second of a limit buys: counted, not clocked, so that a replay stops at the same pivot."""


JOINT = 256
"""Sums of prices that are made in advance for a group of experts: more take longer to make than they save."""


class Unbounded(Exception):  # noqa: N818 - an outcome, not a fault
    """The ascent has no end: no rho satisfies the hard rows."""


class Broken(Exception):  # noqa: N818
    """Rounding made the basis singular; another solver has to answer."""


def _unit(cost: Envelope, gamma: float) -> float:
    """What prices are measured in: next to the steepest slope, unless the penalty is so much larger that no price could
    reach it."""
    return cost.unit if math.isinf(gamma) else max(cost.unit, 2.0 ** (math.ceil(math.log2(gamma)) - 30))


def _groups(alphabets: Sequence[Sequence[float]]) -> tuple[list[int], int]:
    """Experts in groups of at most `JOINT` joint reports, silence among them: the first of each; and how many joint
    reports all groups have."""
    groups, sizes = [0], [1]
    for i, levels in enumerate(alphabets):
        joint = sizes[-1] * (len(levels) + 1)
        if joint > JOINT and i > groups[-1]:
            groups.append(i)
            sizes.append(len(levels) + 1)
        else:
            sizes[-1] = joint
    return [*groups, len(alphabets)], sum(sizes)


class Ascent:
    """One program and its current basis. `gamma` and `epsilon` may change (`terms`), counts only grow (`count`)."""

    def __init__(self, alphabets: Sequence[Sequence[float]], cost: Envelope, gamma: float, epsilon: float) -> None:
        self._unit, self.gamma, self.epsilon = _unit(cost, gamma), gamma, epsilon
        self._offsets = np.cumsum([0, *map(len, alphabets)])
        self._starts: list[int] = self._offsets.tolist()
        n, r, segments = len(alphabets), int(self._offsets[-1]), len(cost.slopes)
        rho = np.array(cost.ends[::-1], dtype=np.float64)
        tau = -np.array(cost.slopes[::-1], dtype=np.float64) / self._unit
        groups, table = _groups(alphabets)
        self._v_at = cost.value(rho) / self._unit
        rows = np.zeros((8, r + 1))
        rows[layout.LEVEL, :r] = np.concatenate([np.array(z, dtype=np.float64) for z in alphabets])
        rows[layout.GENERIC, :r] = generic(r)
        reals = np.zeros(6)
        reals[[layout.GAMMA, layout.EPSILON]] = gamma / self._unit, epsilon
        reals[[layout.RADIUS, layout.CAP]] = math.inf, 0.05
        room = 64
        self._state = State(
            tau=tau,
            rho=rho,
            ends=np.array([-math.inf, *tau, math.inf]),
            starts=self._offsets.astype(np.int64),
            groups=np.array(groups),
            rows=rows,
            segment=np.ones(r, dtype=np.int64),
            slot=np.arange(r),
            basic=np.stack([np.arange(r), np.full(r, layout.AT_ZERO)]),
            edges=np.eye(r),
            counts=np.zeros(room),
            shift=np.zeros(room),
            at=np.zeros((room, n), dtype=np.uint32),
            place=np.zeros((2, room), dtype=np.int32),
            held=np.zeros((r + 1, segments + 1)),
            codes=np.zeros((len(groups) - 1, room), dtype=np.uint32),
            near=np.zeros(room, dtype=np.uint32),
            near_codes=np.zeros((len(groups) - 1, room), dtype=np.uint32),
            price=np.zeros(room),
            ones=np.zeros(room),
            pull=np.zeros(room),
            work=np.zeros(room),
            table=np.zeros(table),
            reals=reals,
            wholes=np.zeros(11, dtype=np.int64),
        )
        self._index: dict[Profile, int] = {}
        self._loaded: list[tuple[Ints, int]] = []  # not in `_index` yet: who asks once never needs it
        self._box = follow.boxed(self._state)
        self._solved = False

    @classmethod
    def of(
        cls, alphabets: Sequence[Sequence[float]], cost: Envelope, gamma: float, epsilon: float, support: Support
    ) -> Ascent:
        """The program of counted profiles."""
        made = cls(alphabets, cost, gamma, epsilon)
        made._load(support.profiles, support.counts)
        return made

    @property
    def pivots(self) -> int:
        """Pivots since it was made."""
        return int(self._state.wholes[layout.PIVOTS])

    def count(self, profiles: Iterable[Profile]) -> None:
        """Count each profile once more."""
        at = np.fromiter(map(self._place, profiles), np.int64)
        if len(at):
            follow.count_each(self._box, at)
            self._solved = False

    def follow(self, profile: Profile, limit_s: float = math.inf) -> bool:
        """Count a profile. True where the `expected` prices are optimal still; False after a `solve` that found others,
        which raises what `solve` raises."""
        at = self._place(profile)  # first: it may move the box
        how = follow.follow(self._box, at, limit_s * OPERATIONS_PER_SECOND)
        self._solved = how == layout.OPTIMAL
        if how != layout.HELD:
            self._ended(how, limit_s)
        return how == layout.HELD

    def expect(self, published: Floats) -> None:
        """Prices (r,) to compare with, other than those of the last `solution`."""
        self._state.rows[layout.PUBLISHED, :-1] = published / self._unit
        self._state.wholes[[layout.PROVEN, layout.COMPARED]] = 0, -1

    def terms(self, gamma: float, epsilon: float) -> None:
        """Other terms for the same counts. With another gamma it starts from the origin: kinks have moved."""
        if gamma != self.gamma:
            self._state.reals[layout.GAMMA] = gamma / self._unit
            kernel.restart(self._state)
        if epsilon != self.epsilon:
            self._state.reals[layout.EPSILON] = epsilon
            self._state.wholes[layout.PROVEN] = 0
            kernel.regrade(self._state)
        if (gamma, epsilon) != (self.gamma, self.epsilon):
            self.gamma, self.epsilon, self._solved = gamma, epsilon, False

    def solve(self, limit_s: float = math.inf) -> None:
        """Pivot to the optimum. `Unbounded` where hard rows contradict, `SolveError` past the limit, in nominal
        seconds, `Broken` by rounding. After any of them the ascent is of no use."""
        if not self._solved:
            self._ended(follow.ascend(self._box, limit_s * OPERATIONS_PER_SECOND), limit_s)
            self._solved = True

    def prices(self) -> Floats:
        """lambda (r,) in units of payoff, as the basis at hand has it."""
        out = np.empty(len(self._state.slot) + 1)
        exact.prices(self._state, out)
        return out[:-1] * self._unit

    def solution(self) -> Solution:
        """The optimum, of which no rounding on the path to it is left."""
        state, out = self._state, np.empty((3, len(self._state.slot)))
        while True:
            refined, lower, payoff, excess = follow.publish(self._box, self._v_at, self._unit, out)
            if refined:
                return Solution(out[0], lower, payoff, excess, out[1], out[2], float(state.reals[layout.ROUNDS]))
            if not state.wholes[layout.AGE] or not kernel.refactor(state):
                raise Broken
            self._solved = False
            self.solve()

    def _ended(self, how: int, limit_s: float) -> None:
        if how == layout.INFEASIBLE:
            raise Unbounded
        if how == layout.LIMIT:
            raise SolveError(f"no optimum within {limit_s:g} nominal seconds")
        if how == layout.BROKEN:
            raise Broken

    def _place(self, e: Profile) -> int:
        """The number of a profile; a new one is to be admitted with the next call."""
        for profiles, first in self._loaded:
            self._index.update(zip(map(tuple, profiles.tolist()), count(first), strict=False))
        self._loaded.clear()
        at = self._index.get(e)
        if at is None:
            at = self._index[e] = len(self._index)
            self._make_room(at + 1)
            self._state.at[at] = [self._starts[i] + z if z >= 0 else self._starts[-1] for i, z in enumerate(e)]
        return at

    def _load(self, profiles: Ints, counts: Floats) -> None:
        """Profiles that are new, (k, n), with their counts (k,)."""
        first = int(self._state.wholes[layout.PROFILES])
        last = first + len(counts)
        self._make_room(last)
        state, r = self._state, len(self._state.slot)
        state.at[first:last] = np.where(profiles < 0, r, profiles + self._offsets[:-1])
        kernel.admit(state, first, last)
        kernel.count(state, first, last, counts)
        self._solved = False
        self._loaded.append((profiles, first))

    def _make_room(self, wanted: int) -> None:
        state, room = self._state, len(self._state.counts)
        if wanted <= room:
            return
        more = max(wanted, 2 * room) - room
        codes: Any = np.zeros((len(state.codes), more), dtype=np.uint32)
        self._state = state._replace(
            counts=np.append(state.counts, np.zeros(more)),
            shift=np.append(state.shift, np.zeros(more)),
            at=np.append(state.at, np.zeros((more, state.at.shape[1]), dtype=np.uint32), axis=0),
            codes=np.append(state.codes, codes, axis=1),
            price=np.append(state.price, np.zeros(more)),
            ones=np.append(state.ones, np.zeros(more)),
            pull=np.zeros(room + more),
            place=np.append(state.place, np.zeros((2, more), dtype=np.int32), axis=1),
            near=np.append(state.near, np.zeros(more, dtype=np.uint32)),
            near_codes=np.append(state.near_codes, codes, axis=1),
            work=np.zeros(room + more),
        )
        self._box = follow.boxed(self._state)
