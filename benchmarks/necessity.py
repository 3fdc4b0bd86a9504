"""Why profiles must be drawn at random: Section 4.3's two orderings, on which PRA loses T/6 whatever its schedule.

    python benchmarks/necessity.py [--rounds 30000] [--seeds 5] [--json] [--plot FILE] [--smoke]

Two experts with levels 0, 1/2, 1; the action that matches the state pays 1. T/3 rounds of (1/2, 1/2) come first; then
T/3 of (1/2, 0) and T/3 of (0, 1/2), "low", or T/3 of (1/2, 1) and T/3 of (1, 1/2), "high". Calibration says in the end
that (1/2, 1/2) meant state 1 if the ending was low and 0 if it was high, but not while it comes. Robust regret is taken
at the final distribution P of profiles: T RMM(P) - min_{rho in C(P)} sum_t x_t(e_t).v_rho(e_t). For contrast the same
profiles are shuffled: then the same algorithm loses little, if gamma is large enough (try `--gamma 1`).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np
from _figure import Row, options, show
from _truth import Profile, Truth

import stream_agg as sa
from stream_agg.events import Forecast

LEVELS = (0.0, 0.5, 1.0)
PAYOFFS = {"dry": (1.0, 0.0), "rain": (0.0, 1.0)}

ENDINGS: dict[str, tuple[Profile, Profile]] = {"low": ((1, 0), (0, 1)), "high": ((1, 2), (2, 1))}
"""Level indices of what follows (1/2, 1/2)."""

SCHEDULES: tuple[dict[str, float], ...] = (
    {"every": 1},
    {"growth": 0.05},
    {"growth": 0.5},
    {"certified": 0.1},
    {"certified": 1.0},
)

EVERY = 3000
"""The most solves that a schedule by rounds is asked for."""

SMALL = 0.1
"""Shuffled profiles are to cost less than this share of T/6 at the largest T."""


def blocks(ending: str, rounds: int) -> list[Profile]:
    """A third of the rounds each: (1/2, 1/2), then the two profiles of the ending."""
    return [e for e in ((1, 1), *ENDINGS[ending]) for _ in range(rounds // 3)]


def truth(profiles: Iterable[Profile]) -> Truth:
    """The empirical distribution of these profiles."""
    counts = Counter(profiles)
    every = [counts[e] for e in product(range(len(LEVELS)), repeat=2)]
    return Truth((LEVELS, LEVELS), np.array(list(PAYOFFS.values())), np.array(every) / counts.total())


def regret(schedule: Mapping[str, float], profiles: Sequence[Profile], gamma: float | Literal["auto"]) -> float:
    """Robust regret of a session fed with these profiles, at their final distribution."""
    final = truth(profiles)
    levels = {"levels": LEVELS}
    record = {
        "session": "necessity",
        "experts": {"first": levels, "second": levels},
        "actions": PAYOFFS,
        "gamma": gamma,
        "schedule": schedule,
        "window": 1,  # no states come: nothing to remember
    }
    session = sa.Session(sa.SessionSpec.from_dict(record))
    for t, e in enumerate(profiles, 1):
        session.forecast(Forecast("necessity", str(t), t, session.spec.reports(e)))
    tallies = [session.tallies.get(e) for e in final.profiles]
    played = np.array([(y.payoff0, y.slope) if y else (0.0, 0.0) for y in tallies])
    return len(profiles) * final.robust() - final.worst(*played.T)


def measure(schedule: Mapping[str, float], rounds: int, seeds: int, gamma: float | Literal["auto"]) -> Row:
    """Regrets of one schedule and T: the two orderings, and `seeds` shuffles of each."""
    orders = {ending: blocks(ending, rounds) for ending in ENDINGS}
    shuffled = [
        regret(schedule, [order[i] for i in np.random.default_rng(seed).permutation(rounds)], gamma)
        for order in orders.values()
        for seed in range(seeds)
    ]
    ordered = {ending: regret(schedule, order, gamma) for ending, order in orders.items()}
    return {"schedule": schedule, "rounds": rounds, "sixth": rounds / 6, **ordered, "shuffled": shuffled}


def claims(runs: Sequence[Row]) -> dict[str, bool]:
    """Section 4.3's lower bound at every T, and what the ordering has to do with it at the largest."""
    held = {}
    for name in dict.fromkeys(_name(run) for run in runs):
        mine = [run for run in runs if _name(run) == name]
        last = mine[-1]
        lost = all(max(run["low"], run["high"]) >= run["sixth"] - 1e-9 * run["rounds"] for run in mine)
        held[f"{name}: one of the orderings loses T/6 at every T"] = lost
        few = max(last["shuffled"]) < SMALL * last["sixth"]
        held[f"{name}: shuffled, the same {last['rounds']} profiles lose less than {SMALL:g} of that"] = few
    return held


