"""Policy hybrid in the engine: the robust rule without states, then a pool; order, storage, bounds, members."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

import stream_agg as sa
from stream_agg.events import Action, Forecast, Regret, State
from stream_agg.learn.calibration import recalibrated
from stream_agg.rule.solver import Solver
from stream_agg.session.engine import Output
from stream_agg.session.hybrid import prior
from stream_agg.session.scores import support
from stream_agg.spec import Alphabet

At = Callable[[float], str]
Make = Callable[..., sa.Session]
Event = Forecast | State
Put = Callable[[sa.Session, Event], list[Output]]
Feed = Callable[..., tuple[sa.SessionSpec, list[Event]]]
Reloaded = Callable[[sa.SessionSpec, list[Event]], sa.Session]
HYBRID: dict[str, Any] = {"feedback": "state", "policy": "hybrid", "schedule": {"growth": 0.5}}
RAIN = {"ecmwf": 0.3, "gfs": 0.5}


def hybrid_feed(feed: Feed, seed: int, events: int, *, messy: bool) -> tuple[sa.SessionSpec, list[Event]]:
    spec, stream = feed(seed, events, messy=messy)
    return replace(spec, feedback="state", policy="hybrid", horizon=[None, 40][seed % 2]), stream


def weights(session: sa.Session) -> dict[str, float]:
    return {name: member.weight for name, member in (session.report().realized.members or {}).items()}


def test_the_default_where_states_come(make: Make) -> None:
    assert make(feedback="state").spec.policy == "hybrid"


class TestWithoutStates:
    @pytest.mark.parametrize("seed", range(6))
    def test_it_is_the_robust_rule_byte_for_byte(self, feed: Feed, put: Put, seed: int) -> None:
        spec, events = hybrid_feed(feed, seed, 60, messy=True)
        hybrid, robust = sa.Session(spec), sa.Session(replace(spec, policy="robust"))
        for event in events:
            if isinstance(event, State) and not event.event.startswith("nobody"):
                continue  # of events that are never forecast, some come: they teach nothing
            assert orjson.dumps(put(hybrid, event)) == orjson.dumps(put(robust, event))
        assert orjson.dumps(hybrid.report()) == orjson.dumps(robust.report())
        assert hybrid.report().realized.members is None
        rules = {"rule", "certificate", "robust", "counters"}
        left, right = (s.tables()["state"] for s in (hybrid, robust))
        assert {k: left[k] for k in rules} == {k: right[k] for k in rules}

    def test_then_it_says_what_acts(self, make: Make, at: At) -> None:
        session = make(**HYBRID)
        session.decide("a", RAIN, at(0))
        before = session.decide("b", RAIN, at(1))
        assert (before.policy, before.rule.gap is None) == ("robust", False)
        session.learn("a", 1, at(2))
        after = session.decide("c", RAIN, at(3))
        assert (after.policy, after.rule.gap) == ("hybrid", None)
        assert session.report().robust.bound is None


class TestMembers:
    def test_what_each_would_have_earned(self, make: Make, at: At) -> None:
        actions = {"stay": [1.0, 0.0], "go": [0.0, 3.0], "wait": [0.6, 1.6]}
        session, rng = make(**HYBRID, actions=actions), random.Random(1)
        earned: dict[str, float] = defaultdict(float)

        def best(p: float) -> list[float]:
            return max(actions.values(), key=lambda u: (1 - p) * u[0] + p * u[1])

        for t in range(60):
            a, b = rng.choice([None, rng.random()]), rng.random()
            session.decide(f"e{t}", {"ecmwf": a, "gfs": b}, at(t))
            state = int(rng.random() < 0.4)
            session.learn(f"e{t}", state, at(t))
            mean = b if a is None else (a + b) / 2
            said = {"expert:ecmwf": mean if a is None else a, "expert:gfs": b, "mean": mean, "median": mean}
            for name, p in said.items():
                earned[name] += best(p)[state]
        members = session.report().realized.members
        assert members is not None
        assert {name: members[name].payoff for name in earned} == pytest.approx(earned, abs=1e-6)
        assert sum(m.weight for m in members.values()) == pytest.approx(1)

    def test_the_median_of_three_and_silence_of_all(self, make: Make, at: At) -> None:
        experts = {x: {"levels": 11} for x in "abc"}
        session = make(**HYBRID, experts=experts, actions={"no": [1, 0], "yes": [0, 1]}, pool=["median", "mean"])
        session.decide("x", {"a": 0.4, "b": 0.45, "c": 0.9}, at(0))
        session.decide("y", {}, at(0))
        notes = [session.events[event].note for event in "xy"]
        assert [note and note.acts for note in notes] == [(0, 1), (0, 0)]

    def test_hedge_and_robust_score_as_if_alone(self, feed: Feed, put: Put) -> None:
        spec, events = hybrid_feed(feed, 3, 80, messy=False)
        hybrid = sa.Session(spec)
        alone = {name: sa.Session(replace(spec, policy=name)) for name in ("hedge", "robust")}  # type: ignore[arg-type]
        for event in events:
            for session in (hybrid, *alone.values()):
                put(session, event)
        members = hybrid.report().realized.members
        assert members is not None
        for name, session in alone.items():
            assert members[name].payoff == pytest.approx(session.report().realized.expected_payoff, abs=1e-6)

    def test_a_pool_of_one_plays_it(self, make: Make, at: At) -> None:
        session = make(**HYBRID, pool=["expert:gfs"])
        session.decide("a", RAIN, at(0))
        session.learn("a", 0, at(0))
        for p, action in ((0.2, "stay"), (0.3, "prepare")):
            assert session.decide(f"{p}", {"ecmwf": 1.0, "gfs": p}, at(1)).strategy[action] == 1.0
        assert weights(session) == {"expert:gfs": 1.0}

    def test_recalibrated_is_the_rule_of_what_levels_have_meant(self, make: Make, at: At) -> None:
        session, rng = make(**HYBRID, gamma=4.0), random.Random(4)
        for t in range(40):
            asked = {"ecmwf": rng.choice([0.0, 0.3, 1.0]), "gfs": rng.choice([0.0, 0.5, 1.0])}
            counts = {e: tally.seen for e, tally in session.tallies.items()}
            known = session.calibration()
            session.decide(f"e{t}", asked, at(t))
            pool = session.policy.pool
            assert pool is not None
            assert (pool.learned.tried, pool.learned.prices is None) == (
                (0, True) if t < 20 else (pool.learned.tried, False)
            )
            if t and pool.learned.tried == t:
                moved = {
                    name: Alphabet(recalibrated(*zip(*rows, strict=True)))  # type: ignore[arg-type]
                    for name, rows in known.items()
                }
                spec = replace(session.spec, experts=moved)
                tallies = {e: replace(session.tallies[e], seen=n) for e, n in counts.items()}
                rule = Solver(spec, lambda s=spec, t=tallies: support(s, t)).rule(4.0, 0.0)  # type: ignore[misc]
                assert pool.learned.prices == rule.prices
            session.learn(f"e{t}", int(rng.random() < 0.9), at(t))
        assert pool.learned.tried == 30

    def test_prior(self) -> None:
        assert prior(["mean"]) == prior(["expert:a"]) == [1.0]
        assert prior(["logistic", "hedge"]) == pytest.approx([0.8, 0.2])
        assert sum(prior(["mean", "logistic", *"abc"])) == pytest.approx(1)


class TestOrder:
    @pytest.mark.parametrize("seed", range(4))
    def test_it_leaves_no_trace_in_weights(self, make: Make, at: At, seed: int) -> None:
        """States arrive in any order between the same decisions, through storage or not."""
        rng = random.Random(seed)
        told = [{"ecmwf": rng.random(), "gfs": rng.choice([None, rng.random()])} for _ in range(120)]
        came = [t + rng.choice([0, 3, 30, 200]) for t in range(120)]
        states = [int(rng.random() < 0.4) for _ in told]

        def run(shuffle: random.Random, store: bool) -> tuple[dict[str, float], list[dict[str, float]]]:
            session, played = make(**HYBRID), []
            for t in range(120):
                action = session.decide(f"e{t}", told[t], at(t / 10))
                played.append(dict(action.strategy))
                due = [s for s in range(t + 1) if came[s] == t]
                for s in shuffle.sample(due, len(due)):
                    session.learn(f"e{s}", states[s], at(20))
                    session = sa.Session.from_bytes(session.to_bytes()) if store else session
            rest = [s for s in range(120) if came[s] >= 120]
            for s in shuffle.sample(rest, len(rest)):
                session.learn(f"e{s}", states[s], at(20))
            return weights(session), played

        first, played = run(random.Random(0), False)
        assert max(first.values()) < 0.999
        for again in range(1, 4):
            other, same = run(random.Random(again), again == 2)
            assert other == pytest.approx(first, abs=1e-12)
            assert all(x == pytest.approx(y, abs=1e-12) for x, y in zip(same, played, strict=True))

    def test_only_what_is_applied_is_learned(self, make: Make, at: At) -> None:
        session, twin = make(**HYBRID), make(**HYBRID)
        for s in (session, twin):
            for event in "abc":
                s.decide(event, RAIN, at(0))
            assert s.learn("a", 1, at(1)) == "applied"
        assert session.events["a"].note is None
        assert session.events["b"].note is not None
        assert session.learn("a", 1, at(2)) == "duplicate"
        assert session.learn("a", 0, at(2)) == "conflict"
        assert session.learn("b", 0, at(99)) == "late"
        assert session.learn("d", 0, at(1)) == "parked"
        played = [s.decide("d", RAIN, at(3)).strategy for s in (session, twin)]
        assert played[0] == played[1]
        twin.learn("d", 0, at(3))
        assert session.tables()["state"]["pool"] == twin.tables()["state"]["pool"]


class TestStorage:
    @pytest.mark.parametrize("seed", range(4))
    def test_loading_again_and_again_changes_no_byte(self, feed: Feed, reloaded: Reloaded, seed: int) -> None:
        reloaded(*hybrid_feed(feed, seed, 60, messy=True))

    def test_a_commit_has_what_changed(self, make: Make, at: At) -> None:
        session = make(**HYBRID)
        session.decide("a", RAIN, at(0))
        session.changes()
        session.learn("a", 1, at(1))
        assert set(session.changes()["state"]) == {"counters", "pool"}
        session.decide("b", RAIN, at(2))
        assert "pool" not in session.changes()["state"]

    def test_no_other_session_has_its_fields(self, make: Make) -> None:
        assert not {"pool", "recalibrated"} & set(make().tables()["state"])

    def test_what_waits_is_small(self, make: Make, at: At) -> None:
        experts = {f"x{i}": {"levels": 11} for i in range(14)}
        session, rng = make(**HYBRID, experts=experts), random.Random(0)
        for t in range(50):
            session.decide(f"e{t}", {x: round(rng.random(), 3) for x in experts}, at(0))
            if t % 2:
                session.learn(f"e{t}", rng.randrange(2), at(0))
        rows = [len(row) for row in session.tables()["events"].values()]
        assert max(rows) < 1000
        assert max(len(session.tables()["events"][f"e{t}"]) for t in range(1, 50, 2)) < 250
        assert len(session.tables()["state"]["pool"]) < 5000


class TestBound:
    @pytest.mark.parametrize("block", range(10))
    def test_an_expert_who_turns_bad_half_way(self, make: Make, at: At, block: int) -> None:
        """200 seeds, a third of them each with states at once, in blocks, and with a delay of their own."""
        tight = 0
        for seed in range(20 * block, 20 * block + 20):
            session, rounds = self.turned(make, at, seed)
            known = session.report().realized
            assert known.members is not None
            assert known.expected_payoff is not None
            assert known.states == rounds
            for member in known.members.values():
                assert member.payoff - known.expected_payoff <= member.bound
                tight += member.bound < rounds / 2
            assert known.contextual is not None
            assert known.bound is not None
            assert known.contextual - known.expected_payoff <= known.bound
        assert tight > 20

    @staticmethod
    def turned(make: Make, at: At, seed: int, rounds: int = 100) -> tuple[sa.Session, int]:
        rng = random.Random(seed)
        experts = {x: {"levels": 6} for x in ("turns", "guesses", "shy")}
        pool = ["experts", "mean", "median", "logistic", "robust", "hedge"]
        actions = {"no": [1, 0], "yes": [0, 1]}
        session = make(**{**HYBRID, "schedule": {"growth": 2.0}}, experts=experts, actions=actions, pool=pool)
        waiting: list[tuple[int, int, int]] = []
        for t in range(rounds):
            state = int(rng.random() < 0.5)
            right = state if t < rounds // 2 else 1 - state
            session.decide(
                f"e{t}",
                {"turns": 0.8 if right else 0.2, "guesses": rng.random(), "shy": rng.choice([None, 0.4])},
                at(0),
            )
            due = (t, t // 20 * 20 + 19, t + rng.randrange(40))[seed % 3]
            waiting.append((due, t, state))
            for entry in sorted(w for w in waiting if w[0] <= t):
                session.learn(f"e{entry[1]}", entry[2], at(1))
                waiting.remove(entry)
        for _, event, state in waiting:
            session.learn(f"e{event}", state, at(1))
        return session, rounds

    @pytest.mark.parametrize("seed", range(8))
    def test_reports_keep_it_on_any_feed(self, feed: Feed, put: Put, seed: int) -> None:
        spec, events = hybrid_feed(feed, seed, 100, messy=True)
        session, said = sa.Session(spec), 0
        for event in events:
            for output in put(session, event):
                if isinstance(output, Regret) and output.realized.members:
                    known, said = output.realized, said + 1
                    assert known.expected_payoff is not None
                    assert known.contextual is not None
                    assert known.bound is not None
                    assert known.contextual - known.expected_payoff <= known.bound + 1e-9
                    for member in output.realized.members.values():
                        assert member.payoff - known.expected_payoff <= member.bound + 1e-9
                        assert math.isfinite(member.bound)
        assert said > 5

    def test_without_hedge_nothing_is_said_of_profiles(self, make: Make, at: At) -> None:
        session = make(**HYBRID, pool=["mean", "median"])
        session.decide("a", RAIN, at(0))
        session.learn("a", 1, at(1))
        assert session.report().realized.bound is None


def test_a_thousand_actions_and_flat_payoffs(make: Make, at: At) -> None:
    curve = {f"a{i}": [math.cos(i), math.sin(i)] for i in range(1000)}
    for actions in (
        curve,
        {"only": [2.0, 2.0]},
        {"one": [5.0, 7.0], "two": [5.0, 7.0]},
        {"x": [1e9, -1e9], "y": [0, 0]},
    ):
        session = make(**HYBRID, actions=actions)
        for t in range(8):
            action = session.decide(f"e{t}", RAIN, at(t))
            assert isinstance(action, Action)
            assert sum(action.strategy.values()) == pytest.approx(1, abs=1e-12)
            session.learn(f"e{t}", t % 2, at(t))
        members = session.report().realized.members
        assert members is not None
        expected = session.report().realized.expected_payoff
        assert all(m.payoff - (expected or 0.0) <= m.bound + 1e-6 for m in members.values())
