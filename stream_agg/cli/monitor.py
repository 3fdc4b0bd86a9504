"""`stream-agg monitor`: a running deployment as its output topics tell of it, in the terminal or as a page."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import click
import orjson

from stream_agg.cli.common import columns, printable, settings_of, stopping
from stream_agg.errors import InputError
from stream_agg.monitor.alarms import ago
from stream_agg.monitor.charts import calibration
from stream_agg.monitor.reader import watching
from stream_agg.monitor.shown import overview
from stream_agg.monitor.view import SESSIONS, View, Watched
from stream_agg.worker.settings import Settings

EXAMPLES = """
\b
Examples:
  stream-agg monitor
  stream-agg monitor --session paris-rain
  stream-agg monitor --once --json
  stream-agg monitor --web --port 8470
"""

EVERY_S = 1.0
"""How often the table is drawn anew, and a line of JSON is written: what a person can read, and lag is asked."""
PLAIN_S = 5.0
"""How often where the output is no terminal: it stays there for good."""
NAME = 40
"""Characters of a session's name in the table; it may have 512."""


@click.command(epilog=EXAMPLES)
@click.option("--brokers", help="Kafka bootstrap servers, host:port with commas (STREAM_AGG_BROKERS).")
@click.option("--app", help="Name of the deployment, whose lag is shown (STREAM_AGG_APP).")
@click.option("--session", help="Show the calibration of this session too.")
@click.option("--once", is_flag=True, help="Show where things stand, and stop.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, all sessions in it, every second.")
@click.option("--web", is_flag=True, help="Serve a page instead, and print its address.")
@click.option("--bind", help="Address of the page; other than this machine's own needs STREAM_AGG_MONITOR_TOKEN.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the page; 0 for any (STREAM_AGG_MONITOR_PORT).")
@click.option("--until-stdin-closes", is_flag=True, hidden=True, help="Stop when the parent is gone.")
def monitor(
    brokers: str | None,
    app: str | None,
    session: str | None,
    once: bool,
    as_json: bool,
    web: bool,
    bind: str | None,
    port: int | None,
    until_stdin_closes: bool,
) -> None:
    """Watch a running deployment from its output topics: sessions, gaps, regret, calibration, lag, alarms in words.

    Reads only, and joins no consumer group: it may come and go. Ctrl-C ends it.
    """
    if web and (once or as_json or session):
        raise click.UsageError("--web shows a page: leave out --once, --json and --session")
    if not web and (bind is not None or port is not None):
        raise click.UsageError("--bind and --port are those of the page: add --web")
    settings = settings_of(brokers=brokers, app=app, monitor_bind=bind, monitor_port=port)
    if web:
        asyncio.run(_serve(settings, until_stdin_closes))
    else:
        asyncio.run(_show(settings, session, once, as_json))


async def _serve(settings: Settings, until_stdin_closes: bool) -> None:
    from stream_agg.monitor.server import check, serving  # plotly is slow to import

    check(settings)
    stop = await stopping(until_stdin_closes)
    async with watching(settings) as reader, serving(settings, reader.view) as address:
        click.echo(f"monitor page: {address}")
        await stop.wait()


async def _show(settings: Settings, session: str | None, once: bool, as_json: bool) -> None:
    stop = await stopping()
    live = not once and not as_json and click.get_text_stream("stdout").isatty()
    async with watching(settings) as reader:
        await reader.measured.wait()
        with _screen() if live else nullcontext():
            while True:
                _print(reader.view, session, as_json, live)
                if once:
                    break
                try:
                    await asyncio.wait_for(stop.wait(), EVERY_S if live or as_json else PLAIN_S)
                except TimeoutError:
                    continue
                break
        if once and session is not None and session not in reader.view.sessions:
            raise InputError("unknown_session", f"no session {session!r} is told of by the output topics")


