"""The same events by every policy, by simple baselines and in hindsight: payoff per event, and how sure that is.

One pass: every policy is a session of its own that sees what the others see, outcomes as late as the file's rule says.
Payoffs are those of the mixed actions, over the events whose outcome is in the file: no luck of draws is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stream_agg.errors import ConfigError, InputError
from stream_agg.events import Action, Forecast, State
from stream_agg.replay.blocks import Blocks, Floats, Mean
from stream_agg.replay.source import Row, Step
from stream_agg.session.engine import Session
from stream_agg.spec import Policy, SessionSpec

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "hybrid": {"policy": "hybrid", "epsilon": 0.0},
    "robust": {"policy": "robust", "epsilon": 0.0},
    "robust, epsilon auto": {"policy": "robust", "epsilon": "auto"},
    "robust, epsilon measured": {"policy": "robust", "epsilon": "measured"},
    "hedge": {"policy": "hedge", "epsilon": 0.0},
    "logistic pool alone": {"policy": "hybrid", "pool": ("logistic",), "epsilon": 0.0},
    "recalibrated rule alone": {"policy": "hybrid", "pool": ("recalibrated",), "epsilon": 0.0},
}
"""What is compared, and how the specs differ: first the one that is judged, then the members of its pool that are not
among the baselines."""

MEAN, BEST = "mean forecast", "best expert"

Kind = Literal["policy", "baseline", "hindsight"]


@dataclass(frozen=True, slots=True)
class Line:
    """One way to decide. `payoff` per event; `over_mean` and `over_best`: what it is more than that of the mean
    forecast and of the best expert, paired."""

    name: str
    kind: Kind
    payoff: Mean
    over_mean: Mean
    over_best: Mean


@dataclass(frozen=True, slots=True)
class Comparison:
    """All lines over the same `events`, of `times` different times, in blocks of `block` of these."""

    events: int
    times: int
    block: int
    lines: tuple[Line, ...]

    def line(self, name: str) -> Line:
        """The line of that name."""
        return next(line for line in self.lines if line.name == name)

    def to_record(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def policies(spec: SessionSpec) -> dict[str, SessionSpec]:
    """The specs to compare by name: every policy of this version, and the spec's own epsilon if it is another one."""
    known = {name: changes for name, changes in POLICIES.items() if changes["policy"] in get_args(Policy)}
    found = {name: replace(spec, feedback="state", **changes) for name, changes in known.items()}
    if spec.epsilon not in {s.epsilon for s in found.values()}:
        found[f"robust, epsilon {spec.epsilon:g}"] = replace(spec, feedback="state", policy="robust")
    return found


def compare(
    feed: Iterable[Step], specs: Mapping[str, SessionSpec], progress: Callable[[int], None] = lambda rows: None
) -> Comparison:
    """Every spec, the baselines and hindsight on one feed; `ConfigError` where no event has an outcome."""
    rows, played = play(feed, specs, progress)
    if not rows:
        raise ConfigError("nothing to compare: no event with an outcome could be decided; leave --compare out")
    told: dict[str, tuple[Floats, Kind]] = {name: (payoffs, "policy") for name, payoffs in played.items()}
    others = _others(next(iter(specs.values())), rows)
    return summary(np.array([row.time_us for row in rows]), {**told, **others})


def play(
    feed: Iterable[Step], specs: Mapping[str, SessionSpec], progress: Callable[[int], None] = lambda rows: None
) -> tuple[list[Row], dict[str, Floats]]:
    """The rows with an outcome, and for every spec its payoff at each. The specs differ in how to decide, not in
    experts or actions; a row that a session refuses is left out for all."""
    sessions = {name: Session(spec) for name, spec in specs.items()}
    rows: list[Row] = []
    played: dict[str, list[float]] = {name: [] for name in specs}
    for step in feed:
        for row in step.forecasts:
            mixes = _decided(sessions, row)
            if mixes and row.outcome is not None:
                rows.append(row)
                for name, mix in mixes.items():
                    actions = specs[name].actions
                    played[name].append(sum(p * actions[a][row.outcome] for a, p in mix.items()))
        for event, outcome in step.states:
            for session in sessions.values():
                session.state(State(session.spec.session, event, step.time_us, outcome))
        progress(len(step.forecasts))
    return rows, {name: np.array(payoffs) for name, payoffs in played.items()}


