"""What one event costs between its bytes and its action's: decode, decide, learn, encode, and the fields to commit.

    python benchmarks/engine.py                     3, 7 and 14 experts, generated, under four schedules
    python benchmarks/engine.py --file flu.csv.gz   and a file of forecasts
    python benchmarks/engine.py --json              the figures as JSON; --smoke: a short run

As in a worker, a batch at a time; CPU time of one thread, microseconds an event, with solves and reports. Every feed
goes through so many times, and of each batch and step the least counts: others use the machine, too. `decide` under
"every 1e+09" solves once: what is left is the engine. No broker, no store.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from _engine import STEPS, laps
from _stream import NEVER
from _worlds import Feed, generated, latent, real, repeating

import stream_agg as sa
from stream_agg.events import format_time
from stream_agg.session.warm import warm_up
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Encoder

SCHEDULES = (("every", NEVER), ("certified", 0.1), ("growth", 0.05), ("every", 1))
BATCH = 500
"""Records a batch, as a worker takes them by default."""


def records(feed: Feed) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Batches of forecast records, and of the state records that come after each."""
    chance = np.random.default_rng(0)
    for start in range(0, len(feed.forecasts), BATCH):
        some = feed.forecasts[start : start + BATCH]
        named = [{"session": f.session, "event": f.event, "time": format_time(f.time_us)} for f in some]
        yield (
            [orjson.dumps({**n, "forecasts": f.forecasts}) for n, f in zip(named, some, strict=True)],
            [orjson.dumps({**n, "state": int(chance.random() < 0.5)}) for n in named],
        )


def through(feed: Feed, spec: sa.SessionSpec) -> tuple[sa.Session, list[list[float]]]:
    """A session with the feed behind it; seconds of this thread by batch and step."""
    session, encoder = sa.Session(spec), Encoder(Settings())
    return session, [laps(session, encoder, *batch) for batch in list(records(feed))]


def row(feed: Feed, kind: str, amount: float, passes: int) -> dict[str, Any]:
    """Microseconds an event by step; `events` counts forecasts, each of which has a state."""
    done = [through(feed, feed.scheduled(kind, amount)) for _ in range(passes)]
    least = np.min([spent for _, spent in done], axis=0).sum(axis=0)
    each = dict(zip(STEPS, (least / len(feed.forecasts) * 1e6).tolist(), strict=True))
    session = done[-1][0]
    return {
        "feed": feed.name,
        "experts": len(feed.spec.experts),
        "schedule": f"{kind} {amount:g}",
        "events": len(feed.forecasts),
        "profiles": len(session.tallies),
        "price_changes": session.counters.rule_version,
        "cpu_us": each,
        "total_us": sum(each.values()),
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="a file of forecasts, as `stream-agg replay` reads")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="few events: to see that it runs")
    args = parser.parse_args()
    size, pool = (600, 50) if args.smoke else (args.events, 500)
    feeds = [generated(f"{n} experts", n, 11, repeating(latent(n, 11), pool), size) for n in (3, 7, 14)]
    if args.file:
        feeds.append(real(args.file, size))
    warm_up()
    rows = (row(feed, kind, amount, args.passes) for feed in feeds for kind, amount in SCHEDULES)
    if args.json:
        print(json.dumps(list(rows)))
        return
    print(f"CPU microseconds an event\n{'feed':>20} {'schedule':>16}", *(f"{name:>8}" for name in (*STEPS, "in all")))
    for r in rows:
        figures = (*r["cpu_us"].values(), r["total_us"])
        print(f"{r['feed']:>20} {r['schedule']:>16}", *(f"{x:8.1f}" for x in figures), flush=True)


if __name__ == "__main__":
    main()
