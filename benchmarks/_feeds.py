"""Feeds for comparisons of policies: files of real forecasts with their delay, generated worlds, payoff sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import stream_agg as sa
from stream_agg.events import format_time, parse_duration
from stream_agg.replay.source import Row, Source

Floats = NDArray[np.float64]

PAYOFFS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "matching": {"no": (1.0, 0.0), "yes": (0.0, 1.0)},
    "costly miss": {"no": (1.0, 0.0), "yes": (2 / 3, 1.0)},
    "safe third": {"no": (1.0, 0.0), "wait": (0.7, 0.7), "yes": (0.0, 1.0)},
}
"""Be right; act from a chance of one fourth on, since a miss costs three times a false alarm; an action that pays the
same whatever happens, best between three and seven tenths. The best that can happen is always worth 1."""

DELAYS = {"flusight": "P7D"}
"""By the start of a file's name: how long after its row an outcome becomes public. Others are forecasts of one day."""

DAY_US = 86_400_000_000
START_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Feed:
    """Events in order, who forecasts, and how late outcomes are."""

    name: str
    experts: tuple[str, ...]
    rows: Sequence[Row]
    delay_us: int

    def spec(
        self, actions: Mapping[str, tuple[float, float]], levels: int | Mapping[str, Sequence[float]]
    ) -> sa.SessionSpec:
        """A session of it: equally spaced levels, or each expert's own."""
        alphabets = {e: {"levels": levels if isinstance(levels, int) else levels[e]} for e in self.experts}
        terms = {"feedback": "state", "policy": "robust"}
        return sa.SessionSpec.from_dict({"session": self.name, "experts": alphabets, "actions": actions, **terms})

    @property
    def told(self) -> Floats:
        """Forecasts as an array (rows, experts), nan for silence."""
        return np.array([[row.forecasts.get(e) for e in self.experts] for row in self.rows], dtype=np.float64)

    def retold(self, told: Floats, experts: Sequence[str]) -> Feed:
        """The same events with other forecasts, nan for silence."""
        reports = [
            {e: None if np.isnan(p) else p for e, p in zip(experts, line, strict=True)} for line in told.tolist()
        ]
        rows = [row._replace(forecasts=said) for row, said in zip(self.rows, reports, strict=True)]
        return Feed(self.name, tuple(experts), rows, self.delay_us)


def folder(given: str | None) -> list[Path]:
    """The files of forecasts in a folder: the one given, that of STREAM_AGG_DATA, or a `data` folder beside the
    project; none where there is none."""
    beside = sorted(Path(__file__).resolve().parent.parent.parent.glob("*/data"))
    named = given or os.environ.get("STREAM_AGG_DATA")
    places = [Path(named)] if named else beside
    return [path for place in places for path in sorted((*place.glob("*.csv"), *place.glob("*.csv.gz")))]


def real(path: Path, rows: int | None = None) -> Feed:
    """The first `rows` rows of a file, with its delay."""
    source, name = Source(path), path.name.split(".")[0]
    delay = next((d for start, d in DELAYS.items() if name.startswith(start)), "P1D")
    return Feed(name, source.experts, list(islice(source.rows(), rows)), parse_duration(delay))


