"""Robust regret of PRA in worlds whose distribution of profiles is known, against the bound of its theorem.

    python benchmarks/regret.py [--rounds 100000] [--seeds 10] [--schedule '{"growth": 0.05}'] [--json] [--plot FILE]

Profiles are drawn independently from P and fed to a session. Three regrets are taken at every T, one a seed:
expected  T RMM(P) - min_{rho in C(P)} sum_t sum_e P(e) x_t(e).v_rho(e), every round's rule at all profiles: Definition
          "Robust Regret" by its Lemma "Iterated Expectation Expansion". The Definition averages over seeds inside the
          minimum, so the mean over seeds of these is at least that regret. Never negative.
played    T RMM(P) - min_{rho in C(P)} sum_t x_t(e_t).v_rho(e_t): at the profiles that came, from the session's tallies.
          Which came is chance, worth sqrt(T) to either side: it can be negative, though the rule is never better than
          the benchmark.
reported  the session's own figure: the same with the empirical distribution, penalised, in place of P and C(P).
The bound is that of a solve a round, which the schedule here does without; it says something only where it is less than
2 U T, more than which nobody can lose.
A slope is that of a line through log regret in log T, by least squares; its error is that of the fit. There is no log
of a negative regret: below a floor of U / 100 it counts as the floor, and `floored` says at how many T that was.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from _figure import Row, options, show
from _truth import Floats, Truth

import stream_agg as sa
from stream_agg.events import Forecast

SLOPE = 0.55
"""sqrt(T) is 1/2; the rest is for fitting a line to seven points."""

SLOPES = {"expected": "mean", "reported": "mean", "played": "largest"}
"""Kind of regret -> of which of the seeds the slope is claimed. The mean of what was played is chance about zero."""


@dataclass(frozen=True)
class World:
    """A distribution of profiles of exactly calibrated experts, and what actions pay: name -> (state 0, state 1)."""

    name: str
    actions: Mapping[str, tuple[float, float]]
    levels: tuple[tuple[float, ...], ...]
    chances: Floats

    @property
    def truth(self) -> Truth:
        return Truth(self.levels, np.array(list(self.actions.values())), self.chances)

    @property
    def largest(self) -> float:
        """U."""
        return max(abs(u) for pair in self.actions.values() for u in pair)

    def spec(self, gamma: float, schedule: Mapping[str, float]) -> sa.SessionSpec:
        record = {
            "session": self.name,
            "experts": {f"expert {i}": {"levels": z} for i, z in enumerate(self.levels, 1)},
            "actions": self.actions,
            "gamma": gamma,
            "schedule": schedule,
            "missing": "reject",  # nobody is silent, so that m is that of the paper
            "window": 1,  # no states come: nothing to remember
        }
        return sa.SessionSpec.from_dict(record)


def example() -> World:
    """The paper's example with conditional independence: prior 1/2, one expert of 1/3 or 2/3, one of 1/6 or 3/4."""
    given_0 = np.outer([2 / 3, 1 / 3], [5 / 7, 2 / 7])
    given_1 = np.outer([1 / 3, 2 / 3], [1 / 7, 6 / 7])
    levels = ((1 / 3, 2 / 3), (1 / 6, 3 / 4))
    return World("the paper's example", {"a1": (1, 0), "a2": (0, 3)}, levels, ((given_0 + given_1) / 2).ravel())


def correlated(seed: int = 0, weathers: int = 6, experts: int = 3, signals: int = 4) -> World:
    """Experts who see signals of one hidden weather, each reporting the chance of state 1 that its signal implies:
    calibrated exactly, and correlated given the state. The weathers and signals are drawn from `seed`."""
    random = np.random.default_rng(seed)
    weather, rain = random.dirichlet(np.ones(weathers)), random.random(weathers)
    sees = random.dirichlet(np.ones(signals), (experts, weathers))  # chance of every signal, by expert and weather
    joint, levels = weather[:, None], []  # (weathers, profiles of the experts so far)
    for signal in sees:
        level = (weather * rain) @ signal / (weather @ signal)
        order = np.argsort(level)
        levels.append(tuple(level[order].tolist()))
        joint = (joint[:, :, None] * signal[:, None, order]).reshape(weathers, -1)
    actions = {"stay": (1.0, 0.0), "wait": (0.6, 1.5), "prepare": (0.0, 3.0)}
    return World("correlated experts", actions, tuple(levels), joint.sum(axis=0))


