"""`stream-agg verify`: the proof, on a live deployment, that its outputs are what its inputs give."""

from __future__ import annotations

import os
from typing import Any

import click
import orjson

from stream_agg.cli.common import progress_bar, settings_of, warm_up
from stream_agg.replay.log import Log
from stream_agg.replay.verify import Verdict, Verification

WORTH_IT = 200_000
"""Events from which on a second process is started: it needs seconds to begin."""

EXAMPLES = """
\b
Example:
  STREAM_AGG_BROKERS=kafka:9092 stream-agg verify --json
"""


@click.command(epilog=EXAMPLES)
@click.option("--brokers", help="Kafka bootstrap servers (STREAM_AGG_BROKERS).")
@click.option("--app", help="Name of the deployment, whose committed offsets say how far it got (STREAM_AGG_APP).")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes side by side; default: the cores, if worth it.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(brokers: str | None, app: str | None, jobs: int | None, as_json: bool) -> int:
    """Derive actions, reports and rules again from the input topics, and compare them to the byte with the outputs.

    Reads each topic once, up to where it ends at the start, so a worker may run on. Nothing is written; Redis is not
    asked. Exit code 0: all equal; 1: the first divergence is named, or what is missing to be sure.
    """
    warm_up()
    with Log(settings_of(brokers=brokers, app=app)) as log:
        verification = Verification(log)
        with progress_bar(verification.events, "verify", hidden=as_json) as progress:
            cores = (os.cpu_count() or 1) if verification.events >= WORTH_IT else 1
            verdict = verification.run(progress, jobs or cores)
    click.echo(orjson.dumps(_record(verdict)) if as_json else _words(verdict))
    return 0 if verdict.equal else 1


def _record(verdict: Verdict) -> dict[str, Any]:
    found = verdict.divergence
    return {
        "equal": verdict.equal,
        "events": verdict.events,
        "actions": verdict.actions,
        "regrets": verdict.regrets,
        "rules": verdict.rules,
        "repeats": verdict.repeats,
        "pending": verdict.pending,
        "unverifiable": verdict.unverifiable,
        "missing": verdict.missing,
        "divergence": found
        and {
            "topic": found.place.topic,
            "partition": found.place.partition,
            "offset": found.offset,
            "what": found.what,
        },
    }


def _words(verdict: Verdict) -> str:
    lines = [
        f"{verdict.events:,} events; equal: {verdict.actions:,} actions, {verdict.regrets:,} reports, "
        f"{verdict.rules:,} rules; {verdict.repeats:,} repeats; {verdict.pending:,} not published yet"
    ]
    lines += verdict.missing
    if verdict.unverifiable:
        names = ", ".join(verdict.unverifiable[:5]) + (", ..." if len(verdict.unverifiable) > 5 else "")
        lines.append(
            f"could not be verified: {len(verdict.unverifiable):,} sessions that began before the records do: {names}"
        )
    if verdict.divergence is not None:
        lines.append(f"diverged: {verdict.divergence}")
    return "\n".join(lines)
