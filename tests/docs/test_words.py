"""What the hand-written documents name exists: settings, metrics, commands with their options, scripts, other files."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from stream_agg.cli import cli
from stream_agg.watch.names import METRICS
from stream_agg.worker.settings import PREFIX, Settings

ROOT = Path(__file__).parent.parent.parent
TEXTS = [ROOT / "README.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETTINGS = {PREFIX + name.upper() for name in Settings.__slots__}
NAMES = {series for metric in METRICS for series in metric.series} | {metric.name for metric in METRICS}


def commands(group: click.Group, *path: str) -> dict[tuple[str, ...], set[str]]:
    """Every command by its words -> its options."""
    found: dict[tuple[str, ...], set[str]] = {}
    for name in group.list_commands(None):  # type: ignore[arg-type]
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        found[*path, name] = {flag for option in command.params for flag in option.opts} | {"--help"}
        if isinstance(command, click.Group):
            found |= commands(command, *path, name)
    return found


COMMANDS = commands(cli)


def wrong(text: str) -> list[str]:
    """Settings, metrics, commands and options in a text that do not exist."""
    asked = re.findall(r"\bSTREAM_AGG_[A-Z_]+\b", text)
    found = [name for name in asked if not {name, name.removesuffix("_FILE")} & SETTINGS]
    found += [name for name in re.findall(r"\bstream_agg_[a-z_]+\b", text) if name not in NAMES]
    for line in re.findall(r"\bstream-agg ([a-z][^`\n|;&]*)", text):
        words = line.split()
        command = tuple(words[:2]) if tuple(words[:2]) in COMMANDS else tuple(words[:1])
        known = COMMANDS.get(command)
        options = {word.split("=")[0] for word in words if word.startswith("--")}
        found += [line] if known is None else sorted(options - known)
    return found


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_named_exists(text: Path) -> None:
    assert wrong(text.read_text()) == []


def test_names_that_do_not_exist_are_found() -> None:
    text = "`STREAM_AGG_BROKER`, `STREAM_AGG_REDIS_URL_FILE`, stream_agg_lag, `stream-agg session shows a`, "
    text += "`stream-agg worker --monitors`, `stream-agg session list --json`, `stream-agg unheard`"
    assert wrong(text) == ["STREAM_AGG_BROKER", "stream_agg_lag", "--monitors", "unheard"]


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_files_that_are_named_exist(text: Path) -> None:
    found = text.read_text()
    named = set(re.findall(r"\b((?:benchmarks|docs|deploy)/[\w/.-]+\.\w+)", found))
    linked = {link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", found) if "://" not in link}
    missing = {name for name in named if not (ROOT / name).exists()}
    assert missing | {link for link in linked if link and not (text.parent / link).exists()} == set()
