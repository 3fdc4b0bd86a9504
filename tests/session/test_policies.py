"""Learning policies in the engine: decided from what came back, whatever its order; saved whole; bounded in reports."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stream_agg as sa
from stream_agg.events import Forecast, Regret, RuleRecord, State
from stream_agg.learn.exp3 import Estimates, Exp3
from stream_agg.learn.hedge import Hedge
from stream_agg.session.engine import Output

At = Callable[[float], str]
Make = Callable[..., sa.Session]
Event = Forecast | State
Put = Callable[[sa.Session, Event], list[Output]]
Feed = Callable[..., tuple[sa.SessionSpec, list[Event]]]
Reloaded = Callable[[sa.SessionSpec, list[Event]], sa.Session]
HEDGE: dict[str, Any] = {"feedback": "state", "policy": "hedge"}
EXP3: dict[str, Any] = {"feedback": "payoff", "policy": "exp3"}
RAIN = {"ecmwf": 0.3, "gfs": 0.5}


def paid(session: sa.Session, event: str, payoff: float, time: str) -> str:
    record = {"session": session.spec.session, "event": event, "time": time, "payoff": payoff}
    return session.state(State.from_record(record))[0]


def learner_feed(feed: Feed, policy: str, seed: int, events: int) -> tuple[sa.SessionSpec, list[Event]]:
    """A messy feed for that policy; for exp3 every state becomes a payoff of the table."""
    spec, stream = feed(seed, events, messy=True)
    horizon = [None, 40][seed % 2]
    if policy == "hedge":
        return replace(spec, feedback="state", policy="hedge", horizon=horizon), stream
    rng, table = random.Random(seed), list(spec.actions.values())
    stream = [
        replace(e, state=None, payoff=rng.choice(table)[e.state or 0]) if isinstance(e, State) else e for e in stream
    ]
    return replace(spec, feedback="payoff", policy="exp3", horizon=horizon), stream


def plain(mix: tuple[tuple[int, float], ...], session: sa.Session) -> dict[str, float]:
    return {**dict.fromkeys(session.spec.actions, 0.0), **{list(session.spec.actions)[a]: p for a, p in mix}}


class TestHedge:
    def test_it_plays_algorithm_2_of_its_profile_alone(self, make: Make, at: At) -> None:
        session, rng = make(**HEDGE), random.Random(1)
        payoffs, counts = list(session.spec.actions.values()), defaultdict(lambda: [0, 0])
        for t in range(80):
            profile = {"ecmwf": rng.choice([0.0, 0.3]), "gfs": rng.choice([0.5, None])}
            n0, n1 = counts[tuple(profile.values())]
            action = session.decide(f"e{t}", profile, at(t))
            rate = math.sqrt(math.log(2) / (n0 + n1 + 1)) / 1.5  # payoffs span 3 in state 1
            odds = math.exp(rate * (3 * n1 - n0))
            assert action.strategy == pytest.approx({"stay": 1 / (1 + odds), "prepare": odds / (1 + odds)})
            assert action.strategy == plain(Hedge(payoffs).mix(n0, n1), session)
            assert action.policy == "hedge"
            state = rng.randrange(2)
            session.learn(f"e{t}", state, at(t + 1))
            counts[tuple(profile.values())][state] += 1

    @settings(max_examples=40, deadline=None)
    @given(order=st.permutations(range(12)), places=st.lists(st.integers(0, 12), min_size=12, max_size=12))
    def test_the_order_of_states_leaves_no_trace_in_the_next_action(
        self, make: Make, at: At, order: list[int], places: list[int]
    ) -> None:
        rng = random.Random(2)
        profiles = [rng.choice([RAIN, {"ecmwf": 0.0}]) for _ in range(12)]
        states = [rng.randrange(2) for _ in range(12)]

        def run(order: list[int], places: list[int]) -> sa.Action:
            actions = {"a": [1.1, 0.0], "b": [0.0, 3.3], "c": [0.7, 0.7]}
            session = make(**HEDGE, actions=actions, schedule={"every": 100})
            for i in range(13):
                for event, place in zip(order, places, strict=True):
                    if place == i:
                        session.learn(f"e{event}", states[event], at(20 + event))
                if i < 12:
                    session.decide(f"e{i}", profiles[i], at(i))
            return session.decide("next", RAIN, at(13))

        assert run(order, places) == run(list(range(12)), [12] * 12)

    def test_only_what_is_applied_is_learned(self, make: Make, at: At) -> None:
        session, twin = make(**HEDGE), make(**HEDGE)
        for s in (session, twin):
            s.decide("a", RAIN, at(0))
            s.decide("b", RAIN, at(0))
            s.decide("other", {"ecmwf": 1.0}, at(0))
        assert session.learn("a", 1, at(1)) == twin.learn("a", 1, at(1)) == "applied"
        assert session.learn("a", 1, at(2)) == "duplicate"
        assert session.learn("a", 0, at(2)) == "conflict"
        assert session.learn("b", 0, at(99)) == "late"
        assert session.learn("c", 0, at(1)) == "parked"
        action = session.decide("c", RAIN, at(3))  # its own state is at hand, and not looked at
        assert action.strategy == twin.decide("c", RAIN, at(3)).strategy
        assert twin.learn("c", 0, at(1)) == "applied"
        assert session.decide("d", RAIN, at(4)).strategy == twin.decide("d", RAIN, at(4)).strategy != action.strategy
        assert session.report().realized == twin.report().realized
        assert session.counters.delay_cost == twin.counters.delay_cost == 0.0

    def test_delay_counts_from_the_decision_to_its_own_state(self, make: Make, at: At) -> None:
        session = make(**HEDGE)
        hedge = Hedge(list(session.spec.actions.values()))
        session.decide("never", RAIN, at(0))
        for i in range(5):
            session.decide(f"e{i}", RAIN, at(0))
        for i in range(4):
            session.learn(f"e{i}", 0, at(1))
        session.decide("f", RAIN, at(2))
        session.learn("f", 0, at(2))
        session.learn("e4", 0, at(3))
        expected = sum(hedge.delay_cost(0, k) for k in (1, 2, 3, 4)) + hedge.delay_cost(4, 5) + hedge.delay_cost(0, 6)
        assert session.counters.delay_cost == pytest.approx(expected)
        assert session.report().realized.bound == hedge.bound([6], session.counters.delay_cost)

    @pytest.mark.parametrize("seed", range(12))
    def test_reports_keep_the_bound(self, feed: Feed, put: Put, seed: int) -> None:
        spec, events = learner_feed(feed, "hedge", seed, 120)
        session, reports = sa.Session(spec), 0
        for event in events:
            for output in put(session, event):
                if isinstance(output, Regret) and output.realized.states:
                    self.check(spec, output)
                    reports += 1
        self.check(spec, session.close())
        assert reports > 8

    @staticmethod
    def check(spec: sa.SessionSpec, report: Regret) -> None:
        known = report.realized
        assert known.contextual is not None
        assert known.expected_payoff is not None
        assert known.bound is not None
        assert known.contextual - known.expected_payoff <= known.bound + 1e-9
        assert known.contextual_regret == known.contextual - known.payoff
        hedge = Hedge.of(spec)
        assert known.bound <= hedge.span * known.states
        assert report.robust.round == 0 or report.robust.bound is None  # the theorem is about Algorithm 1

    def test_a_bound_is_claimed_by_hedge_alone(self, make: Make, at: At) -> None:
        for fields in ({"feedback": "state"}, {"feedback": "none"}):
            session = make(policy="robust", **fields)
            session.decide("a", RAIN, at(0))
            session.learn("a", 1, at(1))
            assert session.report().realized.bound is None
        session = make(**EXP3)
        session.decide("a", RAIN, at(0))
        paid(session, "a", 1.0, at(1))
        assert session.report().realized.bound is None


class TestTheRuleBesideALearner:
    def test_it_is_solved_and_named_but_lends_no_gap(self, make: Make, at: At) -> None:
        learner, robust = make(**HEDGE), make(feedback="state", policy="robust")
        for t in range(20):
            record = {"session": "paris-rain", "event": f"e{t}", "time": at(t), "forecasts": RAIN}
            *rules, action = learner.forecast(Forecast.from_record(record))
            *same, other = robust.forecast(Forecast.from_record(record))
            assert isinstance(action, sa.Action)
            assert isinstance(other, sa.Action)
            assert [r for r in rules if isinstance(r, RuleRecord)] == [r for r in same if isinstance(r, RuleRecord)]
            assert action.rule == replace(other.rule, gap=None)
            assert other.rule.gap is not None
            for session in (learner, robust):
                session.learn(f"e{t}", 0, at(t))
        # All states were 0, which the forecasts do not say: the learner knows, and pays for it in the worst case.
        assert action.strategy["stay"] > 0.9
        assert learner.report().robust.value == robust.report().robust.value
        assert learner.report().robust.regret > robust.report().robust.regret + 1


class TestExp3:
    def test_it_divides_by_the_probability_of_then(self, make: Make, at: At) -> None:
        session = make(**EXP3)
        exp3 = Exp3(list(session.spec.actions.values()))
        first = session.decide("slow", RAIN, at(0))
        assert first.strategy == {"stay": 0.5, "prepare": 0.5}
        twin = Estimates()
        for t in range(30):
            action = session.decide(f"e{t}", RAIN, at(t))
            payoff = 3.0 if action.action == first.action else 0.0
            number = list(session.spec.actions).index(action.action)
            exp3.learn(twin, number, action.strategy[action.action], payoff)
            paid(session, f"e{t}", payoff, at(t))
        before = session.tallies[session.spec.profile(RAIN)].estimates
        assert before == twin
        today = session.decide("ask", RAIN, at(31)).strategy[first.action]
        assert today > 0.8
        number = list(session.spec.actions).index(first.action)
        lost = twin.losses[number]
        paid(session, "slow", 0.0, at(32))
        after = session.tallies[session.spec.profile(RAIN)].estimates
        assert after is not None
        assert after.losses[number] - lost == pytest.approx(1 / 0.5)  # today's probability would give 1 / 0.8 at most
        exp3.learn(twin, number, 0.5, 0.0)
        assert session.decide("next", RAIN, at(33)).strategy == plain(exp3.mix(twin), session)

    def test_profiles_learn_apart_and_early_payoffs_wait(self, make: Make, at: At) -> None:
        session = make(**EXP3)
        session.decide("a", RAIN, at(0))
        assert paid(session, "a", 0.0, at(1)) == "applied"
        assert paid(session, "a", 0.0, at(1)) == "duplicate"
        assert paid(session, "a", 1.0, at(1)) == "conflict"
        assert paid(session, "b", 0.0, at(1)) == "parked"
        other = session.decide("b", {"ecmwf": 1.0, "gfs": 1.0}, at(2))
        assert other.strategy == {"stay": 0.5, "prepare": 0.5}
        assert (other.policy, other.rule.gap) == ("exp3", None)
        known = {e: t.estimates for e, t in session.tallies.items()}
        assert {e: x and x.updates for e, x in known.items()} == {(1, 1): 1, (2, 2): 1}
        assert session.decide("c", RAIN, at(3)).strategy != {"stay": 0.5, "prepare": 0.5}

    @pytest.mark.parametrize("payoff", [-0.01, 3.01, 1e9])
    def test_a_payoff_that_no_action_has_is_refused(self, make: Make, at: At, payoff: float) -> None:
        session = make(**EXP3)
        session.decide("a", RAIN, at(0))
        before = session.to_bytes()
        for event in ("a", "early"):
            with pytest.raises(sa.EventError, match=r"is outside \[0, 3\], the range of the spec's actions") as refused:
                paid(session, event, payoff, at(1))
            assert refused.value.reason == "bad_event"
        assert session.to_bytes() == before
        assert paid(session, "a", 2.5, at(1)) == "applied"

    def test_it_learns_what_pays(self, make: Make, at: At) -> None:
        session, rng = make(**EXP3, schedule={"growth": 1.0}), random.Random(3)
        for t in range(1500):
            action = session.decide(f"e{t}", RAIN, at(t / 100))
            u0, u1 = session.spec.actions[action.action]
            paid(session, f"e{t}", u1 if rng.random() < 0.6 else u0, at(t / 100))
        assert session.decide("last", RAIN, at(20)).strategy["prepare"] > 0.8
        assert session.report().realized.payoff > 1500 * 1.3  # 1.8 for prepare, 0.4 for stay


class TestStorage:
    @pytest.mark.parametrize("policy", ["hedge", "exp3"])
    @pytest.mark.parametrize("seed", range(4))
    def test_loading_again_and_again_changes_no_byte(
        self, feed: Feed, reloaded: Reloaded, policy: str, seed: int
    ) -> None:
        assert reloaded(*learner_feed(feed, policy, seed, 60)).counters.states > 10

    def test_only_exp3_carries_estimates(self, make: Make, at: At) -> None:
        robust, hedge, exp3 = make(), make(**HEDGE), make(**EXP3)
        for session in (robust, hedge, exp3):
            session.decide("a", RAIN, at(0))
            session.decide("b", {"ecmwf": 0.0}, at(0))
        robust.learn("a", 1, at(1))
        hedge.learn("a", 1, at(1))
        paid(exp3, "a", 0.75, at(1))
        assert Counter(len(orjson.loads(row)) for s in (robust, hedge) for row in s.tables()["profiles"].values()) == {
            5: 4
        }
        rows = {key: orjson.loads(row) for key, row in exp3.tables()["profiles"].items()}
        assert len(rows["0.0 -"]) == 5  # nothing learned there yet
        action = exp3.events["a"].action
        assert rows["0.3 0.5"][5:] == [1, [[action, 0.75 / 0.5]]]

    def test_a_tally_of_another_shape_is_refused(self, make: Make, at: At) -> None:
        session = make(**EXP3)
        session.decide("a", RAIN, at(0))
        whole = orjson.loads(session.to_bytes())
        for row in ([1, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 1, 2], [1, 0, 0, 0, 0, 1, [], 3], 5):
            whole["profiles"]["0.3 0.5"] = row
            with pytest.raises(ValueError, match=r"tables of a session|unpack"):
                sa.Session.from_bytes(orjson.dumps(whole))


def test_a_learner_keeps_its_horizon(make: Make, at: At) -> None:
    for fields in (HEDGE, EXP3):
        session = make(**fields)
        session.decide("a", RAIN, at(0))
        with pytest.raises(sa.SpecError, match="horizon cannot change"):
            session.change(replace(session.spec, horizon=5))
        assert session.change(replace(session.spec, gamma=0.5)) is True
    assert make().change(replace(make().spec, horizon=5)) is True


def test_a_thousand_actions(make: Make, at: At) -> None:
    actions = {f"a{i}": [math.cos(i), math.sin(i)] for i in range(1000)}
    for fields in (HEDGE, EXP3):
        session = make(**fields, actions=actions, schedule={"every": 1000})
        for t in range(12):
            action = session.decide(f"e{t}", RAIN, at(t))
            assert sum(action.strategy.values()) == pytest.approx(1, abs=1e-12)
            if fields is HEDGE:
                session.learn(f"e{t}", 0, at(t))
            else:
                paid(session, f"e{t}", actions[action.action][0], at(t))
        assert sa.Session.from_bytes(session.to_bytes()).to_bytes() == session.to_bytes()
