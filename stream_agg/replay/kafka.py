"""A file of forecasts through a running deployment: into the input topics, and what the worker makes of it back out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from stream_agg.errors import StreamAggError
from stream_agg.replay.files import Outcome, Writer, feed
from stream_agg.replay.letters import MARK
from stream_agg.replay.source import Source
from stream_agg.replay.tap import Tap
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec
from stream_agg.worker.settings import Settings


class _Collected:
    """What came out of the topics for one session; the first of every action id counts, repeats must equal it."""

    def __init__(self, settings: Settings, session: str, writer: Writer) -> None:
        self.settings, self.session, self.writer = settings, session, writer
        self.seen: dict[str, bytes] = {}
        self.repeats = 0
        self.closed = False

    def take(self, topic: str, key: str, value: bytes, headers: dict[str, str]) -> None:
        """One output record."""
        if key != self.session:
            return
        if topic == self.settings.topic_dead_letters:
            if MARK in headers:
                return
            place = f"{headers['topic']}/{headers['partition']}/{headers['offset']}"
            self.writer.refused(headers["reason"], place, headers["detail"])
            return
        name = headers["ce_id"] if topic == self.settings.topic_actions else f"regret {headers['ce_id']}"
        if name in self.seen:
            self.repeats += 1
            if self.seen[name] != value:
                raise StreamAggError(f"{name} came twice, and differs: {self.seen[name]!r} and {value!r}")
            return
        self.seen[name] = value
        if topic == self.settings.topic_actions:
            self.writer.action(value)
        else:
            self.writer.regret(value)
            self.closed = self.closed or self.writer.outcome.final["reason"] == "close"


async def replay(
    source: Source,
    spec: SessionSpec,
    delay_us: int,
    settings: Settings,
    out: Path | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> Outcome:
    """Feed a file's rows and outcomes in event time, wait until the worker has applied them all, close the session.

    Needs a worker on the same brokers and Redis. `StreamAggError` where it does not move, or a repeat differs.
    """
    to, name = settings, spec.session
    inputs = [to.topic_forecasts, to.topic_states]
    with ExitStack() as files:
        collected, told = _Collected(settings, name, Writer(out, files)), 0

        def tell() -> None:
            nonlocal told
            now = collected.writer.outcome.actions
            progress(now - told)
            told = now

        async with Tap(settings, collected.take) as tap:
            await tap.refuse_running(name)
            partition = await tap.send(to.topic_sessions, name, spec.to_dict())
            for step in feed(source, spec, delay_us):
                for row in step.forecasts:
                    record = {"session": name, "event": row.event, "time": row.time, "forecasts": row.forecasts}
                    await tap.send_soon(to.topic_forecasts, name, record)
                for event, state in step.states:
                    known = {"session": name, "event": event, "time": step.time, "state": state}
                    await tap.send_soon(to.topic_states, name, known)
                tell()
            await tap.flush()
            await tap.until_drained(inputs, partition, tell)
            tables = await tap.load(partition, name)
            await tap.send(to.topic_sessions, name, None)
            await tap.until(lambda: collected.closed, "waiting for the final report")
            tell()
        outcome = collected.writer.outcome
        outcome.repeats = collected.repeats
        if tables is not None:
            outcome.calibration = Session.from_tables(tables).calibration()
        return outcome