def summary(times: NDArray[np.int64], series: Mapping[str, tuple[Floats, Kind]]) -> Comparison:
    """The comparison of payoff series, each of shape (events,), among them `MEAN` and `BEST`; times ascending."""
    blocks = Blocks(times)
    mean, best = series[MEAN][0], series[BEST][0]
    lines = tuple(
        Line(name, kind, blocks.mean(x), blocks.mean(x - mean), blocks.mean(x - best))
        for name, (x, kind) in series.items()
    )
    return Comparison(len(times), blocks.times, blocks.length, lines)


def _decided(sessions: Mapping[str, Session], row: Row) -> dict[str, Mapping[str, float]]:
    """The mixed actions at a row; nothing where it cannot be used."""
    mixes: dict[str, Mapping[str, float]] = {}
    for name, session in sessions.items():
        try:
            outputs = session.forecast(Forecast(session.spec.session, row.event, row.time_us, row.forecasts))
        except InputError:
            return {}
        mixes.update((name, output.strategy) for output in outputs if isinstance(output, Action))
    return mixes


def _others(spec: SessionSpec, rows: Sequence[Row]) -> dict[str, tuple[Floats, Kind]]:
    """Payoffs of the baselines, which act on a number as if it were the chance of state 1, and of hindsight.

    Forecasts are taken as given, not rounded to levels. An expert that is silent is counted as saying the mean of those
    who spoke, which flatters it; where nobody spoke, one half.
    """
    outcomes = np.array([row.outcome for row in rows])
    payoffs = np.array(list(spec.actions.values()), dtype=np.float64)
    told = np.array([[row.forecasts.get(name) for name in spec.experts] for row in rows], dtype=np.float64)
    spoke = ~np.isnan(told)
    told[~spoke.any(axis=1)] = 0.5
    mean = np.nanmean(told, axis=1)
    experts = np.where(np.isnan(told), mean[:, None], told)

    def trusting(p: Floats) -> Floats:
        values = np.multiply.outer(1 - p, payoffs[:, 0]) + np.multiply.outer(p, payoffs[:, 1])
        return np.asarray(payoffs[values.argmax(axis=1), outcomes])

    alone = {name: trusting(experts[:, i]) for i, name in enumerate(spec.experts)}
    profiles = np.array([spec.profile(row.forecasts) for row in rows])
    maps = [_best_map(profiles[:, [i]], outcomes, payoffs) for i in range(len(spec.experts))]
    return {
        MEAN: (trusting(mean), "baseline"),
        "median forecast": (trusting(np.asarray(np.nanmedian(told, axis=1))), "baseline"),
        **{f"expert:{name}": (x, "baseline") for name, x in alone.items()},
        BEST: (max(alone.values(), key=lambda x: float(x.sum())), "hindsight"),
        "best map of one expert's levels": (max(maps, key=lambda x: float(x.sum())), "hindsight"),
        "best map of profiles": (_best_map(profiles, outcomes, payoffs), "hindsight"),
    }


def _best_map(reports: NDArray[np.int64], outcomes: NDArray[np.int64], payoffs: Floats) -> Floats:
    """Payoffs of the best map from reports, shape (events, k), to actions: chosen knowing all outcomes."""
    groups = np.unique(reports, axis=0, return_inverse=True)[1].ravel()
    states = np.stack([np.bincount(groups, outcomes == state) for state in (0, 1)], axis=1)
    return np.asarray(payoffs[(states @ payoffs.T).argmax(axis=1)[groups], outcomes])