def play(world: World, spec: sa.SessionSpec, seed: int, rounds: Sequence[int]) -> list[Row]:
    """One long session; its regrets after each of `rounds`, ascending."""
    truth = world.truth
    profiles, value = truth.profiles, truth.robust()
    reports = [dict(spec.reports(e)) for e in profiles]
    drawn = np.random.default_rng(seed).choice(len(profiles), rounds[-1], p=world.chances / world.chances.sum())
    lines = np.array([(u0, u1 - u0) for u0, u1 in world.actions.values()])
    session, rule = sa.Session(spec), None
    now = expected = np.zeros((len(profiles), 2))
    found: list[Row] = []
    for t, at in enumerate(drawn.tolist(), 1):
        session.forecast(Forecast(spec.session, str(t), t, reports[at]))
        if session.rule is not rule:  # the rule of this round: solved before it was counted
            rule = session.rule
            mixes = [sum(p * lines[a] for a, p in rule.mix(e)) for e in profiles]
            now = world.chances[:, None] * np.array(mixes)
        expected = expected + now
        if t == rounds[len(found)]:
            tallies = [session.tallies.get(e) for e in profiles]
            played = np.array([(y.payoff0, y.slope) if y else (0.0, 0.0) for y in tallies])
            found.append(
                {
                    "rounds": t,
                    "expected": t * value - truth.worst(*expected.T),
                    "played": t * value - truth.worst(*played.T),
                    "reported": session.report().robust.regret,
                    "solves": session.counters.rule_version,
                }
            )
    return found


def bound(world: World, gamma: float, rounds: int) -> float:
    """Theorem "online_regret", epsilon = 0, with the constants of its proof."""
    each = world.largest + len(world.levels) * gamma
    return 4 * each * math.sqrt((len(world.chances) - 1) * rounds) + 2 * each


def growth(rounds: Sequence[int], regrets: Sequence[float], floor: float) -> dict[str, float]:
    """Slope of log max(regret, floor) in log T with its standard error, and how many regrets were below the floor."""
    x, y = np.log(rounds), np.log(np.maximum(regrets, floor))
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    left = y - y.mean() - slope * x
    error = math.sqrt(float(left @ left) / (len(x) - 2) / float(x @ x))
    return {"slope": slope, "error": error, "floored": int(np.sum(np.array(regrets) < floor))}


def measure(world: World, schedule: Mapping[str, float], rounds: Sequence[int], seeds: int) -> dict[str, Any]:
    """All figures of one world."""
    gamma = world.truth.enough()
    runs = [play(world, world.spec(gamma, schedule), seed, rounds) for seed in range(seeds)]
    found = {kind: np.array([[row[kind] for row in run] for run in runs]) for kind in SLOPES}
    floor = world.largest / 100
    return {
        "world": world.name,
        "profiles": len(world.chances),
        "largest_payoff": world.largest,
        "gamma": gamma,
        "value": world.truth.robust(),
        "solves": [run[-1]["solves"] for run in runs],
        "rounds": list(rounds),
        "bound": [bound(world, gamma, t) for t in rounds],
        "regret": {kind: regrets.tolist() for kind, regrets in found.items()},
        "growth": {
            kind: {
                "mean": growth(rounds, regrets.mean(axis=0), floor),
                "largest": growth(rounds, regrets.max(axis=0), floor),
            }
            for kind, regrets in found.items()
        },
    }


