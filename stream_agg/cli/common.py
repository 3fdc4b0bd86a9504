"""What several commands share: the spec of a file, tables, a progress bar, settings from flags."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import click
import orjson

from stream_agg.errors import ConfigError
from stream_agg.replay.compare import Comparison
from stream_agg.session import warm
from stream_agg.spec import SessionSpec
from stream_agg.worker.settings import Settings


class Progress(Protocol):
    """Told how many more rows are done."""

    def __call__(self, rows: int) -> None: ...


def warm_up() -> None:
    """Load what solving needs; says so where it has to be compiled first. What is loaded stays, and what an event makes
    goes without cycles: garbage is looked for seldom from then on."""
    say = partial(click.echo, "compiling the solver, once per installation: about a minute ...", err=True)
    late = threading.Timer(8.0, say)  # loading what is compiled takes a second or two
    late.daemon = True
    late.start()
    try:
        warm.warm_up()
    finally:
        late.cancel()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


async def stopping(until_stdin_closes: bool = False) -> asyncio.Event:
    """An event that is set when the command is asked to stop: by a signal, or by the end of a parent's pipe."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if until_stdin_closes:
        await loop.connect_read_pipe(lambda: _Parent(stop), sys.stdin)
    return stop


class _Parent(asyncio.Protocol):
    """A pipe whose other end a parent holds until it is gone."""

    def __init__(self, gone: asyncio.Event) -> None:
        self.gone = gone

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


def settings_of(**flags: Any) -> Settings:
    """Settings of the environment and these flags."""
    return Settings.from_env(os.environ, **flags)


def read_json(path: Path) -> Any:
    """The JSON value of a file; `ConfigError` names the file."""
    try:
        return orjson.loads(path.read_bytes())
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror}") from e
    except orjson.JSONDecodeError as e:
        raise ConfigError(f"{path}: not JSON: {e}") from None


def overrides(pairs: Sequence[str]) -> dict[str, Any]:
    """`name=value` pairs, the value as JSON or else as text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set {pair!r}: expected name=value, such as gamma=4")
        try:
            found[name] = orjson.loads(text)
        except orjson.JSONDecodeError:
            found[name] = text
    return found


def payoffs(actions: Sequence[str]) -> dict[str, list[float]]:
    """`NAME=U0,U1` options as the spec's actions."""
    found = {}
    for text in actions:
        name, _, pair = text.rpartition("=")
        try:
            u0, u1 = map(float, pair.split(","))
        except ValueError:
            raise ConfigError(f"--action {text!r}: expected NAME=U0,U1, the payoffs in state 0 and 1") from None
        found[name] = [u0, u1]
    return found


def file_spec(
    path: Path, experts: Sequence[str], levels: int | None, actions: Sequence[str], session: str | None
) -> dict[str, Any]:
    """The spec of a bare file: every column an expert, states fed back as they become known."""
    if levels is None or not actions:
        raise ConfigError("give --spec FILE, or --levels 11 and at least one --action NAME=U0,U1")
    return {
        "session": session or path.name.split(".")[0],
        "experts": {name: {"levels": levels} for name in experts},
        "actions": payoffs(actions),
        "feedback": "state",
    }


@contextmanager
def progress_bar(length: int, label: str, hidden: bool) -> Iterator[Progress]:
    """A bar with rate and time left, on the error stream of a terminal."""
    started, done = time.monotonic(), 0

    def rate(_: Any) -> str:
        return f"{done / max(time.monotonic() - started, 1e-9):,.0f} rows/s"

    stream = click.get_text_stream("stderr")
    if hidden or not stream.isatty():
        yield lambda rows: None
        return
    with click.progressbar(
        length=length, label=label, file=stream, show_eta=True, show_pos=True, item_show_func=rate
    ) as bar:

        def more(rows: int) -> None:
            nonlocal done
            done += rows
            bar.update(rows, rows)

        yield more


def regret_table(reports: Sequence[Mapping[str, Any]]) -> str:
    """Final reports as a table: one line a session."""
    head = (
        "session", "rounds", "robust regret", "per round", "bound", "states", "payoff", "best expert", "contextual"
    )  # fmt: skip
    rows = [head]
    for report in reports:
        robust, real = report["robust"], report["realized"]
        rounds = max(report["round"], 1)
        rows.append(
            (
                report["session"],
                f"{report['round']:,}",
                f"{robust['regret']:,.2f}",
                f"{robust['regret'] / rounds:.4f}",
                "-" if robust["bound"] is None else f"{robust['bound']:,.0f}",
                f"{real['states']:,}",
                _number(real["payoff"]),
                _number(real["optimal_in_hindsight"]),
                _number(real["contextual"]),
            )
        )
    return columns(rows)


def comparison_table(comparison: Comparison) -> str:
    """Every way to decide as a line, and how the intervals came about."""
    rows = [("decided by", "payoff", "95 % interval", "over mean forecast", "error")]
    for line in comparison.lines:
        gain, payoff = line.over_mean, line.payoff
        interval = "-" if payoff.low is None else f"{payoff.low:.4f} to {payoff.high:.4f}"
        error = "-" if gain.error is None else f"{gain.error:.4f}"
        hindsight = ", in hindsight" if line.kind == "hindsight" else ""
        rows.append((line.name + hindsight, f"{payoff.mean:.4f}", interval, f"{gain.mean:+.4f}", error))
    return (
        f"{columns(rows)}\npayoff per event over {comparison.events:,} events with an outcome; intervals and standard "
        f"errors by blocks of {comparison.block} of {comparison.times:,} times"
    )


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, the others to the right, a rule below the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def printable(text: str) -> str:
    """Text without power over a terminal: what does not print is written as its escape.

    >>> printable("rain\\x1b[2J")
    'rain\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def spec_of(value: Any, changes: Mapping[str, Any], session: str | None) -> SessionSpec:
    """The spec with `--set` and `--session` applied; `SpecError` lists every fault."""
    if isinstance(value, dict):
        value = {**value, **changes, **({"session": session} if session else {})}
    return SessionSpec.from_dict(value)


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:,.2f}"
