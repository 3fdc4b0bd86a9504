"""How the cost of an event grows with sessions, profiles, experts and workers; a backlog; a file; bytes held.

    python benchmarks/scale.py                        all parts: an hour
    python benchmarks/scale.py sessions backlog       some
    python benchmarks/scale.py --smoke --json

`profiles`, `experts` and `decisions` run the engine in a process of its own, `replay` the command; the others a worker
on a real broker and Redis (`.ci/servers`, and the system's Redis). Microseconds of processor time an event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from _figure import options, show
from _servers import missing
from _speed import inside, outside
from _speed.lab import Lab
from _speed.machine import machine

FLAT, HELD, TWICE, REPLAYED = 1.5, 2.0, 1.6, 50_000
"""What is claimed: cost from least to most; memory by bytes held; two workers by one; rows of a file a second."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    sessions: Sequence[int] = (1, 10, 100, 1_000, 10_000, 100_000)
    warm: int = 40_000
    events: int = 100_000
    profiles: Sequence[int] = (100, 1_000, 10_000, 100_000, 1_000_000)
    experts: Sequence[int] = (2, 4, 8, 16, 32, 64)
    decisions: Sequence[int] = (10_000, 100_000)
    batches: int = 40
    backlog: int = 2_000_000
    rows: int = 300_000

    def below(self, most: int) -> Sizes:
        """The same with no number above `most`."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        return Sizes(
            **{n: min(v, most) if isinstance(v, int) else [x for x in v if x <= most] for n, v in told.items()}
        )


SMOKE = Sizes((1, 20), 500, 10_000, (100, 1_000), (2, 8), (2_000,), 2, 5_000, 2_000)


def sessions(home: Path, sizes: Sizes) -> Rows:
    """A worker, four partitions."""
    with Lab(home, 4) as lab:
        return [asyncio.run(outside.of_sessions(lab, n, sizes.warm, sizes.events)) for n in sizes.sessions]


def profiles(home: Path, sizes: Sizes) -> Rows:
    """One session, six experts."""
    return [inside.alone(inside.of_profiles, n, sizes.batches) for n in sizes.profiles]


def experts(home: Path, sizes: Sizes) -> Rows:
    """One session, 60 profiles."""
    return [inside.alone(inside.of_experts, n, sizes.batches) for n in sizes.experts]


def decisions(home: Path, sizes: Sizes) -> Rows:
    """One session, 100 profiles."""
    return [inside.alone(inside.of_decisions, n) for n in sizes.decisions]


def workers(home: Path, sizes: Sizes) -> Rows:
    """One and two, each on a core of its own, 100 sessions."""
    with Lab(home, 1) as lab:
        found = []
        for lab.partitions, count in ((1, 1), (2, 1), (2, 2)):
            found.append(asyncio.run(outside.of_workers(lab, count, 100, sizes.warm, sizes.events)))
        return found


def backlog(home: Path, sizes: Sizes) -> Rows:
    """One worker, four partitions, 100 sessions."""
    with Lab(home, 4) as lab:
        return [asyncio.run(outside.of_backlog(lab, 100, sizes.backlog))]


def replay(home: Path, sizes: Sizes) -> Rows:
    """A file with outcomes under two policies, and one without; the default schedule."""
    return [{"file": name, **outside.of_file(home, sizes.rows, fields)} for name, fields in outside.FILES.items()]


PARTS: dict[str, Callable[[Path, Sizes], Rows]] = {
    f.__name__: f for f in (experts, decisions, profiles, replay, workers, sessions, backlog)
}
OF_SERVERS = {"sessions", "workers", "backlog"}


def claims(found: Mapping[str, Rows]) -> dict[str, bool]:
    """Those of the parts that were run."""
    held = {}
    for name in {"sessions", "profiles"} & set(found):
        costs = [row["cpu_us"] for row in found[name]]
        held[f"an event costs at most {FLAT:g} times as much with any number of {name}"] = max(costs) <= FLAT * min(
            costs
        )
    for name in {"profiles", "decisions"} & set(found):
        last = found[name][-1]
        held[f"memory of {name} is at most {HELD:g} times the bytes stored"] = (
            last["bytes"] <= HELD * last["held_bytes"]
        )
    if "workers" in found:
        one, two = found["workers"][-2:]
        held[f"two workers are {TWICE:g} times one, by processor time"] = speed_up(one, two) >= TWICE
    if "backlog" in found:
        rss = found["backlog"][0]["rss_mb"]
        held["a backlog is drained with flat memory"] = rss[-1] <= 1.1 * rss[len(rss) // 2] + 5
    if "replay" in found:
        fast = all(row["after_start_per_s"] >= REPLAYED for row in found["replay"][:1])
        held[f"a file is replayed at {REPLAYED:,} rows/s"] = fast
    return held


def speed_up(one: Mapping[str, Any], two: Mapping[str, Any]) -> float:
    """Of two workers that each had a core, if the broker had not taken part of it."""
    return float(2 * one["cpu_us"] / two["cpu_us"])


def draw(figure: Any, found: Mapping[str, Any]) -> None:
    """Cost by size, and the backlog."""
    parts = found["parts"]
    shown = [name for name in ("sessions", "profiles", "experts") if name in parts] + ["backlog"] * ("backlog" in parts)
    for place, name in enumerate(shown or ["nothing"], 1):
        axes = figure.add_subplot(1, max(len(shown), 1), place, title=name)
        if name == "backlog":
            row = parts[name][0]
            axes.plot(row["at_s"], row["rss_mb"], "o-")
            axes.set(xlabel="seconds", ylabel="resident MB")
        elif name in parts:
            axes.plot([row[name] for row in parts[name]], [row["cpu_us"] for row in parts[name]], "o-")
            axes.set(xscale="log", xlabel=name, ylabel="CPU microseconds an event")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)


def main() -> int:
    """Parse, run, print."""
    parser = options(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("part", nargs="*", choices=[[], *PARTS], help="none: all")
    parser.add_argument("--add-to", type=Path, metavar="FILE", help="a JSON of before, whose other parts are kept")
    parser.add_argument("--most", type=int, help="leave out sizes above; for a first look")
    args = parser.parse_args()
    sizes = SMOKE if args.smoke else Sizes().below(args.most) if args.most else Sizes()
    wanted = args.part or list(PARTS)
    if OF_SERVERS & set(wanted) and (problem := missing()):
        print(problem, file=sys.stderr)
        return 2
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    parts = json.loads(args.add_to.read_text())["parts"] if args.add_to else {}
    for name in wanted:
        with tempfile.TemporaryDirectory(prefix="scale-") as home:
            parts[name] = PARTS[name](Path(home), sizes)
        print(f"{name}: {json.dumps(parts[name])}" if not args.smoke else name, file=sys.stderr)
    found = {"machine": machine(), "most": args.most, "parts": parts, "claims": {} if args.smoke else claims(parts)}
    tables = {name: [_flat(row) for row in rows] for name, rows in parts.items()}
    return show(args, found, tables, draw)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, (list, dict))}


if __name__ == "__main__":
    sys.exit(main())
