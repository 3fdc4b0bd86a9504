"""The robust rule on recalibrated levels, a member of the pool of `hybrid`: when to look, and what it costs at most.

The rule of the counts so far, at the gamma and epsilon of the rule in force, where every level stands for what it has
meant (`learn.calibration.recalibrated`). Solved afresh, at the first forecast after the known states have grown by
half: a function of counts alone. It may cost `LIMIT_S` nominal seconds a state; past that, and where hard rows
contradict, the member goes on with the prices that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stream_agg.errors import InfeasibleError, SolveError
from stream_agg.learn.calibration import recalibrated
from stream_agg.rule.rule import Rule
from stream_agg.rule.solver import Solver
from stream_agg.rule.support import Profile
from stream_agg.session.pool import Prices
from stream_agg.session.scores import Tally, known_states, states_by_level, support
from stream_agg.spec import Alphabet, SessionSpec

FIRST = 20
"""States before the first look: until then levels hardly move."""

GROWTH = 1.5
"""As for reports: a dozen looks in ten thousand states."""

LIMIT_S = 2e-5
"""Nominal seconds of a solve, for every state known."""


def due(states: int, tried: int) -> bool:
    """Whether so many known states ask for a look, the last one having been at `tried`."""
    return states >= max(FIRST, tried * GROWTH)


def prices(spec: SessionSpec, tallies: Mapping[Profile, Tally], rule: Rule, states: int) -> Prices | None:
    """The prices of the rule on recalibrated levels, at the terms of `rule`; None where there are none in time."""
    known = states_by_level(spec, known_states(spec, tallies))
    alphabets = {name: Alphabet(recalibrated(a.levels, *known[name].T.tolist())) for name, a in spec.experts.items()}
    moved = replace(spec, experts=alphabets, solve_limit_s=LIMIT_S * states)
    try:
        return Solver(moved, lambda: support(moved, tallies)).rule(rule.gamma, rule.epsilon).prices
    except (InfeasibleError, SolveError):
        return None
