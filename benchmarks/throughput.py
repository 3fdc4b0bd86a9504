"""stream_agg beside quixstreams, bytewax and a plain Faust agent, on one broker, with the same records and job.

    python benchmarks/throughput.py                 three rounds of all that are installed (extra `peers`)
    python benchmarks/throughput.py --smoke --json

One worker on one core, broker and Redis on the others: the last core is the worker's where there are several. Events/s
by the clock, microseconds of processor time an event of the worker's process (all threads), and the most resident
memory; medians of the rounds. The first fifth of the events warms up and does not count. The job: decode, count in the
session, decide by a rule, send the action, keep the state durably. The servers: `.ci/servers`, and the system's Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import orjson
from _figure import options, show
from _servers import missing
from _speed.contenders import Contender, contenders
from _speed.lab import Lab
from _speed.machine import machine
from _speed.records import NEVER, by_partition, forecasts, spec
from _speed.window import Window, at_full_speed
from _topics import create, fill, reader, whole
from aiokafka import TopicPartition

PARTITIONS = 4
WARM = 0.2
FASTER, FASTER_THAN_FAUST, DEARER = 1.5, 10.0, 1.15
"""What is claimed: times quixstreams, times Faust with a Table; how much more exactly_once may cost."""


async def prepare(lab: Lab, events: int, sessions: int) -> str:
    """Input topics with all sessions opened and all forecasts in; the suffix of their names."""
    inputs = lab.fresh()
    await create(lab.brokers, [f"{t}-{inputs}" for t in ("sessions", "forecasts", "states")], PARTITIONS)
    specs = by_partition(((k, spec(k, {"every": NEVER})) for k in range(sessions)), PARTITIONS)
    await fill(lab.brokers, f"sessions-{inputs}", specs)
    await fill(lab.brokers, f"forecasts-{inputs}", by_partition(forecasts(events, sessions), PARTITIONS))
    return inputs


async def once(lab: Lab, contender: Contender, inputs: str, events: int) -> Window:
    """One contender, from nothing to the end of the topic; what it wrote is checked."""
    child, sink = await contender.start(lab, inputs)
    try:
        total = int(events * contender.share)
        found = await at_full_speed(lab.brokers, child, sink, PARTITIONS, int(total * WARM), total)
    finally:
        child.kill()
    await check(lab, contender, sink, total)
    return found


async def check(lab: Lab, contender: Contender, sink: str, total: int) -> None:
    """Every session's events counted one by one, none left out and none twice. `ValueError` where not."""
    rounds = defaultdict[str, dict[str, int]](dict)
    async with reader(lab.brokers) as consumer:
        async for record in whole(consumer, [TopicPartition(sink, p) for p in range(PARTITIONS)]):
            action = orjson.loads(record.value)
            rounds[action["session"]][action["event"]] = action["round"]
    found = sum(map(len, rounds.values()))
    in_order = all(sorted(r.values()) == list(range(1, len(r) + 1)) for r in rounds.values())
    # The last transactions may not be committed when the records of all events are there.
    if not in_order or found < 0.98 * total:
        raise ValueError(f"{contender.name}: {found} events of {total} done, counted in order: {in_order}")


async def run(lab: Lab, rounds: int, events: int, sessions: int, only: Sequence[str]) -> dict[str, list[Window]]:
    """All contenders in turn, so many times."""
    inputs = await prepare(lab, events, sessions)
    found = defaultdict[str, list[Window]](list)
    for _ in range(rounds):
        for contender in contenders(PARTITIONS):
            if contender.there() and (not only or contender.name in only):
                got = await once(lab, contender, inputs, events)
                print(f"{contender.name}: {got.events_per_s:.0f}/s, {got.cpu_us:.1f} us", file=sys.stderr)
                found[contender.name].append(got)
    return found


def row(windows: Sequence[Window]) -> dict[str, Any]:
    """Medians, and the range that they are of."""
    speeds, costs = [w.events_per_s for w in windows], [w.cpu_us for w in windows]
    return {
        "events_per_s": median(speeds),
        "cpu_us": median(costs),
        "peak_mb": max(w.peak_mb for w in windows),
        "core": median(w.cpu_s / w.wall_s for w in windows),
        "slowest": min(speeds),
        "fastest": max(speeds),
        "cpu_us_least": min(costs),
        "cpu_us_most": max(costs),
    }


def claims(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """By processor time, since broker and worker share the machine; events/s stand beside it."""

    def ratio(other: str, of: str = "stream_agg") -> float:
        return float(rows[other]["cpu_us"] / rows[of]["cpu_us"])

    held = {}
    quix = [name for name in ("quixstreams", "quixstreams, no changelog") if name in rows]
    held |= {f"an event costs 1/{FASTER:g} of what it costs {name}": ratio(name) >= FASTER for name in quix}
    if "Faust with a Table" in rows:
        held[f"and 1/{FASTER_THAN_FAUST:g} of Faust with a Table"] = ratio("Faust with a Table") >= FASTER_THAN_FAUST
    eo = "stream_agg exactly_once"
    if eo in rows and "stream_agg" in rows:
        held["exactly_once costs at most 15 % more"] = ratio(eo) <= DEARER
    return held


def draw(figure: Any, found: Mapping[str, Any]) -> None:
    """Bars."""
    rows = found["rows"]
    for place, key, title in ((121, "events_per_s", "events/s"), (122, "cpu_us", "CPU microseconds an event")):
        axes = figure.add_subplot(place, title=title)
        bars = axes.barh(list(rows)[::-1], [r[key] for r in rows.values()][::-1])
        axes.bar_label(bars, fmt="%.0f")
        axes.margins(x=0.15)


def main() -> int:
    """Parse, run, print."""
    parser = options(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a contender; repeat for more")
    args = parser.parse_args()
    if problem := missing():
        print(problem, file=sys.stderr)
        return 2
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    events, rounds = (10_000, 1) if args.smoke else (args.events, args.rounds)
    with tempfile.TemporaryDirectory(prefix="throughput-") as home, Lab(Path(home), PARTITIONS) as lab:
        windows = asyncio.run(run(lab, rounds, events, args.sessions, args.only))
    rows = {name: row(found) for name, found in windows.items()}
    found = {
        "machine": machine(),
        "events": events,
        "sessions": args.sessions,
        "partitions": PARTITIONS,
        "rounds": rounds,
        "rows": rows,
        "claims": {} if args.smoke else claims(rows),  # of times, a small run claims nothing
    }
    return show(args, found, {"medians": [{"program": name, **r} for name, r in rows.items()]}, draw)


if __name__ == "__main__":
    sys.exit(main())
