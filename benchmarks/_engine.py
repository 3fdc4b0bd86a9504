"""A batch of records through the engine as a worker takes it, step by step. No broker, no store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain, pairwise

import stream_agg as sa
from stream_agg.events import Dropped, Forecast, State
from stream_agg.session.engine import Output
from stream_agg.worker.wire import Applied, Encoder, Outputs, decode

STEPS = ("decode", "decide", "learn", "encode", "changes")


def laps(
    session: sa.Session, encoder: Encoder, forecasts: Sequence[bytes], states: Sequence[bytes] = ()
) -> list[float]:
    """Seconds of this thread that each of `STEPS` takes."""
    times = [time.thread_time()]
    asked = [Forecast.from_record(decode(text)) for text in forecasts]
    told = [State.from_record(decode(text)) for text in states]
    times.append(time.thread_time())
    outputs: list[Output] = list(chain.from_iterable(map(session.forecast, asked)))
    times.append(time.thread_time())
    for state in told:
        outputs += session.state(state)[1]
    times.append(time.thread_time())
    at = Applied(0, 0, session.counters.states_seen)
    Outputs("", 0, [encoder.row(output, at) for output in outputs if not isinstance(output, Dropped)]).pack()
    times.append(time.thread_time())
    session.changes()
    times.append(time.thread_time())
    return [end - start for start, end in pairwise(times)]
