"""`stream-agg replay`: a file of forecasts through the engine, or through Kafka and Redis."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path

import click
import orjson

from stream_agg.cli.common import (
    comparison_table,
    file_spec,
    overrides,
    progress_bar,
    read_json,
    regret_table,
    settings_of,
    spec_of,
    warm_up,
)
from stream_agg.cli.local import deployment
from stream_agg.cli.topics import Wanted, bound, replay_topics
from stream_agg.errors import ConfigError
from stream_agg.events import parse_duration
from stream_agg.replay import files, kafka
from stream_agg.replay.compare import Comparison, compare, policies
from stream_agg.replay.files import Outcome
from stream_agg.replay.report import drift_doubt, render
from stream_agg.replay.source import Source
from stream_agg.spec import SessionSpec

EXAMPLES = """
\b
Examples:
  stream-agg replay rain.csv --levels 11 --action stay=1,0 --action prepare=0,3 --out report
  stream-agg replay flu.csv.gz --spec flu.json --delay P7D --set gamma=4
  stream-agg replay flu.csv.gz --spec flu.json --delay P7D --compare --out report
  stream-agg replay rain.csv --spec rain.json --through-kafka --embedded
  stream-agg replay --topics --set gamma=4 --out what-if
"""


@click.command(epilog=EXAMPLES)
@click.argument("source", type=click.Path(path_type=Path), required=False)
@click.option("--topics", is_flag=True, help="Replay the input topics of a deployment instead of a file.")
@click.option("--from", "since", multiple=True, metavar="TIME|P:O", help="With --topics: from that time, or offset.")
@click.option("--to", "until", multiple=True, metavar="TIME|P:O", help="With --topics: to before that time, or offset.")
@click.option("--into", metavar="PREFIX", help="With --topics: write to topics whose names begin with it.")
@click.option("--create-topics", is_flag=True, help="With --into: create those topics where they are missing.")
@click.option("--spec", "spec_file", type=click.Path(path_type=Path), help="Session spec (JSON).")
@click.option("--levels", type=int, help="Without --spec: how many equally spaced levels every expert has.")
@click.option("--action", "actions", multiple=True, metavar="NAME=U0,U1", help="Without --spec: an action's payoffs.")
@click.option("--session", help="Session id; default: the spec's, or the file's name.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="What-if: another value in the spec.")
@click.option("--delay", default="P0D", show_default=True, help="How long after its row an outcome becomes known.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for actions.jsonl, regret.jsonl, report.html.")
@click.option(
    "--through-kafka", is_flag=True, help="Feed the topics of a deployment and collect what its worker gives."
)
@click.option(
    "--embedded",
    is_flag=True,
    help="With --through-kafka: bring broker, Redis and worker along; so too where no address is set.",
)
@click.option("--brokers", help="With --through-kafka: Kafka bootstrap servers (STREAM_AGG_BROKERS).")
@click.option("--redis-url", help="With --through-kafka: where the worker keeps its state (STREAM_AGG_REDIS_URL).")
@click.option("--compare", "comparing", is_flag=True, help="Every policy and simple baselines on the same events, too.")
@click.option("--dry-run", is_flag=True, help="Read and check everything, decide nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the final report as JSON.")
def replay(
    source: Path | None,
    topics: bool,
    since: tuple[str, ...],
    until: tuple[str, ...],
    into: str | None,
    create_topics: bool,
    spec_file: Path | None,
    levels: int | None,
    actions: tuple[str, ...],
    session: str | None,
    changes: tuple[str, ...],
    delay: str,
    out: Path | None,
    through_kafka: bool,
    embedded: bool,
    brokers: str | None,
    redis_url: str | None,
    comparing: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Replay SOURCE, a CSV or JSONL file of forecasts with outcomes, gzipped or plain; or --topics.

    The CSV header is event_id,time,outcome and one column per expert; an empty cell is a silent expert or an unknown
    outcome. Rows of equal time are all decided before any of their outcomes is revealed.

    With --topics what a deployment's input topics hold is replayed: all of it in the order in which the worker applied
    it, a part of it (--from, --to) in the order of its times and from empty sessions.
    """
    if topics:
        if source or spec_file or levels or actions or session or through_kafka or embedded or redis_url:
            raise ConfigError("--topics goes with --from, --to, --set, --out, --into, --brokers, --dry-run and --json")
        if out is not None and into is not None:
            raise ConfigError("--out and --into: choose one")
        wanted = Wanted(
            bound("--from", since), bound("--to", until), overrides(changes), out, into, create_topics, dry_run, as_json
        )
        replay_topics(settings_of(brokers=brokers), wanted)
        return
    if source is None:
        raise ConfigError("give a SOURCE file, or --topics")
    if since or until or into is not None or create_topics:
        raise ConfigError("--from, --to, --into and --create-topics go with --topics")
    try:
        delay_us = parse_duration(delay)
    except ValueError as e:
        raise ConfigError(f"--delay: {e}") from None
    if not through_kafka and (embedded or brokers or redis_url):
        raise ConfigError("--embedded, --brokers and --redis-url go with --through-kafka")
    data = Source(source)
    bare = read_json(spec_file) if spec_file else file_spec(source, data.experts, levels, actions, session)
    spec = spec_of(bare, overrides(changes), session)
    _compare_columns(spec, data)
    rows = data.count()
    if through_kafka or dry_run:  # what is in a topic stays there: the whole file must be right first
        for _ in data.rows():
            pass
    if dry_run:
        click.echo(
            f"{rows:,} rows, {len(data.experts)} experts; session {spec.session!r} is valid; nothing was decided"
        )
        return
    warm_up()
    with progress_bar(rows, "replay", hidden=as_json) as progress:
        if through_kafka:
            with ExitStack() as stack:
                settings = settings_of(brokers=brokers, redis_url=redis_url)
                if embedded or settings.nowhere:
                    click.echo("bringing a broker, a Redis and a worker along, for this replay only", err=True)
                    settings = stack.enter_context(deployment(settings, _no_log(stack)))
                outcome = asyncio.run(kafka.replay(data, spec, delay_us, settings, out, progress))
        else:
            outcome = files.replay(data, spec, delay_us, out, progress)
    comparison = None
    if comparing:
        with progress_bar(rows, "compare", hidden=as_json) as progress:
            comparison = compare(files.feed(data, spec, delay_us), policies(spec), progress)
    _report(outcome, spec, out, as_json, comparison)


