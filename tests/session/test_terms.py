"""What of a rule is chosen and when, what its stamp claims between, and what is said where there is none."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import stream_agg as sa
from stream_agg.events import Forecast, Regret, RuleRecord
from stream_agg.session.engine import Output
from stream_agg.session.solving import PROVEN, REPORT_GROWTH, SETTLE_GROWTH

Make = Callable[..., sa.Session]
At = Callable[[float], str]
Reports = dict[str, float | None]
TENTHS = {"ecmwf": {"levels": 11}, "gfs": {"levels": 11}}
Counts = dict[tuple[float | None, ...], int]


def contrary(rng: random.Random) -> Reports:
    """Two experts who cannot both be right, whatever the states: on the whole, the second says more."""
    truth = rng.random()
    low, high = rng.gauss(truth, 0.1), rng.gauss(truth + 0.05, 0.1)
    return {"ecmwf": min(max(low, 0.0), 1.0), "gfs": min(max(high, 0.0), 1.0)}


def agreed(rng: random.Random) -> Reports:
    said = rng.choice((0.0, 1.0))
    return {"ecmwf": said, "gfs": said}


def follow(
    session: sa.Session, rounds: int, at: At, report: Callable[[random.Random], Reports], seed: int = 1
) -> Iterator[tuple[sa.Action, list[Output], Counts]]:
    """Every action, what came before it, and the counts that its rule could know."""
    rng, seen, first = random.Random(seed), Counts(), session.counters.round
    for t in range(first, first + rounds):
        record = {"session": "paris-rain", "event": f"e{t}", "time": at(t), "forecasts": report(rng)}
        *before, action = session.forecast(Forecast.from_record(record))
        assert isinstance(action, sa.Action)
        yield action, before, seen
        levels = tuple(action.profile.values())
        seen[levels] = seen.get(levels, 0) + 1


def records(outputs: list[Output]) -> list[RuleRecord]:
    return [o for o in outputs if isinstance(o, RuleRecord)]


class TestEpsilonAuto:
    @pytest.mark.parametrize("schedule", [{"every": 1}, {"certified": 0.002}, {"every": 3}], ids=str)
    @pytest.mark.parametrize("gamma", ["auto", 200.0, "inf"])
    def test_it_is_half_as_much_again_as_forecasts_need_when_they_are_reported(
        self, make: Make, paper: Any, at: At, schedule: Any, gamma: Any
    ) -> None:
        session, settled, solved = make(epsilon="auto", gamma=gamma, schedule=schedule, experts=TENTHS), 0, 0
        for action, before, seen in follow(session, 250, at, contrary):
            if any(isinstance(o, Regret) for o in before):
                settled += 1
                least = paper(session.spec, seen).epsilon_min()
                assert session.rule.epsilon == pytest.approx(1.5 * least, abs=1e-9)
                assert session.rule.epsilon_min == pytest.approx(least, abs=1e-9)
                assert (session.rule.exact, session.rule.penalty) == (True, 0.0)
                assert (session.robust.exact, session.robust.penalty, session.robust.value_penalty) == (True, 0.0, 0.0)
                terms = (session.rule.gamma, session.rule.epsilon, session.rule.epsilon_min)
            elif before and not records(before)[0].unsolved:
                solved += 1
                assert (session.rule.gamma, session.rule.epsilon, session.rule.epsilon_min) == terms
            for record in records(before):
                assert (record.epsilon, record.epsilon_min) == (session.rule.epsilon, session.rule.epsilon_min)
            assert action.rule.version == session.counters.rule_version
        assert settled >= 10
        assert solved >= 3
        assert terms[1] > 0.01

    @pytest.mark.parametrize("schedule", [{"every": 1}, {"certified": 0.1}, {"growth": 0.05}], ids=str)
    @pytest.mark.parametrize("gamma", ["auto", "inf"])
    def test_what_the_first_round_needed_does_not_stay(self, make: Make, at: At, schedule: Any, gamma: Any) -> None:
        """Contradictory at first, so that any rule is optimal within that much error; then of one mind."""
        session = make(epsilon="auto", gamma=gamma, schedule=schedule)
        session.decide("first", {"ecmwf": 0.0, "gfs": 1.0}, at(0))
        actions = [action for action, _, _ in follow(session, 300, at, agreed)]
        assert session.rule.epsilon < 0.01
        assert max(actions[-1].strategy.values()) == 1.0  # sure, of what both experts are sure of

    def test_it_is_0_where_forecasts_agree(self, make: Make, at: At) -> None:
        session = make(epsilon="auto")
        for _, _, seen in follow(session, 40, at, agreed):
            assert (session.rule.epsilon, session.rule.epsilon_min) == (0.0, 0.0)
            assert not seen or session.rule.exact

    def test_solve_is_of_its_own_counts(self, make: Make, at: At) -> None:
        session = make(epsilon="auto", schedule={"every": 1})
        for _, before, seen in follow(session, 60, at, contrary):
            if any(isinstance(o, Regret) for o in before):
                cold = sa.solve(session.spec, seen)
                mine = session.rule
                assert (mine.prices, mine.gamma, mine.epsilon) == (cold.prices, cold.gamma, cold.epsilon)
                assert (mine.value, mine.upper_bound) == (cold.value, cold.upper_bound)


def test_reports_follow_the_rounds_though_the_gap_asks_for_no_solve(make: Make, at: At) -> None:
    session = make(schedule={"certified": 0.1})
    told = [
        a.round - 1 for a, before, _ in follow(session, 300, at, agreed) if any(isinstance(o, Regret) for o in before)
    ]
    assert told[0] == 1
    assert told[-1] * SETTLE_GROWTH > 299
    assert all(b == max(a + 1, math.ceil(a * SETTLE_GROWTH - 1e-9)) for a, b in pairwise(told))


class TestEpsilonMeasured:
    @staticmethod
    def overconfident(rng: random.Random) -> tuple[Reports, int]:
        """Reports pushed away from one half, and the state that followed."""
        chance = rng.random()
        said = [min(max(0.5 + 1.5 * (rng.gauss(chance, 0.1) - 0.5), 0.0), 1.0) for _ in range(2)]
        return {"ecmwf": said[0], "gfs": None if rng.random() < 0.2 else said[1]}, int(rng.random() < chance)

    def test_it_is_what_known_states_say_when_terms_are_settled(self, make: Make, at: At) -> None:
        session = make(epsilon="measured", feedback="state", policy="robust", experts=TENTHS)
        rng, known, waiting, settled = random.Random(2), [], [], []
        for t in range(400):
            reports, state = self.overconfident(rng)
            record = {"session": "paris-rain", "event": f"e{t}", "time": at(t), "forecasts": reports}
            *before, action = session.forecast(Forecast.from_record(record))
            assert isinstance(action, sa.Action)
            if any(isinstance(o, Regret) for o in before):
                settled.append(session.rule.epsilon)
                rows = {(name, z) for levels, _ in known for name, z in levels.items() if z is not None}
                off = [sum(s - z for levels, s in known if levels[name] == z) for name, z in rows]
                total = sum(z is not None for levels, _ in known for z in levels.values())
                assert session.rule.epsilon == pytest.approx(sum(map(abs, off)) / max(total, 1), abs=1e-9)
            elif settled:
                assert session.rule.epsilon == settled[-1]  # until terms are settled again
            waiting.append((f"e{t}", action.profile, state))
            if t >= 40:  # nothing is known before, and then all of forty rounds ago
                event, levels, came = waiting.pop(0)
                session.learn(event, came, at(t))
                known.append((levels, came))
        assert settled[0] == 0.0
        assert settled[-1] > 0.05

    def test_a_session_that_was_stored_goes_on_to_the_same_bytes(self, make: Make, at: At) -> None:
        kept = make(epsilon="measured", feedback="state", policy="robust", experts=TENTHS)
        stored, rng = make(epsilon="measured", feedback="state", policy="robust", experts=TENTHS), random.Random(3)
        for t in range(120):
            reports, state = self.overconfident(rng)
            for session in (kept, stored):
                session.decide(f"e{t}", reports, at(t))
                session.learn(f"e{t}", state, at(t))
            stored = sa.Session.from_bytes(stored.to_bytes())
        assert kept.rule.epsilon > 0
        assert stored.to_bytes() == kept.to_bytes()

    def test_payoff_is_at_least_the_value_less_the_price_of_what_rows_exceed_it_by(self, make: Make, at: At) -> None:
        session = make(epsilon="measured", feedback="state", policy="robust", experts=TENTHS)
        rng = random.Random(4)
        for t in range(300):
            reports, state = self.overconfident(rng)
            session.decide(f"e{t}", reports, at(t))
            session.learn(f"e{t}", state, at(t))
        spec, tallies = session.spec, session.tallies
        rule = sa.solve(
            replace(spec, epsilon=session.rule.epsilon),
            {tuple(spec.reports(e).values()): tally.seen for e, tally in tallies.items()},
        )
        payoffs = list(spec.actions.values())
        earned = sum(
            p * (tally.states0 * payoffs[a][0] + tally.states1 * payoffs[a][1])
            for e, tally in tallies.items()
            for a, p in rule.mix(e)
        )
        excess = sum(
            max(0.0, abs(n1 - z * (n0 + n1)) - rule.epsilon * (n0 + n1))
            for levels in session.calibration().values()
            for z, n0, n1 in levels
        )
        assert excess > 0  # some rows err more than the mean
        assert earned >= rule.value * 300 - rule.gamma * excess - 1e-6

    def test_hard_constraints_do_not_go_with_it(self, make: Make) -> None:
        with pytest.raises(sa.SpecError, match='with "gamma": "inf", write "auto"'):
            make(epsilon="measured", gamma="inf", feedback="state")


class TestStamp:
    """With a solve at every event."""

    @pytest.mark.parametrize("gamma", [0.5, 3.0, "auto"])
    @pytest.mark.parametrize("seed", range(3))
    def test_every_action_is_the_rule_of_all_rounds_before(self, make: Make, at: At, gamma: Any, seed: int) -> None:
        session, held = make(gamma=gamma), 0
        stamps: list[tuple[int, Any]] = []
        for action, before, seen in follow(session, 150, at, contrary if seed else agreed, seed):
            assert (action.round - 1, action.rule.round) == (sum(seen.values()),) * 2
            assert action.rule.version == session.counters.rule_version
            if seen:
                stamps.append((action.rule.version, (session.rule.gamma, session.rule.prices)))
                cold = sa.solve(session.spec, seen)
                assert action.rule.gap is not None
                assert action.rule.gap <= max(PROVEN * session.rule.envelope.unit, session.rule.gap)
                if cold.gamma == session.rule.gamma:
                    assert session.rule.prices == cold.prices
            held += not before and bool(seen)
        assert all((v == w) == (p == q) for (v, p), (w, q) in pairwise(stamps))
        assert stamps[0][0] == 1
        assert held > 10  # most rounds change no price

    def test_versions_count_up_by_one(self, make: Make, at: At) -> None:
        said = [
            record.version for _, before, _ in follow(make(gamma=3.0), 200, at, contrary) for record in records(before)
        ]
        assert sorted(set(said)) == list(range(1, max(said) + 1))
        assert said == sorted(said)


class TestUnsolved:
    def tries(self, session: sa.Session, rounds: int, at: At, report: Any) -> list[tuple[int, RuleRecord]]:
        """(rounds before it, record) of every solve that failed."""
        return [
            (action.round - 1, record)
            for action, before, _ in follow(session, rounds, at, report)
            for record in records(before)
            if record.unsolved
        ]

    def retries(self, first: int, last: int) -> list[int]:
        """The rounds at which a failed solve is tried again: a twentieth more each time."""
        times = [first]
        while (t := math.ceil(max(times[-1] + 1, times[-1] * REPORT_GROWTH - 1e-9))) <= last:
            times.append(t)
        return times

    @pytest.mark.parametrize("schedule", [{"every": 1}, {"certified": 0.1}, {"growth": 0.01}, {"every": 3}], ids=str)
    def test_hard_rows_that_nothing_meets(self, make: Make, at: At, schedule: Any) -> None:
        session = make(gamma="inf", epsilon=0.2, schedule=schedule)
        tries = self.tries(session, 80, at, lambda rng: {"ecmwf": 0.0, "gfs": 1.0})
        assert [t for t, _ in tries] == self.retries(1, 79)
        for _, record in tries:
            assert record.unsolved == (
                "the forecasts cannot all be calibrated within epsilon=0.2; the smallest feasible epsilon is 0.5"
            )
            assert (record.version, record.round, record.gamma) == (0, 0, None)
            assert set(record.duals["gfs"].values()) == {0.0}
        assert session.report().counts["unsolved"] == len(tries)

    @pytest.mark.parametrize("schedule", [{"every": 1}, {"certified": 0.1}, {"every": 3}], ids=str)
    def test_the_old_rule_stays_until_a_solve_goes_well_again(self, make: Make, at: At, schedule: Any) -> None:
        session = make(gamma="inf", epsilon=0.1, schedule=schedule)
        actions = [action for action, _, _ in follow(session, 30, at, agreed)]
        assert actions[-1].rule.version >= 1
        failed: list[int] = []
        for action, before, _ in follow(session, 20, at, lambda rng: {"ecmwf": 0.0, "gfs": 1.0}):
            failed += [action.round - 1 for record in records(before) if record.unsolved]
            if not failed:
                rule, version = session.rule, action.rule.version
                continue
            assert (session.rule, action.rule.version) == (rule, version)
            assert action.rule.gap is None  # hard rows that are broken prove nothing
            assert action.rule.round < failed[0]
        assert len(failed) > 3
        assert failed == self.retries(failed[0], 49)
        failures = session.counters.counts["unsolved"]
        assert failures == len(failed)
        cured = (found for found in follow(session, 300, at, agreed) if not session.counters.failed)
        action, before, _ = next(cured)
        assert session.counters.counts["unsolved"] > failures
        assert action.rule.round == action.round - 1 > 50
        assert records(before)[0].unsolved is None
        assert any(isinstance(o, Regret) for o in before)
        assert 0.0 < session.rule.epsilon_min <= 0.1

    def test_a_limit_lifted_by_a_new_spec(self, make: Make, small: dict[str, Any], at: At) -> None:
        session = make(solve_limit_s=1e-12)
        tries = self.tries(session, 60, at, contrary)
        assert [t for t, _ in tries] == self.retries(1, 59)
        assert {record.unsolved for _, record in tries} == {"no optimum within 1e-12 nominal seconds"}
        assert session.change(sa.SessionSpec.from_dict(small))
        action, before, _ = next(follow(session, 1, at, contrary))
        assert (action.rule.version, action.rule.round) == (1, 60)
        assert [record.unsolved for record in records(before)] == [None]

    def test_a_session_loaded_while_it_fails_goes_on_alike(self, make: Make, at: At) -> None:
        whole = make(gamma="inf", epsilon=0.1, schedule={"every": 1})
        again = sa.Session.from_bytes(whole.to_bytes())
        rng = random.Random(3)
        for t in range(200):
            told = agreed(rng) if t < 20 or t > 40 else {"ecmwf": 0.0, "gfs": 1.0}
            a, b = (s.decide(f"e{t}", told, at(t)) for s in (whole, again))
            assert a == b
            again = sa.Session.from_bytes(again.to_bytes())
            assert again.to_bytes() == whole.to_bytes()
        assert whole.counters.counts["unsolved"] > 5
        assert not whole.counters.failed


def test_a_penalty_is_kept_apart_from_payoff(make: Make, at: At) -> None:
    """Where forecasts contradict each other a large gamma makes values that no payoff reaches; less the penalties they
    are payoffs again."""
    session, large = make(gamma=50.0, schedule={"every": 5}), 0
    for _, before, _ in follow(session, 100, at, contrary):
        for output in before:
            if isinstance(output, RuleRecord):
                large += output.value > 3.0
                assert 0.0 <= output.value - output.penalty <= 3.0
            if isinstance(output, Regret):
                part = output.robust
                assert 0.0 <= part.worst_case - part.penalty <= 3.0
                assert 0.0 <= part.value - part.value_penalty <= 3.0
    assert large > 5
