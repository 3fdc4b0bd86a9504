"""What the solver says where there is no optimum to find, or not in time, or not by the ascent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import stream_agg as sa
from stream_agg.errors import SolveError
from stream_agg.rule import follow, layout, program
from stream_agg.rule.epsilon import Calibration, smallest_epsilon
from stream_agg.rule.solver import Solver
from stream_agg.rule.support import Profile, Support

AnyProgram = Callable[..., Any]


class Growing:
    """A program whose counts grow, and its solver."""

    def __init__(self, made: Any) -> None:
        self.made, self.seen = made, dict[Profile, float](made.counts)
        self.solver = Solver(made.spec, lambda: self.support)

    @property
    def support(self) -> Support:
        support: Support = replace(self.made, counts=self.seen).support
        return support

    def count(self, profile: Profile) -> None:
        self.seen[profile] = self.seen.get(profile, 0) + 1
        self.solver.count(profile)

    def rule(self) -> sa.Rule:
        return self.solver.rule(self.made.gamma, self.made.epsilon)

    def is_right(self) -> None:
        """The last rule is that of a cold solve, to the bit."""
        found, cold = self.solver.found, replace(self.made, counts=self.seen).solved()
        assert found.duals.tobytes() == cold.duals.tobytes()
        assert found.residual.tobytes() == cold.residual.tobytes()
        assert (found.lower, found.payoff, found.rounds) == (cold.lower, cold.payoff, cold.rounds)


@pytest.mark.parametrize("batch", range(4))
def test_hard_rows_are_solved_where_they_can_be_met_and_refused_where_not(any_program: AnyProgram, batch: int) -> None:
    refused = 0
    for made in map(any_program, range(100 * batch, 100 * (batch + 1))):
        least = program.smallest_epsilon(made.support)
        assert smallest_epsilon(made.support) == pytest.approx(least, abs=1e-9)
        for factor in (1.0001, 1.1, 2.0):
            hard = replace(made, gamma=math.inf, epsilon=least * factor)
            found, other = hard.solved(), program.robust(hard.support, hard.cost, math.inf, hard.epsilon)
            assert hard.apart(found.duals, other.duals) <= 1e-9 * max(1.0, np.abs(other.duals).max() / hard.cost.unit)
            assert found.excess <= 1e-8 * found.rounds
            assert -1e-10 <= (found.payoff - found.lower) / found.rounds / hard.cost.unit <= 1e-7
        for epsilon in (0.0, 0.9 * least, 0.999 * least):
            if epsilon < least - 1e-6:
                refused += 1
                with pytest.raises(sa.InfeasibleError) as caught:
                    Growing(replace(made, gamma=math.inf, epsilon=epsilon)).rule()
                assert caught.value.epsilon == epsilon
                assert caught.value.epsilon_min == pytest.approx(least, abs=1e-9)
    assert refused > 100


def test_a_solve_past_its_limit_is_given_up(any_program: AnyProgram) -> None:
    made = any_program(7)
    with pytest.raises(SolveError, match="no optimum within 1e-09 nominal seconds"):
        made.cold().solve(1e-9)
    hasty = Solver(replace(made.spec, solve_limit_s=1e-9), lambda: made.support)
    with pytest.raises(SolveError):
        hasty.rule(made.gamma, made.epsilon)
    assert Growing(made).rule().gap <= 1e-9


def test_a_solver_goes_on_after_a_failure(any_program: AnyProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had been: it asks for all counts again."""
    for made in map(any_program, range(40)):
        growing = Growing(made)
        growing.rule()
        growing.count(min(made.counts))
        with monkeypatch.context() as patch:
            patch.setattr(follow, "ascend", lambda *_: layout.LIMIT)
            with pytest.raises(SolveError):
                growing.rule()
        growing.count(max(made.counts))
        growing.made = replace(made, epsilon=made.epsilon + 0.5)  # hard rows can be met by these counts too
        growing.rule()
        growing.is_right()


@pytest.mark.parametrize(("loop", "failure"), [("ascend", layout.BROKEN), ("publish", (False, 0.0, 0.0, 0.0))])
def test_highs_answers_where_the_ascent_breaks(
    any_program: AnyProgram, monkeypatch: pytest.MonkeyPatch, loop: str, failure: Any
) -> None:
    for made in map(any_program, range(80)):
        made = replace(made, epsilon=0.5) if math.isinf(made.gamma) else made
        cold, warm = Growing(made), Growing(made)
        warm.rule()
        for growing in (cold, warm):
            growing.count(min(made.counts))
        expected, support = replace(made, counts=warm.seen).solved(), warm.support
        least, missed = smallest_epsilon(support), Calibration(support).violation(0.0)
        with monkeypatch.context() as patch:
            patch.setattr(follow, loop, lambda *_, failure=failure: failure)
            for growing in (cold, warm):
                rule = growing.rule()
                assert made.apart(rule.flat[:-1], expected.duals) <= 1e-9
                assert rule.upper_bound == pytest.approx(rule.value, abs=1e-6 * made.cost.unit)
                assert rule.value == pytest.approx(expected.lower / expected.rounds, abs=1e-7 * made.cost.unit)
            assert smallest_epsilon(support) == pytest.approx(least, abs=1e-9)
            assert Calibration(support).violation(0.0) == pytest.approx(missed, abs=1e-9)
        for growing in (cold, warm):  # and nothing of it is left
            growing.count(max(made.counts))
            growing.rule()
            growing.is_right()
