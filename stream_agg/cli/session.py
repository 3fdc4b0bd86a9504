"""`stream-agg session`: what Redis holds, for people; backup and restore."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import click
import orjson

from stream_agg.cli.common import columns, settings_of, warm_up
from stream_agg.errors import ConfigError, StreamAggError
from stream_agg.events import format_time
from stream_agg.replay.catchup import CatchUp
from stream_agg.replay.log import Log
from stream_agg.store.backup import Backup, Partition
from stream_agg.store.tables import SCHEMA

FORMAT = "stream-agg sessions"

_REDIS = click.option("--redis-url", help="Where the state lives (STREAM_AGG_REDIS_URL).")
_APP = click.option("--app", help="Name of the deployment (STREAM_AGG_APP).")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def session() -> None:
    """Look at the sessions that Redis holds; back them up and put them back."""


@session.command("list", epilog="\b\nExample:\n  stream-agg session list --json")
@_REDIS
@_APP
@_JSON
def list_(as_json: bool, **flags: str | None) -> None:
    """List the sessions: where they are, how far they got."""
    found = asyncio.run(_list(flags))
    if as_json:
        click.echo(orjson.dumps(found))
        return
    if not found:
        click.echo("no sessions")
        return
    rows = [("session", "partition", "policy", "rounds", "states", "rule", "latest")]
    for one in found:
        counts = (f"{one[name]:,}" for name in ("rounds", "states", "rule"))
        rows.append((one["session"], str(one["partition"]), one["policy"], *counts, one["latest"] or "-"))
    click.echo(columns(rows))


@session.command(epilog="\b\nExample:\n  stream-agg session show paris-rain")
@click.argument("name")
@_REDIS
@_APP
@_JSON
def show(name: str, as_json: bool, **flags: str | None) -> None:
    """Show one session: spec, counters, rule in force, and the offsets its partition has got to."""
    found = asyncio.run(_show(name, flags))
    if as_json:
        click.echo(orjson.dumps(found))
        return
    for title, value in found.items():
        click.echo(f"{title}:")
        click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2))


@session.command(epilog="\b\nExample:\n  stream-agg session export backup.jsonl")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; default: all.")
@_REDIS
@_APP
@_JSON
def export(file: Path, partitions: tuple[int, ...], as_json: bool, **flags: str | None) -> None:
    """Write all sessions with their offsets to FILE (JSON lines; - is the standard output).

    A worker may run on: each partition is taken at one moment. The file is a whole backup of what Redis holds.
    """
    done = asyncio.run(_export(file, partitions, flags))
    if str(file) != "-":
        words = f"{done['sessions']:,} sessions of {done['partitions']:,} partitions written to {file}"
        click.echo(orjson.dumps(done) if as_json else words)


@session.command("import", epilog="\b\nExample:\n  stream-agg session import backup.jsonl --catch-up")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; default: all in the file.")
@click.option("--overwrite", is_flag=True, help="Replace what the partitions hold now.")
@click.option("--catch-up", is_flag=True, help="And all that was published since, in the order that was.")
@click.option("--brokers", help="With --catch-up: Kafka bootstrap servers (STREAM_AGG_BROKERS).")
@click.option("--dry-run", is_flag=True, help="Read and check the file, write nothing.")
@_REDIS
@_APP
@_JSON
def import_(
    file: Path,
    partitions: tuple[int, ...],
    overwrite: bool,
    catch_up: bool,
    brokers: str | None,
    dry_run: bool,
    as_json: bool,
    **flags: str | None,
) -> None:
    """Put partitions back as FILE has them, with their offsets: the next worker goes on from there.

    A worker that has one of them now is shut out and stops. The next one applies again what came since the backup. Give
    --catch-up where states come back: else they may meet the forecasts in another order than they did, and actions that
    were published come again with other bytes.
    """
    saved = [one for one in _read(file) if not partitions or one.partition in partitions]
    if catch_up:
        warm_up()
        with Log(settings_of(brokers=brokers, **flags)) as log:
            catching = CatchUp(log)
            letters = catching.letters()
            saved = [catching.bring(one, letters) for one in saved]
    elif brokers is not None:
        raise ConfigError("--brokers goes with --catch-up")
    if not dry_run:
        asyncio.run(_import(saved, overwrite, flags))
    count = sum(len(one.sessions) for one in saved)
    if as_json:
        click.echo(orjson.dumps({"partitions": len(saved), "sessions": count, "written": not dry_run}))
        return
    verb = "would be put back" if dry_run else "put back"
    click.echo(f"{count:,} sessions of {len(saved):,} partitions {verb}")


@asynccontextmanager
async def _opened(flags: dict[str, str | None]) -> AsyncIterator[Backup]:
    settings = settings_of(**flags)
    store = Backup(settings.redis_url, settings.app, settings.redis_timeout_s)
    try:
        yield store
    finally:
        await store.close()


async def _list(flags: dict[str, str | None]) -> list[dict[str, Any]]:
    async with _opened(flags) as store:
        found = []
        for partition in await store.partitions():
            for name in await store.sessions(partition):
                state = {key: orjson.loads(text) for key, text in (await store.state(partition, name)).items()}
                if state:  # it may have been closed just now
                    found.append(_summary(name, partition, state))
        return sorted(found, key=lambda one: str(one["session"]))


def _summary(name: str, partition: int, state: dict[str, Any]) -> dict[str, Any]:
    known = state["counters"]
    times = [t for t in (known["forecast_us"], known["state_us"]) if t is not None]
    return {
        "session": name,
        "partition": partition,
        "policy": state["spec"]["policy"],
        "rounds": known["round"],
        "states": known["states"],
        "rule": known["rule_version"],
        "latest": format_time(max(times)) if times else None,
    }


async def _show(name: str, flags: dict[str, str | None]) -> dict[str, Any]:
    async with _opened(flags) as store:
        for partition in await store.partitions():
            state = await store.state(partition, name) if name in await store.sessions(partition) else {}
            if state:
                decoded = {key: orjson.loads(text) for key, text in state.items()}
                next_offsets = (await store.peek(partition)).next_offsets
                return {**_summary(name, partition, decoded), "next_offsets": dict(next_offsets), **decoded}
        raise StreamAggError(f"Redis holds no session {name!r}: `stream-agg session list` names those it holds")


async def _export(file: Path, partitions: tuple[int, ...], flags: dict[str, str | None]) -> dict[str, int]:
    async with _opened(flags) as store:
        there = [p for p in await store.partitions() if not partitions or p in partitions]
        done = {"partitions": 0, "sessions": 0}
        partial = file.with_name(file.name + ".partial")
        try:
            with nullcontext(sys.stdout.buffer) if str(file) == "-" else partial.open("wb") as out:
                _line(out, {"format": FORMAT, "schema": SCHEMA, "partitions": len(there)})
                for partition in there:
                    taken = await store.snapshot(partition)
                    _write(out, taken)
                    done["partitions"] += 1
                    done["sessions"] += len(taken.sessions)
            if str(file) != "-":
                partial.replace(file)
        except OSError as e:
            raise ConfigError(f"{file}: cannot be written: {e.strerror}") from e
        return done


async def _import(saved: list[Partition], overwrite: bool, flags: dict[str, str | None]) -> None:
    async with _opened(flags) as store:
        for one in saved:
            await store.restore(one, overwrite)


def _line(out: BinaryIO, value: Any) -> None:
    out.write(orjson.dumps(value) + b"\n")


def _write(out: BinaryIO, taken: Partition) -> None:
    outbox = [[number, b64encode(blob).decode()] for number, blob in taken.outbox]
    head = {"partition": taken.partition, "epoch": taken.epoch, "meta": taken.meta, "outbox": outbox}
    _line(out, {**head, "sessions": len(taken.sessions)})
    for name, tables in taken.sessions.items():
        plain = {table: {key: text.decode() for key, text in rows.items()} for table, rows in tables.items()}
        _line(out, {"session": name, "tables": plain})


def _read(file: Path) -> list[Partition]:
    """The partitions of a file, which must be whole; `ConfigError` otherwise."""
    try:
        with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as lines:
            return list(_partitions(lines))
    except OSError as e:
        raise ConfigError(f"{file}: cannot be read: {e.strerror}") from e
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise ConfigError(f"{file}: not a whole file of `stream-agg session export` ({e!r})") from None


def _partitions(lines: BinaryIO) -> Iterator[Partition]:
    head = orjson.loads(lines.readline())
    if head["format"] != FORMAT:
        raise ValueError("another format")
    if head["schema"] != SCHEMA:
        raise ConfigError(
            f"the backup is of schema version {head['schema']}, this program writes {SCHEMA}: import it with the "
            "stream-agg that wrote it"
        )
    for _ in range(head["partitions"]):
        one = orjson.loads(lines.readline())
        sessions = {}
        for _ in range(one["sessions"]):
            held = orjson.loads(lines.readline())
            tables = {t: {k: v.encode() for k, v in rows.items()} for t, rows in held["tables"].items()}
            sessions[held["session"]] = tables
        outbox = [(number, b64decode(blob)) for number, blob in one["outbox"]]
        yield Partition(one["partition"], one["epoch"], one["meta"], outbox, sessions)
