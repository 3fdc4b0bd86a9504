"""A made-up feed whose truth is known: conditionally independent, calibrated experts. No clock, no global randomness.

The world is Example 2 of the paper, lived by several sessions at once. In each, the state of
an event is 1 with the prior's probability; given the state, each expert sees a signal of its own and reports the
posterior it implies. The prior wanders over a few values, so that the posteriors an expert can report are a finite
set: its levels. A report is exactly calibrated at every level, however the prior wanders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from heapq import heappop, heappush
from random import Random
from typing import Any, Literal

from stream_agg.events import format_time

Event = tuple[Literal["sessions", "forecasts", "states"], str, dict[str, Any]]
"""(topic, session, record)."""

Likelihood = Sequence[tuple[Fraction, Fraction]]
"""For each signal its chance in state 0 and in state 1."""

HOUR_US = 3_600_000_000

_NAMES = ("paris-rain", "oslo-frost", "lima-fog", "osaka-wind", "quito-hail", "accra-heat", "perth-fire", "delhi-smog")


def _likelihood(denominator: int, *numerators: tuple[int, int]) -> Likelihood:
    return tuple((Fraction(zero, denominator), Fraction(one, denominator)) for zero, one in numerators)


EXPERTS: dict[str, Likelihood] = {
    # The two of the example, then a weak one and a sharp one of three signals.
    "ecmwf": _likelihood(3, (2, 1), (1, 2)),
    "gfs": _likelihood(7, (5, 1), (2, 6)),
    "icon": _likelihood(5, (3, 2), (2, 3)),
    "local": _likelihood(8, (5, 1), (2, 2), (1, 5)),
}

PRIORS = tuple(Fraction(k, 12) for k in range(3, 10))
"""The values a wandering prior takes: around the example's 1/2, never so sure that the experts stop mattering."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One session: its randomness, the prior now (an index of `priors`) and what each expert reports by signal."""

    name: str
    random: Random
    priors: Sequence[Fraction]
    experts: Sequence[str]

    def spec(self) -> dict[str, Any]:
        levels = {name: sorted({p for q in self.priors for p in _posteriors(name, q)}) for name in self.experts}
        return {
            "session": self.name,
            "experts": {name: {"levels": values} for name, values in levels.items()},
            "actions": {"stay": [1.0, 0.0], "prepare": [0.0, 3.0]},
            "feedback": "state",
            "policy": "robust",
            "schedule": {"growth": 0.05},
        }

    def draw(self, prior: Fraction) -> tuple[int, dict[str, float]]:
        """The state of an event and the experts' reports on it."""
        state = int(self.random.random() < prior)
        reports = {}
        for name in self.experts:
            chances = [pair[state] for pair in EXPERTS[name]]
            reports[name] = _posteriors(name, prior)[_pick(chances, self.random.random())]
        return state, reports


def world(
    seed: int,
    sessions: int,
    start_us: int,
    *,
    every_us: int = HOUR_US,
    delay_us: int = 24 * HOUR_US,
    drift: float = 0.01,
    prior: Fraction = Fraction(1, 2),
) -> Iterator[Event]:
    """An endless feed: the spec of every session, then forecasts and states in order of event time.

    Each session has a forecast every `every_us` microseconds, the sessions taking turns. A state is known after a
    random delay of mean about `delay_us`, at least 1 microsecond and at most ten means. Before each event a prior takes
    a step to a neighbouring value of `PRIORS` with probability `drift`; with drift 0 it stays at `prior`. The first
    session has the two experts of the example, the others two to four. A session's part of the feed is the same
    however many others there are, but for the times. `ValueError` for arguments that make no feed.
    """
    if sessions < 1 or every_us < sessions or delay_us < 1 or not 0 <= drift <= 1 or not 0 < prior < 1:
        raise ValueError(
            "expected sessions >= 1, every_us >= sessions, delay_us >= 1, drift in [0, 1], prior in (0, 1)"
        )
    priors = tuple(sorted({*PRIORS, prior})) if drift else (prior,)
    places = [_place(seed, i, priors) for i in range(sessions)]
    return _feed(places, [priors.index(prior)] * sessions, start_us, every_us, delay_us, drift)


def _place(seed: int, index: int, priors: Sequence[Fraction]) -> _Place:
    again, which = divmod(index, len(_NAMES))
    name = _NAMES[which] + (f"-{again + 1}" if again else "")
    # Seeded by text: the same draws on every platform and for every number of sessions.
    return _Place(name, Random(f"{seed}/{name}"), priors, tuple(EXPERTS)[: 2 + index % 3])  # noqa: S311 # no secret


def _feed(
    places: Sequence[_Place], at: list[int], start_us: int, every_us: int, delay_us: int, drift: float
) -> Iterator[Event]:
    for place in places:
        yield "sessions", place.name, place.spec()
    waiting: list[tuple[int, int, str, str, int]] = []
    turn = 0
    while True:
        now_us = start_us + turn * every_us // len(places)
        while waiting and waiting[0][0] <= now_us:
            time_us, _, name, event, state = heappop(waiting)
            yield "states", name, {"session": name, "event": event, "time": format_time(time_us), "state": state}
        which = turn % len(places)
        place = places[which]
        at[which] = _wander(at[which], len(place.priors), drift, place.random)
        state, reports = place.draw(place.priors[at[which]])
        event = f"{turn // len(places) + 1:06d}"
        record = {"session": place.name, "event": event, "time": format_time(now_us), "forecasts": reports}
        yield "forecasts", place.name, record
        # An exponential delay from random() alone, the one method whose numbers Python promises to keep.
        later = min(-math.log(1.0 - place.random.random()), 10.0)
        heappush(waiting, (now_us + 1 + int(later * (delay_us - 1)), turn, place.name, event, state))
        turn += 1


def _wander(at: int, values: int, drift: float, random: Random) -> int:
    """The next index of a lazy walk that stays where a step would lead out."""
    if random.random() >= drift:
        return at
    return min(max(at + (1 if random.random() < 0.5 else -1), 0), values - 1)


@cache
def _posteriors(expert: str, prior: Fraction) -> tuple[float, ...]:
    """The chance of state 1 after each signal, by Bayes' rule, in fractions, so that equal levels are equal numbers."""
    return tuple(float(prior * one / (prior * one + (1 - prior) * zero)) for zero, one in EXPERTS[expert])


def _pick(chances: Sequence[Fraction], u: float) -> int:
    for i, chance in enumerate(chances[:-1]):
        u -= chance
        if u < 0:
            return i
    return len(chances) - 1
