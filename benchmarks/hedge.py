"""Contextual regret of Hedge against its bound, seed by seed, with and without delayed states.

    python benchmarks/hedge.py [--rounds 100000] [--seeds 10] [--json] [--plot FILE] [--smoke]

Regret is that of the mixed actions over the rounds whose state has come back, as the bound is. States are random, with
a chance of their own for each of nine profiles, or chosen against the mixed action just played. Delays, in rounds:
none; 50; Pareto with shape 1.2 and scale 10, whose variance is infinite. Rates: Algorithm 2's for the horizon, and the
one that needs none. Driver `session` is the public `Session`; `direct` plays on `learn.hedge` alone, ten times as long.
Exit code 1 if any seed is above its bound.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import stream_agg as sa
from stream_agg.events import format_time
from stream_agg.learn.hedge import Hedge

LEVELS = [0.2, 0.5, 0.8]
ACTIONS = {"zero": [1.0, 0.0], "one": [0.0, 1.0], "both": [0.45, 0.45], "rather one": [0.2, 0.9]}
PROFILES = list(itertools.product(range(3), repeat=2))
Mix = Sequence[tuple[int, float]]


class Driver(Protocol):
    """Plays a game: round numbers name decisions."""

    def decide(self, t: int, profile: tuple[int, ...]) -> Mix: ...
    def learn(self, t: int, state: int) -> None: ...
    def measured(self) -> tuple[int, float, float]:
        """Known rounds, their regret, its bound."""
        ...


class Direct:
    """The learner and the few sums that a session would keep for it."""

    def __init__(self, spec: sa.SessionSpec) -> None:
        self.hedge, self.payoffs = Hedge.of(spec), tuple(spec.actions.values())
        self.states = {e: [0, 0] for e in PROFILES}
        self.open: dict[int, tuple[tuple[int, ...], Mix, int]] = {}
        self.earned = self.delay_cost = 0.0

    def decide(self, t: int, profile: tuple[int, ...]) -> Mix:
        n0, n1 = self.states[profile]
        mix = self.hedge.mix(n0, n1)
        self.open[t] = profile, mix, n0 + n1
        return mix

    def learn(self, t: int, state: int) -> None:
        profile, mix, known_then = self.open.pop(t)
        states = self.states[profile]
        states[state] += 1
        self.earned += sum([p * self.payoffs[a][state] for a, p in mix])
        self.delay_cost += self.hedge.delay_cost(known_then, states[0] + states[1])

    def measured(self) -> tuple[int, float, float]:
        counts = self.states.values()
        best = sum(max(n0 * u0 + n1 * u1 for u0, u1 in self.payoffs) for n0, n1 in counts)
        known = [n0 + n1 for n0, n1 in counts]
        return sum(known), best - self.earned, self.hedge.bound(known, self.delay_cost)


class ThroughSession:
    """The public engine, with its own words for the same figures."""

    def __init__(self, spec: sa.SessionSpec) -> None:
        self.session = sa.Session(spec)

    def decide(self, t: int, profile: tuple[int, ...]) -> Mix:
        forecasts = {name: LEVELS[level] for name, level in zip(self.session.spec.experts, profile, strict=True)}
        action = self.session.decide(str(t), forecasts, format_time(t * 1_000_000))
        return tuple(enumerate(action.strategy.values()))

    def learn(self, t: int, state: int) -> None:
        self.session.learn(str(t), state, format_time(t * 1_000_000))

    def measured(self) -> tuple[int, float, float]:
        known = self.session.report().realized
        if known.contextual is None or known.expected_payoff is None or known.bound is None:
            raise RuntimeError("a hedge session reports all three")
        return known.states, known.contextual - known.expected_payoff, known.bound


DRIVERS: dict[str, Callable[[sa.SessionSpec], Driver]] = {"direct": Direct, "session": ThroughSession}
DELAYS: dict[str, Callable[[random.Random], int]] = {
    "none": lambda rng: 0,
    "fixed": lambda rng: 50,
    "heavy": lambda rng: int(10 * rng.paretovariate(1.2)),
}


@dataclass(frozen=True)
class Case:
    """What is played; `rounds` ascending, a figure for each."""

    driver: str
    states: str
    rate: str
    delay: str
    rounds: tuple[int, ...]


def play(case: Case, seed: int) -> list[dict[str, Any]]:
    """The checks of one seed, one for each number of rounds."""
    rng = random.Random(f"{seed}/{case.states}/{case.delay}")  # noqa: S311 # no secret
    chances = {e: rng.random() for e in PROFILES}
    fields = {"feedback": "state", "policy": "hedge", "missing": "reject", "schedule": {"growth": 1.0}}
    experts = {name: {"levels": LEVELS} for name in ("x", "y")}
    horizon = case.rounds[-1] if case.rate == "horizon" else None
    spec = sa.SessionSpec.from_dict(
        {"session": "benchmark", "experts": experts, "actions": ACTIONS, "horizon": horizon, **fields}
    )
    driver, payoffs = DRIVERS[case.driver](spec), tuple(spec.actions.values())
    tops = [max(u[s] for u in payoffs) for s in (0, 1)]
    due: list[tuple[int, int, int]] = []
    checks = []
    for t in range(1, case.rounds[-1] + 1):
        profile = rng.choice(PROFILES)
        mix = driver.decide(t, profile)
        state = int(rng.random() < chances[profile])
        if case.states == "adversarial":
            behind = [tops[s] - sum([p * payoffs[a][s] for a, p in mix]) for s in (0, 1)]
            state = int(behind[1] > behind[0])
        heapq.heappush(due, (t + DELAYS[case.delay](rng), t, state))
        while due and due[0][0] <= t:
            _, then, known = heapq.heappop(due)
            driver.learn(then, known)
        if t in case.rounds:
            states, regret, bound = driver.measured()
            below = regret <= bound
            checks.append(
                {"rounds": t, "seed": seed, "known": states, "regret": regret, "bound": bound, "below": below}
            )
    return checks


def cases(rounds: int) -> Iterator[Case]:
    """All that is played: a horizon's rate needs a game of its own for each number of rounds."""
    for driver, states, delay in itertools.product(DRIVERS, ("random", "adversarial"), DELAYS):
        most = rounds if driver == "direct" else rounds // 10
        sizes = tuple(10**k for k in range(2, 10) if 10**k <= most) or (most,)
        yield Case(driver, states, "anytime", delay, sizes)
        for size in sizes if driver == "direct" else sizes[-1:]:
            yield Case(driver, states, "horizon", delay, (size,))