def worlds(rounds: int, seed: int) -> Iterator[Feed]:
    """Worlds that nothing was tuned on: five forecasters of a chance that varies from day to day, ten events a day,
    outcomes the day after. What they say is drawn anew for every seed; how, the names tell."""
    for name, tell in WORLDS.items():
        random = np.random.default_rng([seed, *name.encode()])
        days = (np.arange(rounds) // 10)[:, None]
        weather = 0.7 * random.standard_normal((rounds // 10 + 1, 1))[days[:, 0]]
        logit = -0.5 + weather + 1.2 * random.standard_normal((rounds, 1))
        told = tell(random, logit, days[:, 0] / (days[-1, 0] + 1))
        outcomes = random.random(rounds) < _chance(logit[:, 0])
        experts = tuple(f"expert {i + 1}" for i in range(told.shape[1]))
        feed = Feed(f"{name}, seed {seed}", experts, _blank(outcomes), DAY_US)
        yield feed.retold(told, experts)


def _calibrated(random: np.random.Generator, logit: Floats, when: Floats) -> Floats:
    """Every expert sees the chance through a fog of its own and says what that implies."""
    return _seen(random, logit, [0.6, 0.8, 1.0, 1.2, 1.5])


def _overconfident(random: np.random.Generator, logit: Floats, when: Floats) -> Floats:
    """Log-odds twice what the signal is worth."""
    return _chance(2.0 * _odds(_seen(random, logit, [0.6, 0.8, 1.0, 1.2, 1.5])))


def _timid(random: np.random.Generator, logit: Floats, when: Floats) -> Floats:
    """Log-odds half of what the signal is worth: an average is more timid still."""
    return _chance(0.5 * _odds(_seen(random, logit, [0.6, 0.8, 1.0, 1.2, 1.5])))


def _biased(random: np.random.Generator, logit: Floats, when: Floats) -> Floats:
    """Each errs to one side, by up to one unit of log-odds."""
    return _chance(_odds(_seen(random, logit, [0.6, 0.8, 1.0, 1.2, 1.5])) + random.uniform(-1, 1, 5))


def _correlated(random: np.random.Generator, logit: Floats, when: Floats) -> Floats:
    """Four copy one source with little changes; the fifth looks for itself."""
    source = logit + 1.2 * random.standard_normal(logit.shape)
    near = source + 0.2 * random.standard_normal((len(logit), 4))
    return np.hstack([_chance(0.5 * near), _seen(random, logit, [0.6])])


def _changing(random: np.random.Generator, logit: Floats, when: Floats) -> Floats:
    """Half-way the best becomes the worst."""
    fogs = [0.3, 0.8, 1.0, 1.5, 3.0]
    return np.where(when[:, None] < 0.5, _seen(random, logit, fogs), _seen(random, logit, fogs[::-1]))


def _one_good(random: np.random.Generator, logit: Floats, when: Floats) -> Floats:
    """One sees well, four hardly anything, and those are sure of it."""
    return np.hstack([_seen(random, logit, [0.2]), _chance(2 * logit + 4 * random.standard_normal((len(logit), 4)))])


def _gaps(random: np.random.Generator, logit: Floats, when: Floats) -> Floats:
    """Calibrated, and silent by half, each over stretches of its own."""
    told = _seen(random, logit, [0.6, 0.8, 1.0, 1.2, 1.5])
    told[np.sin(2 * np.pi * (4 * when[:, None] + random.random(5))) > 0] = np.nan
    return told


WORLDS: Mapping[str, Callable[[np.random.Generator, Floats, Floats], Floats]] = {
    "calibrated": _calibrated,
    "overconfident": _overconfident,
    "timid": _timid,
    "biased": _biased,
    "correlated": _correlated,
    "changing": _changing,
    "one good": _one_good,
    "gaps": _gaps,
}


def _seen(random: np.random.Generator, logit: Floats, fogs: Sequence[float]) -> Floats:
    """The log-odds through normal fog, shrunk by what the fog takes from them: near enough to calibrated."""
    fog, spread = np.array(fogs), 1.93  # variance of the log-odds in `worlds`
    signal = logit + fog * random.standard_normal((len(logit), len(fogs)))
    shrunk = -0.5 + (signal + 0.5) * spread / (spread + fog**2)
    left = spread * fog**2 / (spread + fog**2)
    # The mean chance over what is left unknown is nearer to one half (MacKay 1992, the moderated output).
    return _chance(shrunk / np.sqrt(1 + np.pi * left / 8))


def _chance(logit: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-logit)))


def _odds(p: Floats) -> Floats:
    return np.asarray(np.log(p / (1 - p)))


def _blank(outcomes: NDArray[np.bool_]) -> list[Row]:
    rows = []
    for i, outcome in enumerate(outcomes.tolist()):
        time_us = START_US + i // 10 * DAY_US
        rows.append(Row(f"e{i}", format_time(time_us), time_us, int(outcome), {}))
    return rows
