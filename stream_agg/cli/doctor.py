"""`stream-agg doctor`: what a worker needs, looked at, each finding with its remedy."""

from __future__ import annotations

import asyncio
import dataclasses

import click
import orjson

from stream_agg.cli.common import settings_of
from stream_agg.worker.doctor import Finding, examine

EXAMPLES = """
\b
Examples:
  stream-agg doctor
  STREAM_AGG_BROKERS=kafka:9092 STREAM_AGG_REDIS_URL=redis://redis:6379/0 stream-agg doctor --json
"""


@click.command(epilog=EXAMPLES)
@click.option("--brokers", help="Kafka bootstrap servers, host:port with commas (STREAM_AGG_BROKERS).")
@click.option("--redis-url", help="Where the state lives (STREAM_AGG_REDIS_URL).")
@click.option("--app", help="Name of the deployment (STREAM_AGG_APP).")
@click.option("--json", "as_json", is_flag=True, help="The findings as JSON.")
def doctor(brokers: str | None, redis_url: str | None, app: str | None, as_json: bool) -> int:
    """Check the broker, the topics and Redis; exit code 1 where a worker could not keep its promises."""
    findings = asyncio.run(examine(settings_of(brokers=brokers, redis_url=redis_url, app=app)))
    if as_json:
        click.echo(orjson.dumps([dataclasses.asdict(f) for f in findings], option=orjson.OPT_INDENT_2))
    else:
        width = max(len(f.check) for f in findings)
        for finding in findings:
            click.echo(_line(finding, width))
    return int(any(f.state == "bad" for f in findings))


def _line(finding: Finding, width: int) -> str:
    text = f"{finding.state:<4}  {finding.check:<{width}}  {finding.found}"
    return f"{text}\n      {'':<{width}}  -> {finding.remedy}" if finding.remedy else text
