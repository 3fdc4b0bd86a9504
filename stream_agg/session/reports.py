"""Records about a session as it stands: its rule, and its regret. Changes nothing."""

from __future__ import annotations

import math
from typing import Literal

from stream_agg.events import RealizedPart, Regret, RobustPart, RuleRecord, format_time
from stream_agg.session import scores
from stream_agg.session.stored import Stored


def rule_record(session: Stored, unsolved: str | None = None) -> RuleRecord:
    """The rule in force; `unsolved` says why there is no newer one."""
    rule = session.rule
    return RuleRecord(
        session=session.spec.session,
        time=now(session),
        version=session.counters.rule_version,
        round=session.counters.proven_round,
        duals={
            name: dict(zip(texts, prices, strict=False))
            for name, texts, prices in zip(session.spec.experts, session.names.levels, rule.prices, strict=True)
        },
        value=rule.value,
        upper_bound=rule.upper_bound,
        gap=rule.gap,
        penalty=rule.penalty,
        exact=rule.exact,
        gamma=None if math.isinf(rule.gamma) else rule.gamma,
        epsilon=rule.epsilon,
        epsilon_min=rule.epsilon_min,
        unsolved=unsolved,
    )


def regret(session: Stored, reason: Literal["solve", "states", "close"], robust: RobustPart) -> Regret:
    """The report with that robust part."""
    spec, known = session.spec, session.counters
    states = scores.known_states(spec, session.tallies)
    return Regret(
        session=spec.session,
        time=now(session),
        round=known.round,
        reason=reason,
        robust=robust,
        realized=_realized(session, states),
        calibration=scores.calibration(spec, states),
        open=session.open,
        oldest_open=_oldest_open(session),
        counts=dict(known.counts),
        drift=session.drift.latest,
    )


def now(session: Stored) -> str:
    """The latest event time the session has seen."""
    known = session.counters
    return format_time(max((t for t in (known.forecast_us, known.state_us) if t is not None), default=0))


def _oldest_open(session: Stored) -> str | None:
    # Looks at every decision that is remembered; reports become rare as decisions become many.
    times = [d.time_us for d in session.events.values() if d.state is None]
    return format_time(min(times)) if times else None


def _realized(session: Stored, states: scores.Known) -> RealizedPart:
    known = session.counters
    if session.spec.feedback == "payoff":
        return RealizedPart(known.states, known.payoff, None, None, None, None, None)
    oih, contextual = scores.hindsight(session.spec, states)
    return RealizedPart(
        states=known.states,
        payoff=known.payoff,
        expected_payoff=known.expected_payoff,
        optimal_in_hindsight=oih,
        contextual=contextual,
        contextual_regret=contextual - known.payoff,
        bound=session.policy.bound(known, session.tallies.values()),
        members=session.policy.members(),
    )