def _print(view: View, session: str | None, as_json: bool, live: bool) -> None:
    now_s = time.time()
    if as_json:
        shown = overview(view, now_s, size=SESSIONS)
        for row in shown["sessions"]:
            row["calibration"] = calibration(view.sessions[row["session"]])
        click.echo(orjson.dumps(shown))
        return
    chosen = view.sessions.get(session) if session is not None else None
    if not live:
        click.echo(table(overview(view, now_s, size=SESSIONS), chosen))
        return
    width, height = shutil.get_terminal_size()
    shown = overview(view, now_s, size=max(height - 12, 3))
    lines = table(shown, chosen).split("\n")[: height - 1]
    click.echo("\033[H" + "".join(f"{line[: width - 1]}\033[K\n" for line in lines) + "\033[J", nl=False)


def table(shown: dict[str, Any], chosen: Watched | None = None) -> str:
    """An overview as text: alarms, totals, sessions, dead letters, the calibration of one session. Control characters
    in names are shown, not sent to the terminal."""
    total, dead = shown["totals"], shown["dead_letters"]["by_reason"]
    parts = [_alarms(shown)]
    parts.append(
        f"{total['sessions']:,} sessions, {total['closed']:,} closed   {total['rounds']:,} decisions   "
        f"{total['open']:,} open   lag {_text(total['lag'])}   workers {_text(total['workers'])}   "
        f"{total['dead_letters']:,} dead letters"
    )
    if shown["sessions"]:
        parts.append(columns([_HEAD, *map(_row, shown["sessions"])]))
        if shown["pages"] > 1:
            parts.append(f"and {shown['found'] - len(shown['sessions']):,} more sessions")
    else:
        parts.append("no session yet: one is opened by a record of the sessions topic")
    if dead:
        parts.append("dead letters: " + ", ".join(f"{n:,} x {printable(reason)}" for reason, n in dead.items()))
    if chosen is not None:
        parts.append(_calibration(chosen))
    return "\n\n".join(parts)


_HEAD = ("session", "action", "round", "gap", "regret", "payoff", "single", "map", "open", "oldest", "heard")


def _row(shown: dict[str, Any]) -> tuple[str, ...]:
    name = printable(shown["session"])
    mark = "! " if shown["alarm"] else "  "
    per = [_text(_per(shown[key], shown["states"])) for key in ("payoff", "single", "contextual")]
    return (
        mark + (name if len(name) <= NAME else name[: NAME - 1] + "…"),
        "closed" if shown["closed"] else printable(shown["action"] or "-")[:NAME],
        _text(shown["round"]),
        _text(shown["gap"]),
        _text(shown["regret"]),
        *per,
        _text(shown["open"]),
        "-" if shown["oldest_open_s"] is None else ago(shown["oldest_open_s"]),
        ago(shown["heard_ago_s"]),
    )


def _alarms(shown: dict[str, Any]) -> str:
    lines = [
        f"{'note ' if alarm['severity'] == 'note' else 'ALARM'}  "
        + printable(f"{alarm['session']}: {alarm['text']}" if alarm["session"] is not None else alarm["text"])
        for alarm in shown["alarms"]
    ]
    if shown["more_alarms"]:
        lines.append(f"and {shown['more_alarms']:,} more alarms")
    return "\n".join(lines) or "no alarm"


def _calibration(session: Watched) -> str:
    rows = [
        (printable(name), f"{level:.4g}", f"{rounds:,}", f"{p:.3f}", f"{low:.3f}", f"{high:.3f}")
        for name, levels in calibration(session).items()
        for level, rounds, p, low, high in levels
    ]
    head = ("expert", "level", "outcomes", "frequency", "95 % from", "to")
    title = f"calibration of {printable(session.name)}"
    return f"{title}\n{columns([head, *rows])}" if rows else f"{title}: no outcome is known yet"


def _text(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,}" if isinstance(number, int) else f"{number if abs(number) > 1e-9 else 0.0:,.4g}"


def _per(total: float | None, count: int | None) -> float | None:
    return total / count if total is not None and count else None


@contextmanager
def _screen() -> Iterator[None]:
    """A screen of its own, and the former one back at the end."""
    click.echo("\033[?1049h\033[?25l", nl=False)
    try:
        yield
    finally:
        click.echo("\033[?25h\033[?1049l", nl=False)