def rows(runs: Sequence[Row]) -> list[Row]:
    """The table's lines."""
    return [
        {
            "schedule": _name(run),
            "T": run["rounds"],
            "T/6": run["sixth"],
            **{ending: run[ending] for ending in ENDINGS},
            "shuffled: mean": float(np.mean(run["shuffled"])),
            "largest": max(run["shuffled"]),
        }
        for run in runs
    ]


def draw(figure: Any, found: Mapping[str, Any]) -> None:
    """Regret over T/6 in T, left the worse of the two orderings, right the worst shuffle; a colour a schedule."""
    ordered, shuffled = figure.subplots(1, 2)
    for i, name in enumerate(dict.fromkeys(_name(run) for run in found["runs"])):
        mine = [run for run in found["runs"] if _name(run) == name]
        t = [run["rounds"] for run in mine]
        look = {"marker": "osD^v"[i % 5], "markersize": 13 - 2 * i, "fillstyle": "none", "label": name}  # some coincide
        ordered.plot(t, [max(run[ending] for ending in ENDINGS) / run["sixth"] for run in mine], **look)
        shuffled.plot(t, [max(run["shuffled"]) / run["sixth"] for run in mine], **look)
    for panel, title in ((ordered, "in blocks: the worse ordering"), (shuffled, "shuffled: the worst of all")):
        panel.axhline(1.0, color="k", linestyle="--", label="T/6")
        panel.set(xscale="log", xlabel="T", title=title)
        panel.legend()
    ordered.set(ylim=(0, None), ylabel="robust regret, as a share of T/6")
    shuffled.set(yscale="log")


def main() -> int:
    """Measure, show, and say by the exit code whether all claims held."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=30_000, help="the largest T, at least 30")
    parser.add_argument("--seeds", type=int, default=5, help="shuffles of either ordering")
    parser.add_argument("--schedule", type=json.loads, help="only this one, as in a session's spec, JSON")
    parser.add_argument("--gamma", type=_gamma, help='a number or "auto"; without it the least doubling that is enough')
    args = parser.parse_args()
    most, seeds = (300, 1) if args.smoke else (args.rounds, args.seeds)
    grid = [3 * 10**k for k in range(1, 9) if 3 * 10**k <= most]
    if not grid or seeds < 1:
        parser.error("--rounds of at least 30 and one seed, or there is nothing to see")
    gamma = args.gamma or max(truth(blocks(ending, grid[0])).enough() for ending in ENDINGS)
    runs = [
        measure(schedule, rounds, seeds, gamma)
        for schedule in ([args.schedule] if args.schedule else SCHEDULES)
        for rounds in grid
        if "every" not in schedule or rounds <= EVERY * schedule["every"]
    ]
    found = {"seeds": seeds, "gamma": gamma, "runs": runs, "claims": claims(runs)}
    return show(args, found, {f"robust regret, gamma {gamma}": rows(runs)}, draw)


def _gamma(text: str) -> float | Literal["auto"]:
    return "auto" if text == "auto" else float(text)


def _name(run: Row) -> str:
    return " ".join(f"{kind} {amount:g}" for kind, amount in run["schedule"].items())


if __name__ == "__main__":
    sys.exit(main())
