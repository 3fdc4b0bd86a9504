"""Half lives: rounds count half after so many more, and in the end not at all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

import stream_agg as sa
from stream_agg.events import Forecast, Regret
from stream_agg.session.solving import NEGLIGIBLE

Make = Callable[..., sa.Session]
At = Callable[[float], str]
Counts = dict[tuple[float | None, ...], float]
SCHEDULES = [{"every": 1}, {"every": 7}, {"certified": 0.05}, {"growth": 0.1}]


def reports(rng: random.Random) -> dict[str, float | None]:
    return {"ecmwf": rng.choice((0.0, 0.3, 1.0, None)), "gfs": rng.choice((0.0, 0.5, 0.5, 1.0))}


def halved(counts: Counts) -> Counts:
    return {e: n / 2 for e, n in counts.items() if n / 2 >= 2.0**-20}


def counted(session: sa.Session) -> Counts:
    return {tuple(session.spec.reports(e).values()): tally.seen for e, tally in session.tallies.items()}


def follow(session: sa.Session, rounds: int, at: At, seed: int) -> Iterator[tuple[sa.Action, Counts]]:
    """Every action beside the counts that its rule could know."""
    rng, seen = random.Random(seed), Counts()
    for t in range(1, rounds + 1):
        action = session.decide(f"e{t}", reports(rng), at(t))
        yield action, seen
        levels = tuple(action.profile.values())
        seen[levels] = seen.get(levels, 0) + 1
        if session.spec.half_life and t % session.spec.half_life == 0:
            seen = halved(seen)
        assert counted(session) == seen


@pytest.mark.parametrize("half_life", [1, 5, 32])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_the_rule_is_that_of_the_halved_counts(make: Make, at: At, schedule: Any, half_life: int) -> None:
    session, solves = make(schedule=schedule, half_life=half_life, gamma=4.0, epsilon=0.05), 0
    for action, seen in follow(session, 200, at, half_life):
        if action.rule.round == action.round - 1 > 0:
            cold, solves = sa.solve(session.spec, seen), solves + 1
            assert action.strategy == cold.strategy(tuple(action.profile.values()))
            assert session.rule.prices == cold.prices
            assert session.rule.gap <= 1e-8
            if schedule != {"every": 1}:  # there, an optimal rule stays with what it was first solved on
                rule = session.rule
                assert (rule.rounds, rule.value, rule.upper_bound) == (cold.rounds, cold.value, cold.upper_bound)
    assert solves > 10


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_the_gap_is_a_proof_on_the_halved_counts(make: Make, paper: Any, at: At, schedule: Any) -> None:
    session = make(schedule=schedule, half_life=9, gamma=3.0)
    for action, seen in follow(session, 60, at, 1):
        if seen:
            other, gap = paper(session.spec, seen), action.rule.gap
            best, worst = other.value(3.0, 0.0), other.worst_case(session.rule.strategy, 3.0, 0.0)
            assert gap is not None
            assert best - worst <= gap + 1e-9


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_saved_and_loaded_it_goes_on_to_the_same_bytes(make: Make, at: At, schedule: Any) -> None:
    whole, rng = make(schedule=schedule, half_life=6), random.Random(2)
    again = sa.Session.from_bytes(whole.to_bytes())
    for t in range(400):  # more halvings than a float has bits
        told = reports(rng)
        actions = [s.decide(f"e{t}", told, at(t)) for s in (whole, again)]
        assert orjson.dumps(actions[0]) == orjson.dumps(actions[1])
        if t % 5 == 0:
            assert again.to_bytes() == whole.to_bytes()
            again = sa.Session.from_bytes(again.to_bytes())
    assert again.to_bytes() == whole.to_bytes()


def test_changes_add_up_to_the_whole(make: Make, at: At) -> None:
    session, rng = make(half_life=1, window=5), random.Random(3)
    tables: dict[str, dict[str, bytes]] = {"state": {}, "profiles": {}, "events": {}, "parked": {}}
    vanished = 0
    for t in range(120):
        session.decide(f"e{t}", reports(rng), at(t))
        for name, fields in session.changes().items():
            for key, value in fields.items():
                vanished += name == "profiles" and value is None
                tables[name].pop(key, None) if value is None else tables[name].update({key: value})
        assert tables == session.tables()
    assert vanished > 5


class TestVanishing:
    def old(self, make: Make, at: At, **fields: Any) -> sa.Session:
        """One round of a profile, then 21 half lives of another."""
        session = make(half_life=2, **fields)
        session.decide("old", {"ecmwf": 0.3, "gfs": 0.0}, at(0))
        for t in range(42):
            session.decide(f"e{t}", {"ecmwf": 1.0, "gfs": 1.0}, at(0))
        return session

    def test_a_profile_is_forgotten_after_twenty_half_lives(self, make: Make, at: At) -> None:
        session = self.old(make, at)
        assert [session.spec.reports(e)["gfs"] for e in session.tallies] == [1.0]
        assert NEGLIGIBLE == 2.0**-20

    def test_unless_a_state_of_it_is_known(self, make: Make, at: At) -> None:
        session = make(half_life=2, feedback="state", policy="hedge")
        session.decide("old", {"ecmwf": 0.3, "gfs": 0.0}, at(0))
        session.learn("old", 1, at(0))
        for t in range(42):
            session.decide(f"e{t}", {"ecmwf": 1.0, "gfs": 1.0}, at(0))
        known = {session.spec.reports(e)["gfs"]: tally for e, tally in session.tallies.items()}
        assert known[0.0].states1 == 1
        assert 0 < known[0.0].seen < NEGLIGIBLE

    def test_a_state_that_comes_later_is_learned_all_the_same(self, make: Make, at: At) -> None:
        session = self.old(make, at)
        assert session.learn("old", 1, at(1)) == "applied"
        assert session.report().realized.states == 1
        session.decide("next", {"ecmwf": 0.3, "gfs": 0.0}, at(1))
        assert sum(counted(session).values()) < 5


def test_what_needs_one_world_is_not_claimed(make: Make, at: At) -> None:
    session, rng = make(half_life=50), random.Random(4)
    for t in range(300):
        record = {"session": "paris-rain", "event": f"e{t}", "time": at(t), "forecasts": reports(rng)}
        for output in session.forecast(Forecast.from_record(record)):
            if isinstance(output, Regret):
                assert (output.robust.bound, output.drift) == (None, None)
    report = session.report()
    assert (report.robust.bound, report.drift, report.round) == (None, None, 300)
    lasting = make()
    for t in range(300):
        lasting.decide(f"e{t}", reports(rng), at(t))
    assert lasting.report().robust.bound is not None
    assert lasting.report().drift is not None


def test_regret_is_of_the_rounds_that_count(make: Make, paper: Any, at: At) -> None:
    """Of play that is halved with its rounds: never better than the best rule of the same counts."""
    session = make(half_life=20, gamma=3.0, schedule={"every": 5})
    assert len(list(follow(session, 130, at, 5))) == 130
    part, seen = session.report().robust, counted(session)
    assert part.round == 130
    assert part.value == pytest.approx(paper(session.spec, seen).value(3.0, 0.0), abs=1e-7)
    assert part.regret == pytest.approx((part.value - part.worst_case) * sum(seen.values()), abs=1e-6)
    assert part.worst_case <= part.value + 1e-9


def test_a_world_that_changes_is_followed(make: Make, paper: Any, at: At) -> None:
    """Profiles come from one distribution for 400 rounds, then from another. A hundred rounds later the rule that
    forgets is nearly as good for the new ones as one that has seen nothing else."""
    short = {True: 0.0, False: 0.0}
    for seed in range(12):
        rng, world = random.Random(seed), np.random.default_rng(seed)
        profiles = [(x, y) for x in (0.0, 0.3, 1.0) for y in (0.0, 0.5, 1.0)]
        before, after = world.dirichlet([0.4] * 9, 2)
        drawn = [*rng.choices(profiles, before, k=400), *rng.choices(profiles, after, k=100)]
        recent = {e: drawn[400:].count(e) for e in profiles}
        now = paper(make().spec, recent)
        for forgets in (True, False):
            session = make(schedule={"every": 10}, gamma=3.0, half_life=20 if forgets else None)
            for t, (x, y) in enumerate([*drawn, drawn[-1]]):
                session.decide(f"e{t}", {"ecmwf": x, "gfs": y}, at(0))
            assert session.rule.rounds > 30
            short[forgets] += now.value(3.0, 0.0) - now.worst_case(session.rule.strategy, 3.0, 0.0)
    assert short[False] > 0.2
    assert short[True] < short[False] / 10


def test_a_half_life_cannot_change(make: Make, at: At) -> None:
    session = make(half_life=5)
    session.decide("e", {"ecmwf": 0.3}, at(0))
    with pytest.raises(sa.SpecError):
        session.change(replace(session.spec, half_life=6))
