"""How far the seen forecasts are from being calibrated all at once, whatever the states: programs without payoffs."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from stream_agg.errors import SolveError
from stream_agg.rule import program
from stream_agg.rule.ascent import Ascent, Broken
from stream_agg.rule.envelope import Envelope
from stream_agg.rule.solution import DECIMALS, TOLERANCE, Solution
from stream_agg.rule.support import Support

MOST_STEPS = 200


class Calibration:
    """The programs of one support, each warm from the one before."""

    def __init__(self, support: Support) -> None:
        self._support, _ = support.in_whole_rounds()
        self._ascent: Ascent | None = None

    @cached_property
    def smallest(self) -> float:
        """The smallest epsilon for which some rho is calibrated within it at every row; 0 without rows.

        Newton's method on the least violation, which falls convexly in epsilon at the rate sum N |lambda|: exact after
        a few warm solves, and from below it never overshoots. HiGHS answers where the ascent breaks.
        """
        epsilon = self._support.half_spread()
        try:
            for _ in range(MOST_STEPS):
                found = self._violation(epsilon)
                if found.lower <= TOLERANCE * max(1.0, found.rounds):
                    return 0.0 if epsilon < TOLERANCE else round(epsilon, DECIMALS)
                epsilon += found.lower / float(np.abs(found.duals) @ found.mass)
        except Broken:
            return program.smallest_epsilon(self._support)
        raise SolveError("Newton's method for the smallest epsilon did not end")

    def violation(self, epsilon: float) -> float:
        """min_rho of sum_{i,z} max(0, |residual| - epsilon N_{i,z}), per round."""
        seen = self._support
        try:
            return max(self._violation(epsilon).lower, 0.0) / seen.total
        except Broken:
            return program.worst_case(seen, np.zeros(len(seen.counts)), 1.0, epsilon)[0] / seen.total

    def release(self) -> None:
        """Forget the program, not what it gave."""
        self._ascent = None

    def _violation(self, epsilon: float) -> Solution:
        """The program whose only cost is violation."""
        ascent, self._ascent = self._ascent, None  # of no use once it broke
        if ascent is None:
            alphabets = [z.tolist() for z in np.split(self._support.levels, self._support.offsets[1:-1])]
            nothing = Envelope((0,), (0.0,), (0.0, 1.0), 0.0)
            ascent = Ascent.of(alphabets, nothing, 1.0, epsilon, self._support)
        ascent.terms(1.0, epsilon)
        ascent.solve()
        found, self._ascent = ascent.solution(), ascent
        return found


def smallest_epsilon(support: Support) -> float:
    """`Calibration.smallest`, for who asks once."""
    return Calibration(support).smallest
