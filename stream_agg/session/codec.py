"""A session's state as small fields of JSON text, and back without loss. What a person reads in redis-cli is here.

state      spec, counters, rule, certificate, robust, drift; for hybrid: pool, recalibrated
profiles   "0.3 0.25 -" -> [seen, sum of x.u0, sum of x.(u1-u0), states 0, states 1]
           and for exp3, once it learned: updates, [[action, estimated loss], ...]
events     event id -> the decision that waits for its state, or has it
parked     event id -> a state that came before its forecast
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import orjson

from stream_agg.events import DriftPart, RobustPart
from stream_agg.learn.exp3 import Estimates
from stream_agg.rule.certificate import Certificate
from stream_agg.rule.envelope import envelope
from stream_agg.rule.rule import Rule
from stream_agg.rule.support import Profile
from stream_agg.session.drift import Drift
from stream_agg.session.pool import Note
from stream_agg.session.scores import Tally
from stream_agg.spec import SILENT, SessionSpec


@dataclass(slots=True)
class Decision:
    """What learning will need of a decision: never today's rule, but the mix and action of then.

    `states_known`: how many states of its profile were known then.
    `note`: what policy `hybrid` needs, until the state is known.
    `state` is None until known, then 0 or 1, or -1 for a `payoff` fed back without its state.
    """

    round: int
    time_us: int
    profile: Profile
    mix: tuple[tuple[int, float], ...]
    action: int
    states_known: int
    state: int | None = None
    payoff: float | None = None
    note: Note | None = None


@dataclass(slots=True)
class Parked:
    """A state that waits for its forecast; `number` is its place among the session's state events."""

    number: int
    time_us: int
    state: int | None
    payoff: float | None
    origin: Any = None


@dataclass(slots=True)
class Counters:
    """Everything of a session that is one number."""

    round: int = 0
    states_seen: int = 0
    spec_version: int = 1
    forecast_us: int | None = None
    state_us: int | None = None
    states: int = 0
    payoff: float = 0.0
    expected_payoff: float = 0.0
    delay_cost: float = 0.0
    rule_version: int = 0
    proven_round: int = 0
    settled_round: int = 0
    tried_round: int = 0
    tried_us: int | None = None
    reported_states: int = 0
    resolve: bool = False
    failed: bool = False
    closed: bool = False
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("duplicate", "late", "conflict", "unknown", "expired", "unsolved"), 0)
    )


def dump(value: Any) -> bytes:
    """JSON text; floats keep every bit."""
    return orjson.dumps(value)


class ProfileText:
    """Profiles as text of levels, experts in the spec's order, `-` for silence."""

    def __init__(self, spec: SessionSpec) -> None:
        self.levels = tuple(tuple(map(repr, a.levels)) for a in spec.experts.values())
        """The text of every level, by expert."""
        self._text = tuple((*texts, "-") for texts in self.levels)
        self._index = tuple({**{t: i for i, t in enumerate(row[:-1])}, "-": SILENT} for row in self._text)

    def text(self, profile: Profile) -> str:
        """Level indices to text."""
        return " ".join([row[i] for row, i in zip(self._text, profile, strict=True)])

    def profile(self, text: str) -> Profile:
        """Text to level indices."""
        return tuple([row[t] for row, t in zip(self._index, text.split(" "), strict=True)])


def dump_tally(tally: Tally) -> bytes:
    """One profile's accumulators."""
    numbers = [tally.seen, tally.payoff0, tally.slope, tally.states0, tally.states1]
    if tally.estimates is None:
        return dump(numbers)
    return dump([*numbers, tally.estimates.updates, list(tally.estimates.losses.items())])


def load_tally(text: bytes) -> Tally:
    """The inverse of `dump_tally`."""
    numbers = orjson.loads(text)
    tally, learned = Tally(*numbers[:5]), numbers[5:]
    if learned:
        updates, losses = learned
        tally.estimates = Estimates(updates, dict(losses))
    return tally


