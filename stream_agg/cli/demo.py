"""`stream-agg demo`: everything in one command, on nothing but this machine."""

from __future__ import annotations

import asyncio
import os
import tempfile
import webbrowser
from pathlib import Path

import click

from stream_agg.cli.common import regret_table, stopping, warm_up
from stream_agg.cli.local import deployment
from stream_agg.monitor.reader import watching
from stream_agg.replay import demo as feed
from stream_agg.replay.demo import Seen
from stream_agg.worker.settings import Settings

EXAMPLES = """
\b
Examples:
  stream-agg demo
  stream-agg demo --for 30 --no-browser
"""


@click.command(epilog=EXAMPLES)
@click.option("--for", "seconds", type=click.FloatRange(min=1), help="Stop after so many seconds; default: at Ctrl-C.")
@click.option("--no-browser", is_flag=True, help="Open neither the monitor page nor the report.")
def demo(seconds: float | None, no_browser: bool) -> None:
    """Watch robust decisions on a generated feed: broker, Redis, worker, feed and monitor page are started, and stopped
    at the end.

    The feed is the paper's world of conditionally independent, calibrated forecasters, with priors that drift and
    states that come late. Ctrl-C stops it; then comes the regret table.
    """
    seen, live = Seen(), _Live()
    folder = Path(tempfile.mkdtemp(prefix="stream-agg-demo-"))
    warm_up()
    click.echo("starting a broker, a Redis and a worker on this machine ...")
    with (folder / "worker.log").open("wb") as log, deployment(Settings(monitor_port=0), log.fileno()) as settings:
        click.echo(f"brokers {settings.brokers}   redis {settings.redis_url}   worker log {log.name}")
        asyncio.run(_run(settings, seen, seconds, live, not no_browser))
    live.end()
    click.echo(
        f"first action after {seen.first_action_s or 0:.1f} s; {sum(seen.actions.values()):,} actions, ", nl=False
    )
    click.echo(f"{seen.dead_letters} dead letters. All servers are stopped. Final reports:\n")
    click.echo(regret_table([reports[-1] for _, reports in sorted(seen.reports.items())]))
    click.echo(
        "\nrobust regret: what any rule could have guaranteed more, from calibration alone; states are not needed."
    )
    if not no_browser:
        _open_report(seen, folder)


async def _run(settings: Settings, seen: Seen, seconds: float | None, live: _Live, browser: bool) -> None:
    from stream_agg.monitor.server import serving  # plotly is slow to import

    stop = await stopping()
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, stop.set)
    async with watching(settings) as reader, serving(settings, reader.view) as address:
        click.echo(f"monitor page: {address}")
        if browser:
            webbrowser.open(address)
        await feed.run(settings, seen, stop, live.tell)


class _Live:
    """One line that changes in a terminal, or a line every five seconds elsewhere."""

    def __init__(self) -> None:
        self.terminal = click.get_text_stream("stdout").isatty()
        self._ticks = 0

    def tell(self, seen: Seen) -> None:
        """Show where things stand, now and then."""
        self._ticks += 1
        if self._ticks % (3 if self.terminal else 50):
            return
        if not seen.latest:
            line = "waiting for the first action ..."
        else:
            line = "  ".join(
                f"{name}: {a['action']} (round {a['round']}, gap {a['rule']['gap']:.4f})"
                for name, a in sorted(seen.latest.items())
            )
        if self.terminal:
            width = os.get_terminal_size().columns - 1
            click.echo(f"\r{line[:width]:<{width}}", nl=False)
        else:
            click.echo(line)

    def end(self) -> None:
        """Leave the line."""
        if self.terminal:
            click.echo()


def _open_report(seen: Seen, folder: Path) -> None:
    from stream_agg.replay.report import render  # plotly is slow to import

    session, reports = next(iter(sorted(seen.reports.items())))
    page = folder / "report.html"
    rounds = reports[-1]["round"]
    text = render(f"Demo: {session}", seen.specs[session], rounds, reports, seen.calibration.get(session, {}))
    page.write_text(text, encoding="utf-8")
    click.echo(f"\nreport of {session}: {page}")
    webbrowser.open(page.as_uri())