def claims(worlds: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """What the theorem promises, and the rate; three T are too few to tell the rate of what was played from chance."""
    held = {}
    for world in worlds:
        name, rounds = world["world"], world["rounds"]
        for kind, regrets in world["regret"].items():
            below = bool(np.all(np.array(regrets) < world["bound"]))
            held[f"{name}: {kind} regret below the bound at every T for every seed"] = below
        for kind, of in SLOPES.items():
            if kind != "played" or len(rounds) > 3:
                slope = world["growth"][kind][of]["slope"]
                held[f"{name}: slope of {kind} regret, {of} of the seeds, at most {SLOPE}"] = slope <= SLOPE
    return held


def tables(worlds: Sequence[Mapping[str, Any]]) -> dict[str, list[Row]]:
    """Regrets by T and their slopes, for every world."""
    found: dict[str, list[Row]] = {}
    for world in worlds:
        lines: list[dict[str, Any]] = [{"T": t} for t in world["rounds"]]
        for kind, regrets in world["regret"].items():
            for line, column in zip(lines, np.array(regrets).T, strict=True):
                line |= {f"{kind}: mean": float(column.mean()), f"{kind}: largest": float(column.max())}
        for line, limit in zip(lines, world["bound"], strict=True):
            line["bound"] = limit
        about = f"{world['profiles']} profiles, gamma {world['gamma']:g}, RMM {world['value']:.6f} a round"
        found[f"{world['world']} ({about}): robust regret"] = [*lines]
        found[f"{world['world']}: slopes"] = [
            {"regret": kind, "of the seeds": of, **fit}
            for kind, fits in world["growth"].items()
            for of, fit in fits.items()
        ]
    return found


def draw(figure: Any, found: Mapping[str, Any]) -> None:
    """A panel a world, both axes logarithmic: every seed faint, the mean of the seeds strong, bound and sqrt(T)."""
    panels = figure.subplots(1, len(found["worlds"]), sharey=True, squeeze=False)[0]
    for panel, world in zip(panels, found["worlds"], strict=True):
        t = np.array(world["rounds"])
        for kind, colour in (("expected", "C0"), ("played", "C1"), ("reported", "C2")):
            regrets = np.array(world["regret"][kind])
            shown = np.where(regrets > 0, regrets, np.nan)
            panel.plot(t, shown.T, color=colour, alpha=0.25, linewidth=0.8, marker=".", markersize=3)
            of = SLOPES[kind]
            fit = world["growth"][kind][of]
            label = f"{kind}, {of} of seeds: slope {fit['slope']:.2f} ± {fit['error']:.2f}"
            panel.plot(
                t,
                regrets.mean(axis=0) if of == "mean" else regrets.max(axis=0),
                color=colour,
                linewidth=2.2,
                label=label,
            )
        panel.plot(t, world["bound"], "k--", label="bound of the theorem")
        panel.plot(t, 2 * world["largest_payoff"] * t, color="k", linewidth=0.8, label="2 U T")
        panel.plot(t, np.sqrt(t), color="grey", linestyle=":", label=r"$\sqrt{T}$")
        panel.set(xscale="log", yscale="log", xlabel="T", title=f"{world['world']}, {world['profiles']} profiles")
        panel.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    panels[0].set_ylabel("robust regret (none drawn where negative)")


def main() -> int:
    """Measure, show, and say by the exit code whether all claims held."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=100_000, help="the largest T, at least 1000")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--schedule", type=json.loads, default={"growth": 0.05}, help="as in a session's spec, JSON")
    args = parser.parse_args()
    most, seeds = (1000, 3) if args.smoke else (args.rounds, args.seeds)
    rounds = [t for t in (round(10 ** (k / 2)) for k in range(4, 20)) if t <= most]
    if len(rounds) < 3 or seeds < 1:
        parser.error("--rounds of at least 1000 and one seed, or there is no slope")
    worlds = [measure(world, args.schedule, rounds, seeds) for world in (example(), correlated())]
    found = {"schedule": args.schedule, "seeds": seeds, "worlds": worlds, "claims": claims(worlds)}
    return show(args, found, tables(worlds), draw)


if __name__ == "__main__":
    sys.exit(main())
