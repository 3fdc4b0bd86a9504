"""The gap an action carries is a proof, whatever the stream and however stale the rule: another solver says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import stream_agg as sa

At = Callable[[float], str]
Levels = tuple[float | None, ...]
SCHEDULES = [
    {"certified": 0.1},
    {"growth": 0.5},
    {"seconds": 20_000},
    {"every": 4},
    {"certified": 0.5},
    {"certified": 0.02},
    {"every": 1},
    {"every": 100},
]
GAMMAS = [(0.5, 0.0), ("inf", 0.3), (2.0, 0.05), (20.0, 0.0), ("auto", 0.0), ("inf", 0.6), ("auto", 0.25), ("inf", 0.0)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[sa.SessionSpec, list[Levels]]:
    """A spec and the profiles reported to it. New levels come up, and old ones again, at any time: a stretch of the
    stream reports from a part of every alphabet, the next from another."""
    alphabets = draw(
        st.lists(st.sampled_from([[0.0, 1.0], [0.2, 0.5, 0.8], [0.0, 0.3, 0.7, 1.0]]), min_size=1, max_size=3)
    )
    payoff = st.integers(-6, 6).map(lambda x: x / 2) | st.floats(-3, 3)
    actions = draw(st.lists(st.tuples(payoff, payoff), min_size=2, max_size=4))
    gamma, epsilon = draw(st.sampled_from(GAMMAS))
    spec = {
        "session": "s",
        "experts": {f"e{i}": {"levels": z} for i, z in enumerate(alphabets)},
        "actions": {f"a{i}": list(pair) for i, pair in enumerate(actions)},
        "gamma": gamma,
        "epsilon": epsilon,
        "schedule": draw(st.sampled_from(SCHEDULES)),
    }
    profiles: list[Levels] = []
    for _ in range(draw(st.integers(1, 3))):
        heard = [draw(st.lists(st.sampled_from([*z, None]), min_size=1, max_size=3)) for z in alphabets]
        profiles += draw(st.lists(st.tuples(*map(st.sampled_from, heard)), min_size=5, max_size=10))
    return sa.SessionSpec.from_dict(spec), profiles


@given(streams())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_no_rule_is_better_than_the_one_in_force_by_more_than_the_gap(
    paper: Any, at: At, stream: tuple[sa.SessionSpec, list[Levels]]
) -> None:
    """On the rounds counted before each action: best worst case - worst case of the rule that decided <= gap."""
    spec, profiles = stream
    session, seen = sa.Session(spec), dict[Levels, int]()
    for t, profile in enumerate(profiles):
        action = session.decide(f"e{t}", dict(zip(spec.experts, profile, strict=True)), at(t))
        rule, gap = session.rule, action.rule.gap
        assert action.strategy == rule.strategy(profile)
        if gap is None:
            assert math.isinf(rule.gamma)  # a finite penalty always has a finite proof
        elif seen:
            counted = paper(spec, seen)  # with hard constraints a finite gap says too that they can be met
            best = counted.program(rule.gamma, rule.epsilon)
            assert best - counted.worst_case(rule.strategy, rule.gamma, rule.epsilon) <= gap + 1e-9
            if rule.rounds == t:
                assert gap <= 1e-7
        seen[profile] = seen.get(profile, 0) + 1
