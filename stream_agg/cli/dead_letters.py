"""`stream-agg dead-letters`: look at the records that could not be used, and send them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click
import orjson

from stream_agg.cli.common import columns, printable, progress_bar, settings_of
from stream_agg.errors import ConfigError, Reason
from stream_agg.events import format_time, parse_time
from stream_agg.replay import letters as rooms
from stream_agg.replay.letters import Letter, Letters, Wanted
from stream_agg.replay.log import Log
from stream_agg.worker.rights import Side
from stream_agg.worker.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

SHOWN = 60

LIST_EXAMPLE = """
\b
Example:
  stream-agg dead-letters list --reason bad_json --since 2026-11-01T00:00:00Z
"""
REDRIVE_EXAMPLES = """
\b
Examples:
  stream-agg dead-letters redrive --reason unknown_session --dry-run
  stream-agg dead-letters redrive --offset 0:17
"""


def _choice(function: F) -> F:
    """The options that both commands choose letters by."""
    for option in (
        click.option("--reason", "reasons", multiple=True, type=click.Choice(sorted(get_args(Reason)))),
        click.option("--session", "sessions", multiple=True, help="Key of the record: its session."),
        click.option("--offset", "places", multiple=True, metavar="P:O", help="This one: partition and offset."),
        click.option("--since", metavar="TIME", help="Written at that time or later (RFC 3339)."),
        click.option("--until", metavar="TIME", help="Written before that time."),
        click.option("--brokers", help="Kafka bootstrap servers (STREAM_AGG_BROKERS)."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    ):
        function = option(function)
    return function


@click.group("dead-letters")
def dead_letters() -> None:
    """Look at the records that could not be used, and send them again."""


@dead_letters.command("list", epilog=LIST_EXAMPLE)
@_choice
@click.option("--all", "with_redriven", is_flag=True, help="Those that were sent again, too.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The last so many.")
def list_(with_redriven: bool, limit: int, as_json: bool, brokers: str | None, **choice: Any) -> None:
    """List dead letters: what was wrong, where the record stood, how often."""
    letters = _read(settings_of(brokers=brokers), "dead letters", choice)
    shown = list(letters.found if with_redriven else letters.open())
    if as_json:
        click.echo(orjson.dumps([_record(letter, letters) for letter in shown[-limit:]]))
        return
    if not shown:
        click.echo("no dead letters")
        return
    rows = [("place", "time", "reason", "record", "session", "what")]
    for letter in shown[-limit:]:
        source, name = f"{letter.source}@{letter.source_offset}", letter.key.decode("utf-8", "replace")
        rows.append((letter.place, _time(letter), letter.reason, source, name[:SHOWN], letter.detail[:SHOWN]))
    click.echo(columns([tuple(map(printable, row)) for row in rows]))
    counts = Counter(letter.reason for letter in shown)
    click.echo(f"\n{len(shown):,}: " + ", ".join(f"{n:,} {reason}" for reason, n in counts.most_common()))


@dead_letters.command(epilog=REDRIVE_EXAMPLES)
@_choice
@click.option("--all", "everything", is_flag=True, help="All that were not sent again yet.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, send nothing.")
def redrive(everything: bool, dry_run: bool, as_json: bool, brokers: str | None, **choice: Any) -> None:
    """Send the original bytes of dead letters again, to the partition they came from, and mark them as sent.

    One that was sent before is left out. A record whose fault is in itself becomes a dead letter again.
    """
    if not everything and not any(choice.values()):
        raise ConfigError("choose by --reason, --session, --offset, --since or --until, or give --all")
    settings = settings_of(brokers=brokers)
    letters = _read(settings, "dead letters" if dry_run else "redrive", choice)
    chosen = list(letters.open())
    short = [letter for letter in chosen if letter.truncated]
    whole = [letter for letter in chosen if not letter.truncated]
    sent = 0
    if not dry_run:
        with progress_bar(len(whole), "redrive", hidden=as_json) as progress:
            sent = rooms.redrive(settings, whole, progress)
    before = len(letters.found) - len(chosen)
    if as_json:
        summary = {"sent": sent, "chosen": len(whole), "sent_before": before, "truncated": len(short)}
        click.echo(orjson.dumps({**summary, "letters": [_record(letter, letters) for letter in whole]}))
        return
    click.echo(
        f"{f'{len(whole):,} would be sent again' if dry_run else f'{sent:,} sent again'}; {before:,} were before"
    )
    if short:
        click.echo(f"left out, because their end is missing: {', '.join(letter.place for letter in short)}", err=True)


def _read(settings: Settings, side: Side, choice: dict[str, Any]) -> Letters:
    for place in choice["places"]:
        partition, colon, offset = place.partition(":")
        if not (colon and partition.isdigit() and offset.isdigit()):
            raise ConfigError(f"--offset {place!r}: expected PARTITION:OFFSET, as the list shows it")
    wanted = Wanted(
        frozenset(choice["reasons"]),
        frozenset(choice["sessions"]),
        frozenset(choice["places"]),
        _milliseconds("--since", choice["since"], 0.0),
        _milliseconds("--until", choice["until"], float("inf")),
    )
    with Log(settings, side) as log:
        return rooms.read(log, wanted)


def _milliseconds(option: str, text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        return parse_time(text) / 1000
    except ValueError as e:
        raise ConfigError(f"{option}: {e}") from None


def _time(letter: Letter) -> str:
    return format_time(letter.time_ms * 1000)


def _record(letter: Letter, letters: Letters) -> dict[str, Any]:
    return {
        "place": letter.place,
        "time": _time(letter),
        "reason": letter.reason,
        "detail": letter.detail,
        "topic": letter.source.topic,
        "partition": letter.source.partition,
        "offset": letter.source_offset,
        "session": letter.key.decode("utf-8", "replace"),
        "value": letter.value.decode("utf-8", "replace"),
        "redriven": (letter.source, letter.source_offset) in letters.redriven,
    }
