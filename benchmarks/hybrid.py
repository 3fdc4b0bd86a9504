"""What policy `hybrid` costs: processor time of decide plus learn for an event in the engine alone, beside the robust
rule on the same events, and the bytes that a session keeps for it.

14 experts of 11 levels by default, who report a hidden chance with errors of their own, to three decimals; each state
comes `--delay` events after its forecast. Time is that of the thread, in blocks of 100 events: the median block is what
an event costs, the mean has the solves and reports that some events bring. Times are claimed of the median, and not in
a smoke test.

    python benchmarks/hybrid.py
    python benchmarks/hybrid.py --events 20000 --json
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import stream_agg as sa
from stream_agg.events import Forecast, State
from stream_agg.session.warm import warm_up

ACTIONS = {"stay": [1.0, 0.0], "wait": [0.6, 1.5], "prepare": [0.0, 3.0]}
SECOND_US = 1_000_000
BLOCK = 100
LIMIT_US = 100.0


def feed(experts: int, events: int, seed: int) -> tuple[list[Forecast], list[State]]:
    """Forecasts a second apart, and what became of each."""
    rng = random.Random(seed)  # noqa: S311 # no secret
    forecasts, states = [], []
    for t in range(events):
        chance = rng.random()
        told = {f"x{i}": round(min(max(rng.gauss(chance, 0.2), 0.0), 1.0), 3) for i in range(experts)}
        forecasts.append(Forecast("s", str(t), t * SECOND_US, told))
        states.append(State("s", str(t), t * SECOND_US, int(rng.random() < chance)))
    return forecasts, states


def play(
    policy: str, experts: int, delay: int, forecasts: Sequence[Forecast], states: Sequence[State]
) -> dict[str, Any]:
    """Microseconds of an event, and the bytes kept at the end."""
    alphabets = {f"x{i}": {"levels": 11} for i in range(experts)}
    fields = {"feedback": "state", "policy": policy, "schedule": {"growth": 1.0}}
    session = sa.Session(sa.SessionSpec.from_dict({"session": "s", "experts": alphabets, "actions": ACTIONS, **fields}))
    spent = []
    for t, forecast in enumerate(forecasts):
        start = time.thread_time()
        session.forecast(forecast)
        if t >= delay:
            session.state(states[t - delay])
        spent.append((time.thread_time() - start) * 1e6)
    blocks = [fmean(spent[i : i + BLOCK]) for i in range(BLOCK, len(spent) - BLOCK + 1, BLOCK)]  # the first warms up
    tables = session.tables()
    waiting = [len(tables["events"][str(t)]) for t in range(len(states) - delay, len(states))]
    return {
        "median_us": median(blocks),
        "mean_us": fmean(blocks),
        "state_bytes": sum(len(v) for k, v in tables["state"].items() if k in ("pool", "recalibrated")),
        "waiting_bytes": max(waiting, default=0),
    }


def main() -> None:
    """Measure, and print a few lines or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--experts", type=int, default=14)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--delay", type=int, default=20, help="events between a forecast and its state")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--smoke", action="store_true", help="600 events, and no claim about time")
    args = parser.parse_args()
    warm_up()
    forecasts, states = feed(args.experts, 600 if args.smoke else args.events, args.seed)
    found = {p: play(p, args.experts, args.delay, forecasts, states) for p in ("robust", "hybrid")}
    claims = {
        "state of the pool at most 16 kB": found["hybrid"]["state_bytes"] <= 16_000,
        "a decision that waits at most 1 kB": found["hybrid"]["waiting_bytes"] <= 1000,
    }
    if not args.smoke:
        claims[f"decide plus learn at most {LIMIT_US:g} us"] = found["hybrid"]["median_us"] <= LIMIT_US
    if args.json:
        print(json.dumps({"experts": args.experts, "events": len(forecasts), "policies": found, "claims": claims}))
    else:
        print(f"{'policy':8} {'median us':>10} {'mean us':>10}   bytes: {'pool':>7} {'waiting':>8}")
        for policy, row in found.items():
            times = f"{row['median_us']:10.1f} {row['mean_us']:10.1f}"
            print(f"{policy:8} {times}          {row['state_bytes']:7} {row['waiting_bytes']:8}")
        for claim, holds in claims.items():
            print(f"{'holds' if holds else 'FAILS'}  {claim}")
    raise SystemExit(not all(claims.values()))


if __name__ == "__main__":
    main()
