"""One session: takes events in order, gives outputs, and is a pure function of its spec and those events.

`forecast` and `state` are what the worker calls; `decide`, `learn` and `report` are the same for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from stream_agg.errors import EventError, SpecError
from stream_agg.events import (
    Action,
    Dropped,
    Forecast,
    Regret,
    RuleRecord,
    RuleStamp,
    State,
    format_time,
)
from stream_agg.rule.certificate import Certificate
from stream_agg.rule.rule import unseen_rule
from stream_agg.rule.support import Profile
from stream_agg.session import drift, reports, scores
from stream_agg.session.codec import Decision, Parked
from stream_agg.session.draw import draw, stream, uniform
from stream_agg.session.scores import Tally
from stream_agg.session.solving import REPORT_GROWTH, Solving
from stream_agg.session.window import expire, park, remember, unpark
from stream_agg.spec import SessionSpec

Output = Action | Regret | RuleRecord | Dropped
Learned = Literal["applied", "parked", "duplicate", "late", "conflict"]


class Session(Solving):
    """The engine of one session, as the worker runs it.

    A decision is made by the spec's policy before its own forecast is counted: from the rule in force (Algorithm 1), or
    from the feedback that has come back for its profile (Algorithm 2). An event that cannot be applied raises
    `EventError` and leaves the session as it was, but for the count of duplicates.
    """

    def __init__(self, spec: SessionSpec) -> None:
        super().__init__(spec)
        self._payoffs = tuple(spec.actions.values())
        self._action_names = tuple(spec.actions)
        self._no_action = dict.fromkeys(spec.actions, 0.0)
        self._levels = [(*a.levels, None) for a in spec.experts.values()]  # the last one by SILENT, -1
        self._draws = stream(spec.seed, spec.session)

    def decide(self, event: str, forecasts: Mapping[str, float | None], time: str | datetime) -> Action:
        """Decide at a reported profile, expert -> probability or None, and count it; solve first if the schedule asks.

        `EventError` with reason "duplicate" for an event id that was decided before.
        """
        record = {"session": self.spec.session, "event": event, "time": _text(time), "forecasts": dict(forecasts)}
        for output in self.forecast(Forecast.from_record(record)):
            if isinstance(output, Action):
                return output
        raise EventError("duplicate", f"event {event!r} was decided before")

    def learn(self, event: str, state: int, time: str | datetime) -> Learned:
        """Learn what became of an event, whenever it is known; says what was made of it."""
        record = {"session": self.spec.session, "event": event, "time": _text(time), "state": state}
        return self.state(State.from_record(record))[0]

    def forecast(self, forecast: Forecast) -> list[Output]:
        """Apply a forecast event: the action last, before it a new rule and its report, and states that expired."""
        self._refuse_closed()
        known = self.counters
        if forecast.event in self.events:
            known.counts["duplicate"] += 1
            self.touch("state", "counters")
            return []
        profile = self.spec.profile(forecast.forecasts)
        known.forecast_us = _latest(known.forecast_us, forecast.time_us)
        outputs = self._unknown(expire(self))
        gap = self._gap()
        if self._due(gap):
            outputs += self._solve()
            gap = self._gap()
        self._recalibrate()
        outputs.append(self._act(forecast, profile, gap))
        if forecast.event in self.parked:
            early = unpark(self, forecast.event)
            outputs += self._learn(self._unparked(forecast.event, early), early.origin)[1]
        return outputs

    def state(self, state: State, origin: Any = None) -> tuple[Learned, list[Output]]:
        """Apply a state event; `origin` (a JSON value) comes back in `Dropped` if it cannot be learned from."""
        self._refuse_closed()
        if (state.state is None) != (self.spec.feedback == "payoff"):
            wanted = "a payoff" if self.spec.feedback == "payoff" else "a state"
            raise EventError("bad_event", f"feedback is {self.spec.feedback!r}: expected {wanted}")
        self.policy.check(state)
        known = self.counters
        known.states_seen += 1
        known.state_us = _latest(known.state_us, state.time_us)
        self.touch("state", "counters")
        learn = self._learn if state.event in self.events else self._park
        result, outputs = learn(state, origin)
        return result, outputs + self._unknown(expire(self))

    def knows(self, event: str) -> bool:
        """Whether a decision of that event is remembered: a state of it is learned from, or dropped, at once."""
        return event in self.events

    @property
    def gap(self) -> float | None:
        """How far the rule in force can be from optimal, per round; None without a proof, and for learners."""
        return self._gap() if self.policy.follows_rule else None

    def report(self) -> Regret:
        """The state of things now, with robust regret solved afresh; changes nothing."""
        return reports.regret(self, "states", self._fresh_robust())

    def close(self) -> Regret:
        """The final report; no event is taken after."""
        self.counters.closed = True
        self.touch("state", "counters")
        return reports.regret(self, "close", self._fresh_robust())

    def change(self, spec: SessionSpec) -> bool:
        """Take a new spec: gamma, epsilon and schedule change from the next round on (and horizon, which is nothing to
        policy `robust` and fixed for the others). False if it is equal.

        `SpecError` where it changes what a running session cannot.
        """
        refused = self.spec.changes_refused(spec)
        if refused:
            raise SpecError([f"{name} cannot change while the session runs" for name in refused], "spec_change")
        if spec == self.spec:
            return False
        self.spec, self._solver = spec, None
        self.counters.spec_version += 1
        self.counters.resolve = self.counters.round > 0
        if not self.counters.round:
            self.rule = unseen_rule(spec)
            self.certificate, self.robust = Certificate.empty(self.rule), scores.no_rounds(self.rule)
            for field in ("rule", "certificate", "robust"):
                self.touch("state", field)
        self.touch("state", "spec")
        self.touch("state", "counters")
        return True

    def calibration(self) -> dict[str, list[tuple[float, int, int]]]:
        """expert -> [(level, known rounds with state 0, with state 1)]."""
        by_level = scores.states_by_level(self.spec, scores.known_states(self.spec, self.tallies))
        return {
            name: [(z, int(n0), int(n1)) for z, (n0, n1) in zip(alphabet.levels, by_level[name], strict=True)]
            for name, alphabet in self.spec.experts.items()
        }

    def _act(self, forecast: Forecast, profile: Profile, gap: float | None) -> Action:
        spec, known = self.spec, self.counters
        tally = self.tallies.get(profile)
        if tally is None:
            tally = self.tallies[profile] = Tally()
        acting = self.policy.name
        gap = gap if self.policy.follows_rule else None
        mix, note = self.policy.act(self.rule, profile, tally, forecast.forecasts)
        chosen = draw(mix, uniform(self._draws, forecast.event))
        stamp = RuleStamp(known.rule_version, known.proven_round, gap)
        known.round += 1
        tally.seen += 1
        strategy = self._no_action.copy()
        for action, probability in mix:
            u0, u1 = self._payoffs[action]
            tally.payoff0 += probability * u0
            tally.slope += probability * (u1 - u0)
            strategy[self._action_names[action]] = probability
        if self.certificate is not None:
            self.certificate.add(self.rule, profile)
            self.touch("state", "certificate")
        if self._solver is not None:
            self._solver.count(profile)
        if spec.half_life is None:
            if drift.due(known.round):
                self.drift = self.drift.look(spec.experts, scores.reports(spec, self.tallies))
                self.touch("state", "drift")
        elif known.round % spec.half_life == 0:
            self._forget()
        states = tally.states0 + tally.states1
        decision = Decision(known.round, forecast.time_us, profile, mix, chosen, states, None, None, note)
        remember(self, forecast.event, decision)
        self.touch_profile(profile)
        self.touch("state", "counters")
        return Action(  # by position: half the time of names, for what is made for every event
            spec.session,
            forecast.event,
            format_time(forecast.time_us),
            known.round,
            {name: levels[i] for name, levels, i in zip(spec.experts, self._levels, profile, strict=True)},
            self._action_names[chosen],
            strategy,
            acting,
            stamp,
            known.states_seen,
            known.spec_version,
        )

    def _learn(self, state: State, origin: Any) -> tuple[Learned, list[Output]]:
        known, decision = self.counters, self.events[state.event]
        value = -1 if state.state is None else state.state
        self.touch("state", "counters")
        if decision.state is not None:
            if (decision.state, decision.payoff) == (value, state.payoff):
                known.counts["duplicate"] += 1
                return "duplicate", []
            before = f"state was {decision.state}" if state.payoff is None else f"payoff was {decision.payoff:g}"
            return "conflict", [self._drop("conflict", state, origin, f"its {before} before")]
        if state.time_us - decision.time_us > self.deadline_us:
            return "late", [self._drop("late", state, origin, f"more than {self.spec.state_deadline} after")]
        decision.state, decision.payoff = value, state.payoff
        self.open -= 1
        self.touch("events", state.event)
        known.states += 1
        tally = self.tallies.setdefault(decision.profile, Tally())
        if state.state is None:
            known.payoff += state.payoff or 0.0
        else:
            known.payoff += self._payoffs[decision.action][value]
            for action, probability in decision.mix:
                known.expected_payoff += probability * self._payoffs[action][value]
            tally.states0 += 1 - value
            tally.states1 += value
        self.policy.learn(known, tally, decision)
        if self.policy.pool is not None:
            self.touch("state", "pool")
        self.touch_profile(decision.profile)
        if known.states < max(known.reported_states + 1, known.reported_states * REPORT_GROWTH):
            return "applied", []
        known.reported_states = known.states
        return "applied", [reports.regret(self, "states", self.robust)]

    def _park(self, state: State, origin: Any) -> tuple[Learned, list[Output]]:
        early = self.parked.get(state.event)
        if early is not None:
            if (early.state, early.payoff) == (state.state, state.payoff):
                self.counters.counts["duplicate"] += 1
                return "duplicate", []
            return "conflict", [self._drop("conflict", state, origin, "another one waits for its forecast")]
        early = Parked(self.counters.states_seen, state.time_us, state.state, state.payoff, origin)
        return "parked", self._unknown(park(self, state.event, early))

    def _unknown(self, gone: Iterable[tuple[str, Parked]]) -> list[Output]:
        return [
            self._drop("unknown", self._unparked(event, early), early.origin, "no forecast of it came in time")
            for event, early in gone
        ]

    def _unparked(self, event: str, early: Parked) -> State:
        return State(self.spec.session, event, early.time_us, early.state, early.payoff)

    def _refuse_closed(self) -> None:
        if self.counters.closed:
            raise EventError("unknown_session", f"session {self.spec.session!r} is closed")

    def _drop(self, reason: Literal["late", "unknown", "conflict"], state: State, origin: Any, detail: str) -> Dropped:
        self.counters.counts[reason] += 1
        return Dropped(state.session, state.event, reason, f"event {state.event!r}: {detail}", origin)


def _latest(before: int | None, now: int) -> int:
    return now if before is None or now > before else before


def _text(time: str | datetime) -> str:
    if isinstance(time, str):
        return time
    if time.tzinfo is None:
        raise EventError("bad_event", "time: a datetime without a time zone")
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