def _no_log(stack: ExitStack) -> int:
    """Where the log of a worker goes that nobody asked for: what it has to say, the replay says."""
    return stack.enter_context(Path(os.devnull).open("wb")).fileno()


def _compare_columns(spec: SessionSpec, data: Source) -> None:
    missing = [name for name in spec.experts if name not in data.experts]
    if missing:
        raise ConfigError(f"{data.path}: no column for expert {', '.join(missing)}; it has {', '.join(data.experts)}")
    extra = [name for name in data.experts if name not in spec.experts]
    if extra:
        click.echo(f"columns not in the spec are left out: {', '.join(extra)}", err=True)


def _report(
    outcome: Outcome, spec: SessionSpec, out: Path | None, as_json: bool, comparison: Comparison | None
) -> None:
    final, record = outcome.final, comparison.to_record() if comparison else None
    if out is not None:
        title, rounds = f"Replay of {spec.session}", final["round"]
        page = render(title, spec.to_dict(), rounds, outcome.regrets, outcome.calibration, record)
        (out / "report.html").write_text(page, encoding="utf-8")
    if as_json:
        summary = {**final, "actions": outcome.actions, "refused": outcome.refused, "repeats": outcome.repeats}
        if record is not None:
            summary["comparison"] = record
        click.echo(orjson.dumps(summary))
        return
    click.echo(regret_table([final]))
    if comparison is not None:
        click.echo("\n" + comparison_table(comparison) + "\n")
    robust = final["robust"]
    if robust["epsilon_min"] > 0:
        click.echo(
            f"These forecasters cannot all be calibrated within less than {robust['epsilon_min']:.4f} (epsilon_min): "
            "robust values above contain a penalty for that."
        )
    doubt = drift_doubt(final["drift"])
    if doubt:
        click.echo(doubt)
    for reason, count in sorted(outcome.refused.items()):
        click.echo(
            f"not used: {count:,} x {reason}" + (f" (see {out / 'dead-letters.jsonl'})" if out else ""), err=True
        )
    if out is not None:
        click.echo(f"written to {out}: actions.jsonl, regret.jsonl, report.html")
