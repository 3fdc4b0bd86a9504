"""Decisions follow the schedule and Algorithm 1, draws follow the strategy, refusals leave no trace."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import orjson
import pytest
from scipy.stats import chisquare

import stream_agg as sa
from stream_agg.events import Forecast, Regret, RuleRecord, State, parse_time
from stream_agg.session.solving import SETTLE_GROWTH

At = Callable[[float], str]
Make = Callable[..., sa.Session]
Counts = dict[tuple[float | None, ...], float]
REPORTS = (0.0, 0.3, 0.5, 1.0, None)


def reports(rng: random.Random) -> dict[str, float | None]:
    return {"ecmwf": rng.choice(REPORTS), "gfs": rng.choice(REPORTS)}


def feed_back(session: sa.Session, **fields: Any) -> None:
    session.state(State.from_record({"session": session.spec.session, **fields}))


def without_duplicates(session: sa.Session) -> tuple[Any, int]:
    """The state without its count of duplicates, and that."""
    plain = orjson.loads(session.to_bytes())
    return plain, plain["state"]["counters"]["counts"].pop("duplicate")


class TestDecide:
    def test_before_any_count_the_action_is_maxmin(self, make: Make, at: At) -> None:
        action = make().decide("first", {"ecmwf": 1.0, "gfs": 1.0}, at(0))
        # max over p of min(1 - p, 3 p): p = 1/4 earns 3/4 in either state
        assert action.strategy == {"stay": 0.75, "prepare": 0.25}
        assert (action.round, action.rule.version, action.rule.round, action.states_seen) == (1, 0, 0, 0)

    def test_algorithm_1(self, make: Make, at: At, prefix_counts: Callable[[list[sa.Action]], Counts]) -> None:
        session, rng = make(gamma=2.0), random.Random(3)
        actions: list[sa.Action] = []
        prices: list[Any] = []
        for t in range(1, 121):
            action = session.decide(f"e{t}", reports(rng), at(t))
            before = sa.solve(session.spec, prefix_counts(actions))
            assert action.strategy == before.strategy(tuple(action.profile.values()))
            assert (action.round, action.rule.round) == (t, t - 1)
            prices.append(before.prices)
            assert action.rule.version == (t > 1) + sum(a != b for a, b in pairwise(prices[1:]))
            actions.append(action)
        assert len({tuple(a.strategy.values()) for a in actions}) > 3

    def test_a_strategy_is_a_distribution_over_every_action(self, make: Make, at: At) -> None:
        session, rng = make(actions={"a": [1, 0], "b": [0, 3], "c": [0.7, 0.9], "never": [-1, -1]}), random.Random(4)
        for t in range(60):
            action = session.decide(f"e{t}", reports(rng), at(t))
            assert list(action.strategy) == ["a", "b", "c", "never"]
            assert sum(action.strategy.values()) == pytest.approx(1, abs=1e-12)
            assert all(p >= 0 for p in action.strategy.values())
            assert action.strategy[action.action] > 0

    def test_states_seen_counts_every_state_event_before(self, make: Make, at: At) -> None:
        session = make()
        assert session.decide("a", {"ecmwf": 0.3}, at(0)).states_seen == 0
        session.learn("a", 1, at(1))
        session.learn("a", 0, at(1))  # a conflict is a state event too
        session.learn("c", 0, at(1))  # parked
        with pytest.raises(sa.EventError):
            session.learn("b", 2, at(1))  # refused: none
        session.decide("b", {"ecmwf": 0.3}, at(2))
        assert session.decide("c", {"ecmwf": 0.3}, at(2)).states_seen == 3


class TestSchedule:
    def solved_at(self, session: sa.Session, hours: list[float], at: At) -> list[int]:
        """Rounds counted at each solve, while an event comes at each of those hours; every new rule is published, and
        all that is known of it where the rounds have grown by a quarter."""
        rng, rounds, reported, version = random.Random(5), [0], 0, 0
        for t, hour in enumerate(hours):
            record = {"session": "paris-rain", "event": f"e{t}", "time": at(hour), "forecasts": reports(rng)}
            *before, action = session.forecast(Forecast.from_record(record))
            assert isinstance(action, sa.Action)
            new = [(o.round, o.version) for o in before if isinstance(o, RuleRecord)]
            if action.rule.round == rounds[-1]:
                assert not before
                continue
            assert action.rule.round == t
            rounds.append(t)
            reports_due = t >= reported * SETTLE_GROWTH
            assert [o.reason for o in before if isinstance(o, Regret)] == ["solve"] * reports_due
            assert new == [(t, action.rule.version)] * (reports_due or action.rule.version > version)
            reported, version = t if reports_due else reported, action.rule.version
        assert 1 < version < len(rounds)
        return rounds[1:]

    @pytest.mark.parametrize("k", [1, 2, 7])
    def test_every(self, make: Make, at: At, k: int) -> None:
        assert self.solved_at(make(schedule={"every": k}), [0.0] * 60, at) == list(range(1, 60, k))

    @pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
    def test_growth(self, make: Make, at: At, share: float) -> None:
        expected = [1]
        while (t := max(expected[-1] + 1, math.ceil(expected[-1] * (1 + share) - 1e-12))) < 90:
            expected.append(t)
        assert self.solved_at(make(schedule={"growth": share}), [0.0] * 90, at) == expected

    def test_seconds_of_event_time(self, make: Make, at: At) -> None:
        rng = random.Random(6)
        hours = [rng.uniform(0, 30) if rng.random() < 0.2 else float(i) for i in range(60)]
        expected, clock, solved = [], hours[0], -math.inf
        for t, hour in enumerate(hours):
            clock = max(clock, hour)  # an event from the past does not turn the clock back
            if t and (clock - solved) * 3600 >= 9000:
                expected.append(t)
                solved = clock
        assert self.solved_at(make(schedule={"seconds": 9000}), hours, at) == expected
        assert 10 < len(expected) < 40
        assert self.solved_at(make(schedule={"seconds": 9000}), [10.0, 0.0, 5.0, 12.4, 12.5], at) == [1, 4]

    @pytest.mark.parametrize("share", [0.003, 0.03])
    def test_certified_keeps_the_gap_it_promises(self, make: Make, at: At, share: float) -> None:
        session, rng, solves = make(schedule={"certified": share}, gamma=3.0), random.Random(7), 0
        for t in range(150):
            assert session.certificate is not None
            stale = session.certificate.gap(session.rule)
            action = session.decide(f"e{t}", reports(rng), at(t))
            if t == 0:
                continue
            assert stale is not None
            allowed = share * 3.0 / math.sqrt(t)
            assert action.rule.gap is not None
            assert action.rule.gap <= allowed
            if t > 1:
                assert (action.rule.round == t) == (stale > allowed)
            solves += action.rule.round == t
        assert 3 < solves < 140

    def test_a_failed_solve_leaves_the_rule_and_is_counted(self, make: Make, at: At) -> None:
        session = make(gamma="inf")  # no rho is 0 and 1 at once
        for t in range(5):
            action = session.decide(f"e{t}", {"ecmwf": 0.0, "gfs": 1.0}, at(t))
            assert (action.rule.version, action.strategy) == (0, {"stay": 0.75, "prepare": 0.25})
        assert session.report().counts["unsolved"] == 4

    def test_a_solve_past_its_limit_leaves_the_rule_and_the_record_says_so(self, make: Make, at: At) -> None:
        session, rng, tried = make(schedule={"every": 1}, solve_limit_s=1e-12), random.Random(9), 0
        for t in range(60):
            record = {"session": "paris-rain", "event": f"e{t}", "time": at(t), "forecasts": reports(rng)}
            *before, action = session.forecast(Forecast.from_record(record))
            assert isinstance(action, sa.Action)
            assert (action.rule.version, action.rule.round) == (0, 0)
            said = [o.unsolved for o in before if isinstance(o, RuleRecord)]
            due = t > 0 and t >= tried * 1.05
            assert said == ["no optimum within 1e-12 nominal seconds"] * due
            tried = t if due else tried


class TestDraw:
    def test_it_follows_from_seed_session_and_event_alone(self, make: Make, at: At) -> None:
        events = [f"e{i}" for i in range(200)]

        def drawn(order: list[str], **changes: Any) -> dict[str, str]:
            session = make(schedule={"every": 1000}, **changes)
            return {event: session.decide(event, {}, at(i)).action for i, event in enumerate(order)}

        first = drawn(events)
        assert drawn(events[::-1]) == first
        assert set(first.values()) == {"stay", "prepare"}
        assert drawn(events, seed=1) != first != drawn(events, session="paris-snow")

    def test_frequencies_are_the_strategy(self, make: Make, at: At) -> None:
        n, session = 4000, make(schedule={"every": 10_000})
        seen = Counter(session.decide(f"e{i}", {}, at(0)).action for i in range(n))
        assert chisquare([seen["stay"], seen["prepare"]], [0.75 * n, 0.25 * n]).pvalue > 0.01

    def test_frequencies_follow_strategies_that_change(self, make: Make, at: At) -> None:
        session, rng = make(schedule={"growth": 0.5}), random.Random(8)
        excess = variance = 0.0
        for i in range(3000):
            action = session.decide(f"e{i}", reports(rng), at(0))
            p = action.strategy["prepare"]
            excess += (action.action == "prepare") - p
            variance += p * (1 - p)
        assert variance > 50
        assert abs(excess) < 3 * math.sqrt(variance)


class TestRefusals:
    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            ({"event": "new", "forecasts": {"ecmwf": 0.3, "gfs": 0.5, "nobody": 0.5}}, "unknown_expert"),
            ({"event": "new", "forecasts": {"ecmwf": 1.5}}, "bad_event"),
            ({"event": "new", "forecasts": {"ecmwf": math.nan}}, "bad_event"),
            ({"event": "new", "forecasts": {"ecmwf": True}}, "bad_event"),
            ({"event": "new", "forecasts": {"ecmwf": 0.31, "gfs": 0.5}}, "off_level"),
            ({"event": "new", "forecasts": {"ecmwf": 0.3}}, "missing_expert"),
            ({"event": "", "forecasts": {}}, "bad_event"),
            ({"event": "\ud800", "forecasts": {"ecmwf": 0.3, "gfs": 0.5}}, "bad_event"),
            ({"event": "new", "forecasts": {}, "time": "2026-01-01 noon"}, "bad_event"),
            (
                {"event": "new", "forecasts": {"ecmwf": 0.3, "gfs": 0.5}, "time": "0001-01-01T00:00:00+01:00"},
                "bad_event",
            ),
            (
                {"event": "new", "forecasts": {"ecmwf": 0.3, "gfs": 0.5}, "time": "9999-12-31T23:00:00-01:00"},
                "bad_event",
            ),
            ({"event": "e0", "forecasts": {"ecmwf": 0.3, "gfs": 0.5}}, "duplicate"),
            ({"event": "e0", "forecasts": {"nobody": 0.3}}, "duplicate"),
            ({"event": "e0", "state": 2}, "bad_event"),
            ({"event": "e0", "state": 1, "time": "9999-12-31T23:00:00-01:00"}, "bad_event"),
            ({"event": "e0", "payoff": 1.0}, "bad_event"),
        ],
    )
    def test_a_refused_event_leaves_the_session_as_it_was(
        self, make: Make, at: At, fault: dict[str, Any], reason: str
    ) -> None:
        session = make(off_level="reject", missing="reject")
        for i in range(6):
            session.decide(f"e{i}", {"ecmwf": 0.3, "gfs": 0.5}, at(i))
        session.learn("e1", 1, at(3))
        session.changes()
        (before, known), event = without_duplicates(session), {"time": at(99), **fault}
        act = session.decide if "forecasts" in fault else partial(feed_back, session)
        with pytest.raises(sa.EventError) as refused:
            act(**event)
        assert refused.value.reason == reason
        after, duplicates = without_duplicates(session)
        assert after == before
        assert duplicates == known + (reason == "duplicate")
        assert session.changes().keys() <= ({"state"} if reason == "duplicate" else set())

    def test_a_report_changes_nothing(self, make: Make, at: At) -> None:
        session = make(schedule={"every": 1000})
        for i in range(9):
            session.decide(f"e{i}", {"ecmwf": 0.3}, at(i))
        before = session.to_bytes()
        report = session.report()
        assert (session.to_bytes(), report.round, report.robust.round) == (before, 9, 9)
        assert session.report() == report

    def test_closing_says_the_last_word(self, make: Make, at: At) -> None:
        session = make()
        session.decide("e", {"ecmwf": 0.3}, at(0))
        report = session.report()
        assert session.close() == replace(report, reason="close")

    def test_no_event_is_taken_after_the_close(self, make: Make, at: At) -> None:
        session = make()
        session.close()
        with pytest.raises(sa.EventError):
            session.decide("e", {"ecmwf": 0.3}, at(0))


class TestChange:
    def test_a_change_takes_effect_at_the_next_round(
        self, make: Make, small: dict[str, Any], at: At, prefix_counts: Callable[[list[sa.Action]], Counts]
    ) -> None:
        session, rng = make(schedule={"every": 1000}, gamma=0.5), random.Random(11)
        actions = [session.decide(f"e{t}", reports(rng), at(t)) for t in range(30)]
        assert actions[-1].rule.round == 1
        rule = session.rule
        new = sa.SessionSpec.from_dict({**small, "schedule": {"every": 4}, "gamma": 2.0, "epsilon": 0.1})
        assert session.change(new) is True
        assert session.rule is rule
        assert session.spec == new
        for t in range(30, 40):
            actions.append(session.decide(f"e{t}", reports(rng), at(t)))
            solved = 30 + (t - 30) // 4 * 4
            then = sa.solve(new, prefix_counts(actions[:solved]))
            assert (actions[t].rule.round, actions[t].spec_version) == (solved, 2)
            assert actions[t].strategy == then.strategy(tuple(actions[t].profile.values()))
        assert (session.rule.gamma, session.rule.epsilon) == (2.0, 0.1)

    def test_a_change_does_not_wait_for_the_schedule(self, make: Make, at: At) -> None:
        session = make(schedule={"every": 1000}, gamma=0.5)
        for t in range(5):
            session.decide(f"e{t}", {"ecmwf": 0.3}, at(t))
        session.change(replace(session.spec, gamma=2.0))
        assert [session.decide(f"f{t}", {"ecmwf": 0.3}, at(t)).rule.round for t in range(3)] == [5, 5, 5]
        assert session.rule.gamma == 2.0

    def test_others_are_refused_all_at_once(self, make: Make, small: dict[str, Any], at: At) -> None:
        session = make()
        session.decide("e", {"ecmwf": 0.3}, at(0))
        before = session.to_bytes()
        other = {
            **small,
            "gamma": 1.0,
            "seed": 5,
            "window": 7,
            "actions": {"stay": [1, 0]},
            "experts": dict(reversed(small["experts"].items())),
        }
        with pytest.raises(sa.SpecError) as refused:
            session.change(sa.SessionSpec.from_dict(other))
        assert refused.value.reason == "spec_change"
        assert {fault.split()[0] for fault in refused.value.faults} == {"seed", "window", "actions", "experts"}
        assert session.to_bytes() == before

    def test_an_equal_spec_is_no_change(self, make: Make, small: dict[str, Any], at: At) -> None:
        session = make()
        session.decide("e", {"ecmwf": 0.3}, at(0))
        before = session.to_bytes()
        assert session.change(sa.SessionSpec.from_dict(small)) is False
        assert session.to_bytes() == before
        assert session.decide("f", {"ecmwf": 0.3}, at(0)).spec_version == 1


def test_times_are_the_events_own(make: Make, at: At) -> None:
    session = make()
    assert session.decide("e", {}, "2027-03-01T12:00:00+02:00").time == "2027-03-01T10:00:00Z"
    session.decide("f", {}, "2027-02-01T00:00:00Z")
    assert session.report().time == "2027-03-01T10:00:00Z"
    session.learn("e", 1, "2027-03-02T00:00:00Z")
    session.learn("f", 1, "2027-02-02T00:00:00Z")
    assert parse_time(session.report().time) == parse_time("2027-03-02T00:00:00Z")
