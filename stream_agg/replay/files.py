"""A file of forecasts through the engine, without servers: what the worker would have decided, as fast as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from stream_agg.errors import InputError
from stream_agg.events import Action, Dropped, Forecast, Regret, State
from stream_agg.replay.source import Source, Step, steps
from stream_agg.session.engine import Output, Session
from stream_agg.spec import SessionSpec


@dataclass
class Outcome:
    """What a replay gave: the final report last in `regrets`; `refused` counts dead letters by reason."""

    actions: int = 0
    regrets: list[dict[str, Any]] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    calibration: dict[str, list[tuple[float, int, int]]] = field(default_factory=dict)
    repeats: int = 0
    """Outputs that came again, the same to the byte (through Kafka only)."""

    @property
    def final(self) -> dict[str, Any]:
        """The closing report."""
        return self.regrets[-1]


class Writer:
    """actions.jsonl, regret.jsonl and dead-letters.jsonl of a folder, or nowhere; counts what it is given."""

    def __init__(self, out: Path | None, open_files: ExitStack) -> None:
        self.outcome = Outcome()
        self._files: dict[str, BinaryIO] = {}
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            for name in ("actions", "regret", "dead-letters"):
                self._files[name] = open_files.enter_context((out / f"{name}.jsonl").open("wb"))

    def action(self, text: bytes) -> None:
        """One action record."""
        self.outcome.actions += 1
        self._line("actions", text)

    def regret(self, text: bytes) -> None:
        """One regret record."""
        self.outcome.regrets.append(orjson.loads(text))
        self._line("regret", text)

    def refused(self, reason: str, event: str, detail: str) -> None:
        """One record that could not be used."""
        self.outcome.refused[reason] = self.outcome.refused.get(reason, 0) + 1
        self._line("dead-letters", orjson.dumps({"reason": reason, "event": event, "detail": detail}))

    def _line(self, name: str, text: bytes) -> None:
        if name in self._files:
            self._files[name].write(text + b"\n")


def feed(source: Source, spec: SessionSpec, delay_us: int) -> Iterable[Step]:
    """The steps of a file with the forecasts of the spec's experts only."""
    keep = spec.experts.keys()
    for step in steps(source.rows(), delay_us):
        for row in step.forecasts:
            if not row.forecasts.keys() <= keep:
                for name in row.forecasts.keys() - keep:
                    del row.forecasts[name]
        yield step


def replay(
    source: Source,
    spec: SessionSpec,
    delay_us: int,
    out: Path | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> Outcome:
    """Decide and learn every row in event time, write what comes out, and close the session.

    `delay_us`: how long after its row's time an outcome becomes known, in microseconds. `progress` is told the rows
    of each step. `InputError` where the file is wrong.
    """
    session = Session(spec)
    with ExitStack() as files:
        writer = Writer(out, files)
        for step in feed(source, spec, delay_us):
            for row in step.forecasts:
                try:
                    before = session.counters.counts["duplicate"]
                    _write(writer, session.forecast(Forecast(spec.session, row.event, row.time_us, row.forecasts)))
                    if session.counters.counts["duplicate"] > before:
                        writer.refused("duplicate", row.event, "this event id came before")
                except InputError as e:
                    writer.refused(e.reason, row.event, e.detail)
            for event, outcome in step.states:
                _write(writer, session.state(State(spec.session, event, step.time_us, outcome))[1])
            progress(len(step.forecasts))
        _write(writer, [session.close()])
        writer.outcome.calibration = session.calibration()
        return writer.outcome


def _write(writer: Writer, outputs: Iterable[Output]) -> None:
    for output in outputs:
        if isinstance(output, Action):
            writer.action(orjson.dumps(output.to_record()))
        elif isinstance(output, Regret):
            writer.regret(orjson.dumps(output))
        elif isinstance(output, Dropped):
            writer.refused(output.reason, output.event, output.detail)
