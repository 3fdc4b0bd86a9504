"""Draws the pictures of docs/concepts.md into docs/pictures: `python docs/pictures.py`, with matplotlib (extra `test`).

Everything drawn is computed here by the package itself, on worlds whose truth is known.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

import stream_agg as sa
from stream_agg.events import Action, Forecast, RuleRecord, State

HOME = Path(__file__).with_name("pictures")
BLUE, ORANGE, GREEN, GREY = "#0b5cad", "#b3500b", "#17795a", "#6b7480"
SECOND_US = 1_000_000

THIRDS: dict[str, Any] = {
    "session": "thirds",
    "experts": {"one": {"levels": [1 / 3, 2 / 3]}, "two": {"levels": [1 / 3, 2 / 3]}},
    "actions": {"stay": [1, 0], "go": [0, 1]},
}
PATTERN = {(1 / 3, 2 / 3): 1, (1 / 3, 1 / 3): 1, (2 / 3, 1 / 3): 1}
"""How often each joint report comes: one calibrated chance of the event is left for each."""

WIDE: dict[str, Any] = {
    "session": "wide",
    "experts": {"ecmwf": {"levels": [1 / 3, 2 / 3]}, "gfs": {"levels": [1 / 6, 3 / 4]}},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
}
SIGNALS = {
    "ecmwf": {1 / 3: (2 / 3, 1 / 3), 2 / 3: (1 / 3, 2 / 3)},
    "gfs": {1 / 6: (5 / 7, 1 / 7), 3 / 4: (2 / 7, 6 / 7)},
}
"""expert -> level -> its chance where the event does not happen, and where it does: Example 2 of the paper."""

Round = tuple[dict[str, float], int]


def wide() -> dict[tuple[float, float], tuple[int, float]]:
    """profile -> (its weight of 42, the true chance). Prior 1/2, signals independent given the event."""
    found = {}
    for a, (a0, a1) in SIGNALS["ecmwf"].items():
        for b, (b0, b1) in SIGNALS["gfs"].items():
            zero, one = a0 * b0 / 2, a1 * b1 / 2
            found[a, b] = (round(42 * (zero + one)), one / (zero + one))
    return found


def thirds(rng: random.Random) -> Iterator[Round]:
    """Rounds of the world of `PATTERN`: two calibrated experts whose disagreement says more than their mean."""
    while True:
        one, two = rng.choice(list(PATTERN))
        low, _ = sa.posterior_range(sa.SessionSpec.from_dict(THIRDS), PATTERN, (one, two))
        yield {"one": one, "two": two}, int(rng.random() < low)


def noisy(rng: random.Random) -> Iterator[Round]:
    """Rounds where five experts see one chance, each with an error of its own: their mean is a good forecast."""
    while True:
        chance = rng.random()
        yield {f"x{i}": min(max(rng.gauss(chance, 0.2), 0.0), 1.0) for i in range(5)}, int(rng.random() < chance)


NOISY: dict[str, Any] = {
    "session": "noisy",
    "experts": {f"x{i}": {"levels": 11} for i in range(5)},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
}


def payoffs(spec: Mapping[str, Any], rounds: Sequence[Round]) -> dict[str, list[float]]:
    """way to decide -> the payoff of its mixed action in every round; each state is known before the next forecast."""
    actions: Mapping[str, Sequence[float]] = spec["actions"]
    found: dict[str, list[float]] = {"mean forecast": []}
    for told, state in rounds:
        mean = sum(told.values()) / len(told)
        best = max(actions.values(), key=lambda u: (1 - mean) * u[0] + mean * u[1])
        found["mean forecast"].append(best[state])
    for policy in ("robust", "hybrid"):
        session = sa.Session(sa.SessionSpec.from_dict({**spec, "feedback": "state", "policy": policy}))
        found[policy] = []
        for t, (told, state) in enumerate(rounds):
            action = session.forecast(Forecast(session.spec.session, str(t), t * SECOND_US, told))[-1]
            assert isinstance(action, Action)  # noqa: S101 # the last output of a forecast
            found[policy].append(sum(p * actions[name][state] for name, p in action.strategy.items()))
            session.state(State(session.spec.session, str(t), t * SECOND_US, state))
    return found


def gaps(rounds: int) -> tuple[list[float], list[int]]:
    """The gap that each action carries, and the rounds at which the rule was solved anew, in the noisy world."""
    session, feed = sa.Session(sa.SessionSpec.from_dict(NOISY)), noisy(random.Random(3))  # noqa: S311 # no secret
    found, solved = [], []
    for t in range(rounds):
        for output in session.forecast(Forecast("noisy", str(t), t * SECOND_US, next(feed)[0])):
            if isinstance(output, RuleRecord):
                solved.append(t)
            elif isinstance(output, Action):
                found.append(output.rule.gap if output.rule.gap is not None else float("nan"))
    return found, solved


def draw_joint(figure: Figure) -> None:
    """What calibration leaves of each joint report, beside the mean."""
    axes = figure.subplots()
    spec = sa.SessionSpec.from_dict(THIRDS)
    for k, profile in enumerate(PATTERN):
        low, high = sa.posterior_range(spec, PATTERN, profile)
        axes.plot([k, k], [low, high], "_", color=BLUE, markersize=24, markeredgewidth=5)
        axes.plot(k, sum(profile) / 2, "D", color=ORANGE, markersize=8)
        axes.plot([k - 0.16, k + 0.16], profile, "o", color=GREY, markersize=7, fillstyle="none")
    axes.set_xticks(range(3), [f"one says {_third(a)},\ntwo says {_third(b)}" for a, b in PATTERN])
    axes.set_ylabel("chance of the event")
    _key(axes, "what each says", "their mean", "the only calibrated chance")


def draw_range(figure: Figure) -> None:
    """The interval that calibration leaves, the truth in it, and what the rule does."""
    axes, counts = figure.subplots(), {profile: weight for profile, (weight, _) in wide().items()}
    spec = sa.SessionSpec.from_dict(WIDE)
    rule = sa.solve(spec, counts)
    names = []
    for k, (profile, (weight, truth)) in enumerate(wide().items()):
        low, high = sa.posterior_range(spec, counts, profile)
        axes.plot([k, k], [low, high], color=BLUE, linewidth=12, alpha=0.35, solid_capstyle="butt")
        axes.plot(k, truth, "_", color=GREEN, markersize=26, markeredgewidth=3)
        axes.plot(k, sum(profile) / 2, "D", color=ORANGE, markersize=8)
        prepare = rule.strategy(profile)["prepare"]
        names.append(f"ecmwf {profile[0]:.2f}, gfs {profile[1]:.2f}\n{weight}/42 of the rounds\nprepare: {prepare:.0%}")
    axes.axhline(1 / 4, color=GREY, linestyle=":")
    axes.text(3.45, 0.27, "prepare from 1/4 on", color=GREY, ha="right")
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylabel("chance of the event")
    handles = [
        axes.plot([], [], color=BLUE, linewidth=8, alpha=0.35)[0],
        axes.plot([], [], "_", color=GREEN, markeredgewidth=3, markersize=14)[0],
        axes.plot([], [], "D", color=ORANGE)[0],
    ]
    axes.legend(handles, ["what calibration allows", "the truth, unknown to the rule", "mean forecast"], frameon=False)


def draw_gap(figure: Figure) -> None:
    """The gap between solves."""
    axes, (found, solved) = figure.subplots(), gaps(250)
    axes.plot(range(len(found)), found, color=BLUE, linewidth=1.2, label="gap that the action carries")
    label = f"rule solved anew: {len(solved)} times in {len(found)} rounds"
    axes.plot(solved, [found[t] for t in solved], ".", color=ORANGE, label=label, clip_on=False)
    limit = [0.1 * 3 / t**0.5 for t in range(1, len(found))]
    axes.plot(range(1, len(found)), limit, ":", color=GREY, label="limit of the default schedule")
    axes.set(xlabel="rounds", ylabel="payoff per round", xlim=(0, len(found)), ylim=(0, 0.12))
    axes.legend(frameon=False, loc="upper right")


def draw_hybrid(figure: Figure) -> None:
    """Running means of payoff in two worlds."""
    worlds: list[tuple[str, Mapping[str, Any], Callable[[random.Random], Iterator[Round]]]] = [
        ("The joint pattern says more than the mean", THIRDS, thirds),
        ("The mean is a good forecast", NOISY, noisy),
    ]
    for axes, (title, spec, feed) in zip(figure.subplots(1, 2), worlds, strict=True):
        played = worlds_played(spec, feed)
        for name, color in (("mean forecast", ORANGE), ("robust", BLUE), ("hybrid", GREEN)):
            means = running(played[name])
            at = range(20, len(means), 10)
            axes.plot(at, [means[t] for t in at], color=color, label=f"{name}: {means[-1]:.3f}")
        axes.set_title(title)
        axes.set(xlabel="rounds", ylabel="payoff per event", xscale="log")
        axes.legend(frameon=False, loc="upper center", ncols=3, bbox_to_anchor=(0.5, -0.16), fontsize="small")


def worlds_played(
    spec: Mapping[str, Any], feed: Callable[[random.Random], Iterator[Round]], rounds: int = 3000
) -> dict[str, list[float]]:
    """`payoffs` over the first rounds of a world, always the same."""
    made = feed(random.Random(1))  # noqa: S311 # no secret
    return payoffs(spec, [next(made) for _ in range(rounds)])


def running(values: Sequence[float]) -> list[float]:
    """Mean of the first, the first two, ..."""
    total, found = 0.0, []
    for n, value in enumerate(values, 1):
        total += value
        found.append(total / n)
    return found


def _third(level: float) -> str:
    return f"{round(3 * level)}/3"


def _key(axes: Any, told: str, mean: str, only: str) -> None:
    handles = [
        axes.plot([], [], "o", color=GREY, fillstyle="none")[0],
        axes.plot([], [], "D", color=ORANGE)[0],
        axes.plot([], [], "_", color=BLUE, markeredgewidth=4, markersize=16)[0],
    ]
    axes.legend(handles, [told, mean, only], frameon=False, loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.13))
    axes.set(ylim=(-0.05, 0.85), xlim=(-0.5, 2.5))


PICTURES: dict[str, tuple[Callable[[Figure], None], tuple[float, float]]] = {
    "joint": (draw_joint, (7.0, 3.6)),
    "range": (draw_range, (8.0, 4.0)),
    "gap": (draw_gap, (7.0, 3.6)),
    "hybrid": (draw_hybrid, (9.0, 3.8)),
}


def main() -> None:
    """Draw all."""
    mpl.rcParams.update({"svg.hashsalt": "stream_agg", "svg.fonttype": "path", "font.size": 10})
    HOME.mkdir(exist_ok=True)
    for name, (draw, size) in PICTURES.items():
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        for axes in figure.axes:
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(HOME / f"{name}.svg", metadata={"Date": None})
        print(HOME / f"{name}.svg")


if __name__ == "__main__":
    main()