def dump_decision(decision: Decision) -> bytes:
    """One remembered decision."""
    note = {} if decision.note is None else {"note": decision.note.plain()}
    return dump(
        {
            "round": decision.round,
            "time_us": decision.time_us,
            "profile": decision.profile,
            "mix": decision.mix,
            "action": decision.action,
            "states_known": decision.states_known,
            "state": decision.state,
            "payoff": decision.payoff,
            **note,
        }
    )


def load_decision(text: bytes) -> Decision:
    """The inverse of `dump_decision`."""
    d = orjson.loads(text)
    mix = tuple((action, probability) for action, probability in d["mix"])
    profile, then = tuple(d["profile"]), d["states_known"]
    note = Note.of(d["note"]) if "note" in d else None
    return Decision(d["round"], d["time_us"], profile, mix, d["action"], then, d["state"], d["payoff"], note)


def load_parked(text: bytes) -> Parked:
    """The inverse of `dump` on a parked state."""
    return Parked(**orjson.loads(text))


def dump_rule(rule: Rule) -> bytes:
    """The solved numbers of a rule; its spec and payoffs are the session's."""
    return dump(
        {
            "prices": {name: p[:-1] for name, p in zip(rule.spec.experts, rule.prices, strict=True)},
            "gamma": _finite(rule.gamma),
            "epsilon": rule.epsilon,
            "rounds": rule.rounds,
            "value": rule.value,
            "upper_bound": rule.upper_bound,
            "violation": rule.violation,
            "exact": rule.exact,
            "epsilon_min": rule.epsilon_min,
        }
    )


def load_rule(text: bytes, spec: SessionSpec) -> Rule:
    """The inverse of `dump_rule`."""
    d = orjson.loads(text)
    return Rule(
        spec=spec,
        envelope=envelope(tuple(spec.actions.values())),
        prices=tuple((*d["prices"][name], 0.0) for name in spec.experts),
        gamma=math.inf if d["gamma"] is None else d["gamma"],
        epsilon=d["epsilon"],
        rounds=d["rounds"],
        value=d["value"],
        upper_bound=d["upper_bound"],
        violation=d["violation"],
        exact=d["exact"],
        least=partial(float, d["epsilon_min"]),
    )


def dump_certificate(certificate: Certificate | None) -> bytes:
    """The running sums of the proof; null where every event has a solve of its own."""
    return orjson.dumps(certificate, option=orjson.OPT_SERIALIZE_NUMPY)


def load_certificate(text: bytes) -> Certificate | None:
    """The inverse of `dump_certificate`."""
    d = orjson.loads(text)
    if d is None:
        return None
    return Certificate(**{**d, "residual": np.array(d["residual"]), "mass": np.array(d["mass"])})


def load_robust(text: bytes) -> RobustPart:
    """The robust part of the last report, as `dump` wrote it."""
    return RobustPart(**orjson.loads(text))


def dump_drift(drift: Drift, spec: SessionSpec) -> bytes:
    """The past counts of reports by expert (silence last), the oldest first, and the latest look."""
    past = [dict(zip(spec.experts, reports, strict=True)) for reports in drift.past]
    return dump({"past": past, "latest": drift.latest})


def load_drift(text: bytes, spec: SessionSpec) -> Drift:
    """The inverse of `dump_drift`."""
    d = orjson.loads(text)
    past = tuple(tuple(tuple(reports[name]) for name in spec.experts) for reports in d["past"])
    return Drift(past, None if d["latest"] is None else DriftPart(**d["latest"]))


def pack(tables: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """Tables as one JSON text with sorted keys: equal states, equal bytes."""
    plain = {name: {key: orjson.Fragment(value) for key, value in rows.items()} for name, rows in tables.items()}
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)


def unpack(packed: bytes) -> dict[str, dict[str, bytes]]:
    """The inverse of `pack`; `ValueError` where the bytes are no packed tables."""
    plain = orjson.loads(packed)
    if not isinstance(plain, dict) or not all(isinstance(rows, dict) for rows in plain.values()):
        raise ValueError("not the bytes of a session")
    return {name: {key: orjson.dumps(value) for key, value in rows.items()} for name, rows in plain.items()}


def _finite(x: float) -> float | None:
    return None if math.isinf(x) else x
