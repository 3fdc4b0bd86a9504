"""`stream-agg worker`: the Faust worker, until it is told to stop."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import click
import orjson

from stream_agg.cli.common import settings_of, stopping, warm_up
from stream_agg.cli.local import monitor_page, servers
from stream_agg.watch import logs
from stream_agg.worker import broker
from stream_agg.worker.run import run
from stream_agg.worker.settings import Settings

EXAMPLES = """
\b
Examples:
  stream-agg worker --embedded --monitor
  STREAM_AGG_BROKERS=kafka:9092 STREAM_AGG_REDIS_URL=redis://redis:6379/0 stream-agg worker
"""


@click.command(epilog=EXAMPLES)
@click.option("--brokers", help="Kafka bootstrap servers, host:port with commas (STREAM_AGG_BROKERS).")
@click.option("--redis-url", help="Where the state lives (STREAM_AGG_REDIS_URL).")
@click.option("--app", help="Name of the deployment: consumer group and key prefix (STREAM_AGG_APP).")
@click.option("--create-topics", is_flag=True, default=None, help="Create missing topics: for development.")
@click.option("--rebuild", is_flag=True, default=None, help="Start from the earliest records although Redis is empty.")
@click.option("--monitor", is_flag=True, default=None, help="Serve the monitor page too (STREAM_AGG_MONITOR).")
@click.option("--embedded", is_flag=True, help="Bring a broker and a Redis along, in memory: for trying out.")
@click.option("--print-config", is_flag=True, help="Show every setting, secrets masked, and stop.")
@click.option("--until-stdin-closes", is_flag=True, hidden=True, help="Stop when the parent is gone.")
def worker(
    brokers: str | None,
    redis_url: str | None,
    app: str | None,
    create_topics: bool | None,
    rebuild: bool | None,
    monitor: bool | None,
    embedded: bool,
    print_config: bool,
    until_stdin_closes: bool,
) -> None:
    """Decide on forecasts and learn from states, from Kafka to Kafka, with the state in Redis."""
    settings = settings_of(
        brokers=brokers, redis_url=redis_url, app=app, create_topics=create_topics, rebuild=rebuild, monitor=monitor
    )
    if print_config:
        click.echo(orjson.dumps(settings.masked(), option=orjson.OPT_INDENT_2))
        return
    logs.configure(settings.log, settings.log_level)
    with ExitStack() as stack:
        if embedded:
            settings = stack.enter_context(servers(settings))
            click.echo(f"brokers {settings.brokers}  redis {settings.redis_url}", err=True)
        warm_up()
        if settings.monitor:
            if settings.create_topics:  # before the page looks for them
                asyncio.run(broker.create_topics(settings))
            stack.enter_context(monitor_page(settings))
        asyncio.run(_until_stopped(settings, until_stdin_closes))


async def _until_stopped(settings: Settings, until_stdin_closes: bool) -> None:
    await run(settings, await stopping(until_stdin_closes))
