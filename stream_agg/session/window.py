"""How long a session remembers: decisions that wait for their state, ids against repeats, states that came early.

A decision goes two deadlines after it, when both forecasts and states have got that far: either topic may run ahead of
the other. A parked state goes when the forecasts are a deadline past it. Both go when `window` newer ones are there.
"""

from __future__ import annotations

from stream_agg.session.codec import Decision, Parked
from stream_agg.session.stored import Stored


def remember(session: Stored, event: str, decision: Decision) -> None:
    """Keep a new decision, and let the oldest go for it if the window is full."""
    if len(session.events) >= session.spec.window:
        _let_go(session, next(iter(session.events)))
    session.events[event] = decision
    session.open += 1
    session.due_events.add(event, decision, session.events)
    session.touch("events", event)


def park(session: Stored, event: str, state: Parked) -> list[tuple[str, Parked]]:
    """Keep a state that came early; the oldest such, if it had to go for it."""
    oldest = next(iter(session.parked), None)
    gone = [] if oldest is None or len(session.parked) < session.spec.window else [(oldest, unpark(session, oldest))]
    session.parked[event] = state
    session.due_parked.add(event, state, session.parked)
    session.touch("parked", event)
    return gone


def unpark(session: Stored, event: str) -> Parked:
    """Take a parked state out."""
    session.touch("parked", event)
    return session.parked.pop(event)


def expire(session: Stored) -> list[tuple[str, Parked]]:
    """Drop what is past its time; the parked states among it are returned, the oldest first."""
    known, deadline_us = session.counters, session.deadline_us
    if known.forecast_us is None:
        return []
    if known.state_us is not None:
        past_us = min(known.state_us, known.forecast_us) - 2 * deadline_us
        for event in session.due_events.before(past_us, session.events):
            _let_go(session, event)
    if not session.parked:
        return []
    due = session.due_parked.before(known.forecast_us - deadline_us, session.parked)
    return [(event, unpark(session, event)) for event in due]


def _let_go(session: Stored, event: str) -> None:
    decision = session.events.pop(event)
    session.touch("events", event)
    if decision.state is None:
        session.open -= 1
        session.counters.counts["expired"] += 1
