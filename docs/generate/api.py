"""The reference page of the Python half: every public name with its signature and its docstring."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from describe import docs_of

import stream_agg

FIRST = ("SessionSpec", "solve", "Rule", "benchmarks", "Benchmarks", "posterior_range", "Session", "Action", "Regret")
"""What a reader meets first; errors come after, by name."""

USED: dict[str, tuple[str, ...]] = {
    "SessionSpec": ("from_dict", "to_dict"),
    "Rule": ("value", "upper_bound", "gap", "violation", "penalty", "exact", "epsilon_min", "duals", "strategy"),
    "Session": ("decide", "learn", "report", "close", "change", "gap", "calibration", "to_bytes", "from_bytes"),
}
"""The members that are for callers, of the classes whose others are for this package."""


def names() -> list[str]:
    """All public names, in the page's order."""
    return [*FIRST, *sorted(set(stream_agg.__all__) - set(FIRST))]


def api() -> str:
    """The body of the page."""
    return "\n\n".join(_section(name, getattr(stream_agg, name)) for name in names())


def _section(name: str, found: Any) -> str:
    parts = [f"## {name}", _signature(name, found), _doc(found)]
    if inspect.isclass(found):
        parts += [_fields(found), *_members(found)]
    return "\n\n".join(part for part in parts if part)


def _signature(name: str, found: Any) -> str:
    if inspect.isclass(found) and (issubclass(found, Exception) or dataclasses.is_dataclass(found)):
        return ""  # made by the package, or described by their fields
    taken = inspect.signature(found)
    shown = [p.replace(annotation=_plain(p.annotation)) for p in taken.parameters.values() if p.name != "self"]
    returns = "" if inspect.isclass(found) else f" -> {_plain(taken.return_annotation)}"
    lines = ", ".join(str(p).replace("'", "") for p in shown)
    return f"```text\n{name}({lines}){returns}\n```"


def _plain(annotation: Any) -> Any:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", annotation)


def _doc(found: Any) -> str:
    return _indented(inspect.getdoc(found) or "")


def _indented(text: str) -> str:
    """A docstring as Markdown: its doctests as code."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        starts = line.startswith(">>> ")
        if starts and not inside:
            lines.append("```pycon")
        elif inside and not line.strip():
            lines.append("```")
        inside = starts or (inside and bool(line.strip()))
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


def _fields(cls: type) -> str:
    if not dataclasses.is_dataclass(cls):
        return ""
    own = docs_of(cls)
    shown = [f for f in dataclasses.fields(cls) if cls.__name__ != "Rule" or f.name in USED["Rule"]]
    return "\n".join(f"- `{f.name}`: `{f.type}`" + (f". {own[f.name]}" if f.name in own else "") for f in shown)


def _members(cls: type) -> Iterator[str]:
    """Methods and properties: those in `USED`, or else all public ones of the class itself."""
    for name in USED.get(cls.__name__, tuple(vars(cls))):
        member = getattr(cls, name, None)
        calls = inspect.isfunction(member) or inspect.ismethod(member)
        if name.startswith("_") or not (calls or isinstance(member, property | cached_property)):
            continue
        signature = _signature(name, member) if calls else ""
        yield "\n\n".join(part for part in (f"### {cls.__name__}.{name}", signature, _doc(member)) if part)
