"""The reference pages, from the code that defines it: settings, metrics, topics, commands and the Python names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import click
from api import api
from asyncapi import TOPICS, headers
from describe import Schema, docs_of

from stream_agg.cli import cli
from stream_agg.store.rights import WHY as REDIS
from stream_agg.store.rights import acl
from stream_agg.watch.names import METRICS
from stream_agg.worker.broker import COMPACTED
from stream_agg.worker.rights import WHY
from stream_agg.worker.rights import rights as least
from stream_agg.worker.settings import PREFIX, Settings

NOTE = "<!-- Written by `python docs/generate`; do not edit. -->"
_WIDTH = 100


def settings() -> str:
    """One row a setting."""
    texts = docs_of(Settings)
    rows = [
        [f"`{PREFIX}{field.name.upper()}`", _code(field.default), str(field.type), texts[field.name]]
        for field in dataclasses.fields(Settings)
    ]
    return _page(
        "Settings",
        "Read once at start, from the environment. `NAME_FILE` in place of `NAME` reads the value from a file, for\n"
        "secrets. `stream-agg worker --print-config` shows what is in force, secrets masked.",
        _table(["variable", "default", "type", "what it is"], rows),
    )


def rights() -> str:
    """The least rights of every side: Kafka's by default names, Redis' as ACL SETUSER takes them."""
    rows = []
    for side, what in WHY.items():
        granted: dict[str, list[str]] = {}
        for right in least(Settings(), side):
            where = f"{right.kind} `{right.name}{'*' if right.prefixed else ''}`"
            granted.setdefault(right.operation, []).append(where)
        rows += [[what, operation, ", ".join(places)] for operation, places in granted.items()]
    users = [[what, f"`{' '.join(acl(Settings().app, side))}`"] for side, what in REDIS.items()]
    return _page(
        "Rights",
        "What each side needs, and cannot do without, by the default names of topics and app. A name that ends in `*`\n"
        "is a prefix (`--resource-pattern-type prefixed`). READ and WRITE contain DESCRIBE.\n"
        "A user may be several sides. Those who only send need WRITE on the topics they send to, each on its own.",
        "## Kafka\n\n"
        + _table(["side", "operation", "on"], rows)
        + "\n\n## Redis\n\nThe rules of a user, after name, `on` and password. On a cluster every node has them.\n\n"
        + _table(["side", "rules"], users),
    )


def metrics() -> str:
    """One row a metric."""
    rows = [[f"`{m.name}`", m.kind, ", ".join(f"`{label}`" for label in m.labels) or "-", m.help] for m in METRICS]
    words = [
        f"- `{m.name}`, `{label}`: {', '.join(f'`{word}`' for word in words)}"
        for m in METRICS
        for label, words in m.labels.items()
        if words
    ]
    return _page(
        "Metrics",
        "`/metrics` of a worker (`STREAM_AGG_HTTP_BIND`, `STREAM_AGG_HTTP_PORT`), and `process_*` of the process.\n"
        "Histograms have `_bucket`, `_count` and `_sum`. No label is a session, a partition or an event.",
        _table(["metric", "kind", "labels", "what it says"], rows)
        + "\n\n## Words of the labels\n\n"
        + "\n".join(words),
    )


def topics(schemas: dict[str, Schema]) -> str:
    """A section a topic."""
    texts, parts = docs_of(Settings), []
    for topic, record in TOPICS.items():
        name = getattr(Settings(), f"topic_{topic}")
        cleanup = "compacted" if f"topic_{topic}" in COMPACTED else "deleted by age"
        part = f"## {name}\n\n{texts[f'topic_{topic}']}\n\n{cleanup.capitalize()}; the key is the session id."
        if record:
            part += f" JSON; its schema is `stream_agg/schemas/{record}.json`.\n\n"
            part += _table(["field", "type", "what it is"], list(_fields(schemas[record])))
        else:
            part += " The value is the original bytes."
        if headers(topic):
            rows = [[f"`{header}`", found["description"]] for header, found in headers(topic).items()]
            part += "\n\n" + _table(["header", "what it is"], rows)
        if topic == "dead_letters":
            part += "\n\nReasons: " + ", ".join(f"`{word}`" for word in headers(topic)["reason"]["enum"]) + "."
        parts.append(part)
    intro = (
        "Names are the defaults of the settings. Input topics need equal partition counts. Times are RFC 3339. The\n"
        "same as an AsyncAPI document: [asyncapi.json](../asyncapi.json)."
    )
    return _page("Topics", intro, "\n\n".join(parts))


def commands() -> str:
    """The help of every command, as it is printed."""
    root = click.Context(cli, info_name="stream-agg", terminal_width=_WIDTH)
    names = list(cli.list_commands(root))
    parts = [f"```text\n{cli.get_help(root)}\n```"] + [_help(root, cli, name) for name in names]
    intro = "Exit codes: 0 done, 1 failed, 2 misused. Every error is one line that names the remedy."
    return _page("Commands", intro, "\n\n".join(parts))


def python() -> str:
    """Every public name of the package."""
    intro = (
        "`import stream_agg as sa`: typed, and without any server. A report is a number in [0, 1], None where an\n"
        "expert is silent; payoffs of an action are those in state 0 and in state 1."
    )
    return _page("Python", intro, api())


def _help(parent: click.Context, group: click.Group, name: str) -> str:
    command = group.get_command(parent, name)
    assert command is not None  # noqa: S101 # it was listed
    ctx = click.Context(command, parent=parent, info_name=name, terminal_width=_WIDTH)
    parts = [f"## {ctx.command_path.removeprefix('stream-agg ')}\n\n```text\n{command.get_help(ctx)}\n```"]
    if isinstance(command, click.Group):
        parts += [_help(ctx, command, sub) for sub in command.list_commands(ctx)]
    return "\n\n".join(parts)


def _fields(schema: Schema, prefix: str = "") -> Iterator[list[str]]:
    """Rows of a record's fields, those of objects within it below them. Where some have a default, the others are
    marked as required."""
    optional = any("default" in found for found in schema["properties"].values())
    for name, found in schema["properties"].items():
        text = found["description"]
        if "default" in found:
            text += f" Default {_code(found['default'])}."
        elif optional:
            text += " Required."
        yield [f"`{prefix}{name}`", _kind(found), text]
        for inner, star in _objects(found):
            yield from _fields(inner, f"{prefix}{name}.{star}")


def _objects(schema: Schema) -> Iterator[tuple[Schema, str]]:
    """Described objects within a field: itself, one of its kinds, or the values of its names."""
    for one in (schema, *schema.get("anyOf", ())):
        for found, star in ((one, ""), (one.get("additionalProperties"), "*.")):
            if isinstance(found, dict) and all("description" in p for p in found.get("properties", {"": {}}).values()):
                yield found, star


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(_code(word) for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(kinds)


def _code(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{text}`" if text else '`""`'


def _page(title: str, intro: str, body: str) -> str:
    return f"{NOTE}\n\n# {title}\n\n{intro}\n\n{body}\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *[[cell.replace("|", "\\|") for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