def summary(case: Case, checks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The checks of a case at one number of rounds, all seeds, and the seed that comes closest to its bound."""
    worst = max(checks, key=lambda c: c["regret"] / c["bound"] if c["bound"] else 0.0)
    named = {name: value for name, value in asdict(case).items() if name != "rounds"}
    return {
        **named,
        "rounds": checks[0]["rounds"],
        "worst_seed": worst["seed"],
        "regret": worst["regret"],
        "bound": worst["bound"],
        "below": all(c["below"] for c in checks),
        "checks": [{name: value for name, value in c.items() if name != "rounds"} for c in checks],
    }


def measure(rounds: int, seeds: int) -> list[dict[str, Any]]:
    """Every case at every number of rounds."""
    found = []
    with ProcessPoolExecutor() as pool:
        games = [(case, [pool.submit(play, case, seed) for seed in range(seeds)]) for case in cases(rounds)]
        for case, futures in games:
            found += [summary(case, checks) for checks in zip(*[f.result() for f in futures], strict=True)]
    return found


def draw(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Regret and bound, over the rounds, of the seed that comes closest to it; one panel for states and rate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    kinds = itertools.product(("random", "adversarial"), ("anytime", "horizon"))
    for axes, (states, rate) in zip(panels.flat, kinds, strict=True):
        for colour, delay in zip(("C0", "C1", "C2"), DELAYS, strict=True):
            key = ("direct", states, rate, delay)
            part = [r for r in rows if (r["driver"], r["states"], r["rate"], r["delay"]) == key]
            at, regret = [r["rounds"] for r in part], [r["regret"] for r in part]
            axes.loglog(at, regret, color=colour, marker="o", label=f"delay: {delay}")
            axes.loglog(at, [r["bound"] for r in part], color=colour, linestyle="--")
        axes.set_title(f"{states} states, {rate} rate")
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    figure.supxlabel("rounds")
    figure.supylabel("contextual regret (solid) and its bound (dashed), worst seed")
    figure.savefig(path)


def main() -> None:
    """Measure, and print a line a row or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100_000, help="at most, in powers of ten")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print JSON, every seed's check in it")
    parser.add_argument("--plot", metavar="FILE", help="draw a figure (needs matplotlib)")
    parser.add_argument("--smoke", action="store_true", help="1,000 rounds and two seeds")
    args = parser.parse_args()
    rows = measure(1000, 2) if args.smoke else measure(args.rounds, args.seeds)
    below = all(row["below"] for row in rows)
    if args.plot:
        draw(rows, args.plot)
    if args.json:
        print(json.dumps({"below": below, "rows": rows}))
    else:
        print(f"{'driver':8} {'states':12} {'rate':8} {'delay':6} {'rounds':>7}   regret    bound  below")
        for r in rows:
            head = f"{r['driver']:8} {r['states']:12} {r['rate']:8} {r['delay']:6} {r['rounds']:7}"
            print(f"{head} {r['regret']:8.2f} {r['bound']:8.2f}  {r['below']}")
    raise SystemExit(not below)


if __name__ == "__main__":
    main()
