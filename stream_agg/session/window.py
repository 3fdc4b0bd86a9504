"""How long a session remembers: decisions that wait for their state, ids against repeats, states that came early."""

from __future__ import annotations

from stream_agg.session.codec import Parked
from stream_agg.session.stored import Stored


def forget(session: Stored) -> list[tuple[str, Parked]]:
    """Drop what can no longer matter; the parked states among it are returned, in order.

    A decision goes two deadlines after it, when both forecasts and states have got that far: either topic may run
    ahead of the other. A parked state goes when the forecasts are a deadline past it. Both go when more than `window`
    came after them.
    """
    known, window, deadline_us = session.counters, session.spec.window, session.spec.state_deadline_us
    before_us = None
    if known.state_us is not None and known.forecast_us is not None:
        before_us = min(known.state_us, known.forecast_us) - 2 * deadline_us
    while session.events:
        event, decision = next(iter(session.events.items()))
        if len(session.events) <= window and (before_us is None or decision.time_us >= before_us):
            break
        del session.events[event]
        session.touch("events", event)
        if decision.state is None:
            session.open -= 1
            known.counts["expired"] += 1
    dropped = []
    while session.parked:
        event, early = next(iter(session.parked.items()))
        reached = known.forecast_us is not None and early.time_us + deadline_us < known.forecast_us
        if len(session.parked) <= window and not reached:
            break
        del session.parked[event]
        session.touch("parked", event)
        dropped.append((event, early))
    return dropped
