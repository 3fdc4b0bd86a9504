"""From counts to rules: which gamma and epsilon, which solver. Keeps the program of a growing stream warm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from operator import getitem
from typing import Any

import numpy as np

from stream_agg.errors import EventError, InfeasibleError
from stream_agg.rule import program
from stream_agg.rule.ascent import Ascent, Broken, Unbounded
from stream_agg.rule.envelope import envelope
from stream_agg.rule.epsilon import Calibration, smallest_epsilon
from stream_agg.rule.rule import Rule, rule_of, steepest, unseen_rule
from stream_agg.rule.solution import DECIMALS, TOLERANCE, Solution
from stream_agg.rule.support import Floats, Levels, Profile, Support
from stream_agg.spec import SILENT, SessionSpec

AUTO_GAMMA_DOUBLINGS = 6
"""`gamma: "auto"` stops at 64 times the largest slope: past that, prices are the sign of almost infeasible rows."""

AUTO_GAMMA_EXCESS = 1.1
"""Where calibration is infeasible, no gamma is exact; then it is large enough when the worst rho violates calibration
by no more than this times the least violation there is."""

AUTO_EPSILON = 1.5
"""`epsilon: "auto"` is this times the smallest feasible one. At the smallest, hard prices have no bound (`benchmarks/
smallest_epsilon.py` prints the largest against the margin); by half as much again they have settled, and the guarantee
is still about forecasts that err little more than they must."""


class Solver:
    """The rule of one stream, solved from where the last solve ended. It depends on the counts alone, not on that.

    `counted` gives the profiles seen so far; it is asked once, and again after a failure. From then on, `count`.
    """

    def __init__(self, spec: SessionSpec, counted: Callable[[], Support]) -> None:
        self._spec, self._counted = spec, counted
        self._cost = envelope(tuple(spec.actions.values()))
        self._ascent: Ascent | None = None
        self._waiting: list[Profile] = []
        self._found: Solution | None = None
        self._expected: Rule | None = None
        self._factor = 1.0

    def count(self, profile: Profile) -> None:
        """One more round with that profile."""
        if self._factor != 1.0:  # parts of rounds are solved in a unit that follows from all of them
            self._ascent = None
        elif self._ascent is not None:
            self._waiting.append(profile)

    def holds(self, rule: Rule) -> bool:
        """Whether the prices of a rule are still optimal with the rounds counted since, on its own terms; False also
        where only `rule` can tell. Raises what `rule` raises."""
        ascent = self._ascent
        if ascent is None or len(self._waiting) != 1 or (ascent.gamma, ascent.epsilon) != (rule.gamma, rule.epsilon):
            ascent = self._solved(rule.gamma, rule.epsilon)
            return ascent is not None and self._same(ascent.prices(), rule)
        if rule is not self._expected:
            ascent.expect(rule.flat[:-1])
            self._expected = rule
        profile = self._waiting.pop()
        self._ascent = None  # unless it ends well
        try:
            held = ascent.follow(profile, self._spec.solve_limit_s)
        except Unbounded:
            raise InfeasibleError(rule.epsilon, smallest_epsilon(self._support())) from None
        except Broken:
            return False
        self._ascent = ascent
        return held

    def _same(self, prices: Floats, rule: Rule) -> bool:
        """Whether prices (r,) are a rule's."""
        return float(np.abs(prices - rule.flat[:-1]).max()) <= 10.0 ** (1 - DECIMALS) * self._cost.unit

    def rule(self, gamma: float, epsilon: float, least: Callable[[], float] | None = None) -> Rule:
        """The rule at these terms; `least` finds its `epsilon_min` if that is known. `InfeasibleError` where hard rows
        contradict, `SolveError` past the spec's limit."""
        try:
            ascent = self._solved(gamma, epsilon)
            found = ascent.solution() if ascent else program.robust(self._support(), self._cost, gamma, epsilon)
        except Broken:
            self._ascent = None
            found = program.robust(self._support(), self._cost, gamma, epsilon)
        self._found = found.times(1 / self._factor)
        self._expected = rule_of(self._spec, self._cost, gamma, epsilon, self._found, least or self._least())
        return self._expected

    def settle(self, measured: float = 0.0) -> Rule:
        """The rule with its terms chosen anew where the spec leaves them open; `measured` is for `epsilon_of`.

        `gamma: "auto"` starts from max_a |u(a,1) - u(a,0)| and doubles until calibration binds: the penalty is exact,
        or where rows contradict each other the worst rho violates them hardly more than any must.
        """
        spec, calibration = self._spec, Calibration(self._support())

        def least() -> float:
            return calibration.smallest

        epsilon = epsilon_of(spec, least, measured)
        if spec.gamma == math.inf and least() > epsilon + TOLERANCE:
            raise InfeasibleError(epsilon, least())
        gamma = steepest(spec) if spec.gamma == "auto" else spec.gamma
        rule = self.rule(gamma, epsilon, least)
        if spec.gamma != "auto" or rule.exact:
            return rule
        feasible = least() <= epsilon + TOLERANCE
        enough = 0.0 if feasible else AUTO_GAMMA_EXCESS * calibration.violation(epsilon)
        calibration.release()
        for _ in range(AUTO_GAMMA_DOUBLINGS):
            if rule.exact or 0.0 < rule.violation <= enough:
                break
            gamma *= 2
            rule = self.rule(gamma, epsilon, least)
        return rule

    @property
    def found(self) -> Solution:
        """The solution behind the last rule made."""
        assert self._found is not None  # noqa: S101 - a rule was made
        return self._found

    def _solved(self, gamma: float, epsilon: float) -> Ascent | None:
        """The ascent at its optimum; None where it broke even from a fresh start."""
        for _ in range(2):
            fresh = self._ascent is None
            ascent = self._ascent or Ascent.of(self._alphabets, self._cost, gamma, epsilon, self._support())
            try:
                if self._waiting:
                    ascent.count(self._waiting)
                    self._waiting.clear()
                ascent.terms(gamma, epsilon)
                self._ascent = None  # unless it ends well
                ascent.solve(self._spec.solve_limit_s)
            except Unbounded:
                raise InfeasibleError(epsilon, smallest_epsilon(self._support())) from None
            except Broken:
                if fresh:
                    return None
                continue
            self._ascent = ascent
            return ascent
        return None

    def _least(self) -> Callable[[], float]:
        counted = self._support()  # now: rounds go on, and the rule's question is about these
        return cache(lambda: smallest_epsilon(counted))

    def _support(self) -> Support:
        whole, self._factor = self._counted().in_whole_rounds()
        return whole

    @property
    def _alphabets(self) -> list[tuple[float, ...]]:
        return [a.levels for a in self._spec.experts.values()]


