"""`stream-agg replay --topics`: what the input topics of a deployment hold, through the engine once more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import orjson

from stream_agg.cli.common import progress_bar, regret_table, warm_up
from stream_agg.errors import ConfigError
from stream_agg.events import parse_time
from stream_agg.replay import again
from stream_agg.replay.log import Log
from stream_agg.replay.sinks import Counted, Files, Topics
from stream_agg.worker.broker import count_partitions, create_topics
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Encoder

OUTPUTS = ("topic_actions", "topic_regret", "topic_rules", "topic_dead_letters")
SHOWN = 20


@dataclass(frozen=True)
class Wanted:
    """What is to be replayed, under which changes, and where to."""

    since: again.Bound
    until: again.Bound
    changes: Mapping[str, Any]
    out: Path | None
    into: str | None
    create: bool
    dry_run: bool
    as_json: bool


def bound(option: str, values: tuple[str, ...]) -> again.Bound:
    """A time, or PARTITION:OFFSET once for every partition; None where nothing is given."""
    if not values:
        return None
    offsets = [value.split(":") for value in values]
    if all(len(pair) == 2 and pair[0].isdigit() and pair[1].isdigit() for pair in offsets):
        return {int(partition): int(offset) for partition, offset in offsets}
    try:
        (time,) = values
        return parse_time(time) / 1000
    except ValueError:
        raise ConfigError(
            f"{option} {' '.join(values)}: expected one time such as 2026-11-21T06:00:00Z, or PARTITION:OFFSET"
        ) from None


def replay_topics(settings: Settings, wanted: Wanted) -> None:
    """Replay and report; `ConfigError` for what cannot go together."""
    to = _outputs(settings, wanted.into)
    whole = wanted.since is None and wanted.until is None
    with Log(settings) as log:
        parts = again.parts(log, wanted.since, wanted.until)
        forecasts, states = (sum(part.events[i] for part in parts) for i in (0, 1))
        if wanted.dry_run:
            _tell_plan(wanted, forecasts, states, whole)
            return
        if wanted.into is not None and wanted.create:
            asyncio.run(create_topics(to))
        if wanted.into is not None:
            asyncio.run(count_partitions(to))
        warm_up()
        pending = 0
        with closing(_sink(to, wanted)) as sink, progress_bar(forecasts + states, "replay", wanted.as_json) as progress:
            if whole:
                verdict = again.Again(log, wanted.changes, Encoder(to), sink.write).run(progress)
                if verdict.divergence is not None:
                    raise verdict.divergence
                pending = verdict.pending
            else:
                for part in parts:
                    again.replay_part(log, part, wanted.changes, Encoder(to), sink.write, _by_thousands(progress))
    _report(sink, wanted, pending)


def _outputs(settings: Settings, into: str | None) -> Settings:
    if into is None:
        return settings
    if not into:
        raise ConfigError("--into: expected what the names of the other topics begin with, such as what-if-")
    return replace(settings, **{name: into + getattr(settings, name) for name in OUTPUTS})


def _sink(to: Settings, wanted: Wanted) -> Counted:
    if wanted.into is not None:
        return Topics(to)
    return Files(to, wanted.out) if wanted.out is not None else Counted(to)


def _by_thousands(progress: Callable[[int], None]) -> Callable[[], None]:
    told = 0

    def tell() -> None:
        nonlocal told
        told += 1
        if told % 1000 == 0:
            progress(1000)

    return tell


def _tell_plan(wanted: Wanted, forecasts: int, states: int, whole: bool) -> None:
    if wanted.as_json:
        click.echo(orjson.dumps({"forecasts": forecasts, "states": states, "whole": whole, "written": False}))
        return
    how = "in the order in which they were applied" if whole else "in the order of their times, from empty sessions"
    click.echo(f"{forecasts:,} forecasts and {states:,} states {how}; nothing was decided")


def _report(sink: Counted, wanted: Wanted, pending: int) -> None:
    to = sink.settings
    rows = {name: sink.rows[topic] for name, topic in (("actions", to.topic_actions), ("regrets", to.topic_regret))}
    finals = sorted(sink.finals, key=lambda report: str(report["session"]))
    if wanted.as_json:
        click.echo(orjson.dumps({**rows, "refused": sink.refused, "pending": pending, "sessions": finals}))
        return
    if finals:
        click.echo(regret_table(finals[:SHOWN]))
    if len(finals) > SHOWN:
        click.echo(f"... and {len(finals) - SHOWN:,} more sessions")
    for reason, count in sorted(sink.refused.items()):
        click.echo(f"not used: {count:,} x {reason}", err=True)
    if pending:
        click.echo(f"left out: {pending:,} forecasts that no action was published for yet", err=True)
    if wanted.out is not None:
        click.echo(f"written to {wanted.out}: {rows['actions']:,} actions, {rows['regrets']:,} reports")
    if wanted.into is not None:
        click.echo(f"written to {to.topic_actions} and its like: {rows['actions']:,} actions")
