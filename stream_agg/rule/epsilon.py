"""How far the seen forecasts are from being calibrated all at once, whatever the states: programs without payoffs."""

from __future__ import annotations

import numpy as np

from stream_agg.errors import SolveError
from stream_agg.rule import program
from stream_agg.rule.ascent import Ascent, Broken
from stream_agg.rule.envelope import Envelope
from stream_agg.rule.solution import DECIMALS, TOLERANCE
from stream_agg.rule.support import Support

MOST_STEPS = 200


def smallest_epsilon(support: Support) -> float:
    """The smallest epsilon for which some rho is calibrated within it at every row; 0 without rows.

    Newton's method on the least violation, which falls convexly in epsilon at the rate sum N |lambda|: exact after a
    few warm solves, and from below it never overshoots. HiGHS answers where the ascent breaks.
    """
    support, _ = support.in_whole_rounds()
    epsilon = support.half_spread()
    try:
        ascent = _violation(support, epsilon)
        for _ in range(MOST_STEPS):
            ascent.terms(1.0, epsilon)
            ascent.solve()
            found = ascent.solution()
            if found.lower <= TOLERANCE * max(1.0, found.rounds):
                return 0.0 if epsilon < TOLERANCE else round(epsilon, DECIMALS)
            epsilon += found.lower / float(np.abs(found.duals) @ found.mass)
    except Broken:
        return program.smallest_epsilon(support)
    raise SolveError("Newton's method for the smallest epsilon did not end")


def least_violation(support: Support, epsilon: float) -> float:
    """min_rho of sum_{i,z} max(0, |residual| - epsilon N_{i,z}), per round."""
    try:
        ascent = _violation(support, epsilon)
        ascent.solve()
        return max(ascent.solution().lower, 0.0) / support.total
    except Broken:
        return program.worst_case(support, np.zeros(len(support.counts)), 1.0, epsilon)[0] / support.total


def _violation(support: Support, epsilon: float) -> Ascent:
    """The program whose only cost is violation."""
    alphabets = [z.tolist() for z in np.split(support.levels, support.offsets[1:-1])]
    return Ascent.of(alphabets, Envelope((0,), (0.0,), (0.0, 1.0), 0.0), 1.0, epsilon, support)
