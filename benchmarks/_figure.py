"""What the scripts that check a claim share: their options, their table, their picture. Nothing of any claim."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser with `--json`, `--plot FILE` and `--smoke`; the first line of `doc` describes it."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--plot", metavar="FILE", help="draw the figure, too (needs matplotlib)")
    parser.add_argument("--smoke", action="store_true", help="a small form that takes seconds")
    return parser


def show(
    args: argparse.Namespace,
    found: Mapping[str, Any],
    tables: Mapping[str, Sequence[Row]],
    draw: Callable[[Any, Mapping[str, Any]], None],
) -> int:
    """Print `found` as JSON, or else the titled tables and its `claims`; `draw(figure, found)` if a plot was asked for.

    `found["claims"]`: claim -> whether it held. The exit code: 0 if all did, else 1.
    """
    if args.json:
        print(json.dumps(found))
    else:
        for title, rows in tables.items():
            print(title, table(rows), sep="\n", end="\n\n")
        for claim, held in found["claims"].items():
            print("holds " if held else "FAILS ", claim)
    if args.plot:
        from matplotlib.figure import Figure  # here, so that the numbers need no matplotlib

        figure = Figure(figsize=(11, 6), dpi=150, layout="constrained")
        draw(figure, found)
        figure.savefig(args.plot)
    return 0 if all(found["claims"].values()) else 1


def table(rows: Sequence[Row]) -> str:
    """Rows of equal keys in aligned columns; floats with four significant digits."""
    texts = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(t.rjust(w) for t, w in zip(line, widths, strict=True)) for line in texts)


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