def solve(spec: SessionSpec, counts: Mapping[Levels, float]) -> Rule:
    """The robust rule of counted profiles (Algorithm 1's program, eq. penalized_SP, by its dual).

    `counts`: profile of levels in the spec's order of experts (None: silent) -> how often it was seen.
    `InfeasibleError` where gamma is inf and no rho is calibrated within epsilon; `EventError` for a profile that does
    not fit; `SolveError` when the solver stops.
    """
    return solve_support(spec, Support.of(spec.experts.values(), count_indexed(spec, counts)))


def solve_support(spec: SessionSpec, support: Support, measured: float = 0.0) -> Rule:
    """`solve` for profiles that are counted and sorted already; `measured` is for `epsilon_of`."""
    if not len(support.counts):
        return unseen_rule(spec)
    return Solver(spec, lambda: support).settle(measured)


def count_indexed(spec: SessionSpec, counts: Mapping[Levels, float]) -> dict[Profile, float]:
    """Counts by level indices; profiles that fall on the same levels are added up."""
    silent: dict[Any, int] = {None: SILENT} if spec.missing == "allow" else {}
    known: list[dict[Any, int]] = [{**a.index, **silent} for a in spec.experts.values()]
    indexed: dict[Profile, float] = {}
    for levels, count in counts.items():
        if not 0 <= count < math.inf:
            raise ValueError(f"the count of {levels} is {count!r}: expected a number of at least 0")
        try:  # most reports are levels to the bit
            e = tuple(map(getitem, known, levels))
        except KeyError:
            e = spec.index(levels)
        if len(levels) != len(known):
            raise EventError("bad_event", f"a profile has {len(known)} entries, got {len(levels)}")
        indexed[e] = indexed.get(e, 0) + count
    return indexed


def epsilon_of(spec: SessionSpec, least: Callable[[], float], measured: float = 0.0) -> float:
    """The spec's epsilon, as a number: `least` is asked for the smallest where that decides; `measured` is what known
    states say, 0 where there are none, as in all that is solved from counts alone."""
    if spec.epsilon == "measured":
        return measured
    return AUTO_EPSILON * least() if spec.epsilon == "auto" else spec.epsilon
