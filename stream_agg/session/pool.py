"""What policy `hybrid` keeps: with an open decision, what its members would have played; for the session, what they
earned and learned. Values and their JSON; nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from stream_agg.learn.logistic import LogisticSums
from stream_agg.learn.squint import Ints, Regrets

Prices = tuple[tuple[float, ...], ...]
"""As `rule.Rule.prices`: by expert and level, a 0 at the end for silence."""


@dataclass(frozen=True, slots=True)
class Note:
    """What learning will need of a decision: a few hundred bytes, gone when its state is learned.

    `acts`: the action of each member that plays one for sure; `mixed`: for the others the gain in state 0 and 1;
    `regrets`: the sums of `learn.squint.Regrets` then; `reports` and `log_odds`: what the logistic pool was told, said.
    """

    acts: tuple[int, ...]
    mixed: tuple[tuple[float, float], ...]
    regrets: tuple[int, ...]
    reports: tuple[float | None, ...]
    log_odds: float

    def plain(self) -> list[Any]:
        """For JSON."""
        return [self.acts, self.mixed, self.regrets, self.reports, self.log_odds]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Note:
        """The inverse of `plain`."""
        acts, mixed, regrets, reports, log_odds = plain
        return cls(tuple(acts), tuple((g0, g1) for g0, g1 in mixed), tuple(regrets), tuple(reports), log_odds)


@dataclass(slots=True)
class Learned:
    """For the session: 4 sums for each of K members, and (n+1)(n+2)/2 + n+1 of the logistic pool of n experts.

    `gains`: each member's sum of gains. `states1`: how many of the states learned were 1. `tried`: the states known at
    the last look at recalibrated levels, `prices` what it found, None until it found some.
    """

    regrets: Regrets
    gains: Ints
    sums: LogisticSums
    states1: int = 0
    tried: int = 0
    prices: Prices | None = field(default=None)

    @property
    def states0(self) -> int:
        """How many of the states learned were 0."""
        return self.regrets.states - self.states1


def dump_sums(learned: Learned, members: Sequence[str]) -> bytes:
    """All that every state changes; the symmetric matrix by the rows of its upper triangle."""
    known, upper = learned.regrets, np.triu_indices(len(learned.sums.pull))
    columns = (learned.gains, known.sums, known.squares, known.overlaps)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return orjson.dumps(
        {
            "states": [learned.states0, learned.states1],
            "members": dict(zip(members, rows, strict=True)),
            "curvature": learned.sums.curvature[upper].tolist(),
            "pull": learned.sums.pull.tolist(),
        }
    )


def load_sums(text: bytes, members: Sequence[str], learned: Learned) -> None:
    """Put back what `dump_sums` wrote."""
    d = orjson.loads(text)
    states0, learned.states1 = d["states"]
    gains, sums, squares, overlaps = zip(*(d["members"][name] for name in members), strict=True)
    learned.gains = np.array(gains, dtype=np.int64)
    known = np.array(sums, dtype=np.int64), np.array(squares, dtype=float), np.array(overlaps, dtype=float)
    learned.regrets = Regrets(*known, states0 + learned.states1)
    pull = np.array(d["pull"], dtype=np.int64)
    curvature = np.zeros((len(pull), len(pull)), dtype=np.int64)
    curvature[np.triu_indices(len(pull))] = d["curvature"]
    learned.sums = LogisticSums(curvature + np.triu(curvature, 1).T, pull)


def dump_recalibrated(learned: Learned) -> bytes:
    """The rule on recalibrated levels."""
    return orjson.dumps({"tried": learned.tried, "prices": learned.prices})


def load_recalibrated(text: bytes, learned: Learned) -> None:
    """Put back what `dump_recalibrated` wrote."""
    d = orjson.loads(text)
    learned.tried = d["tried"]
    learned.prices = None if d["prices"] is None else tuple(map(tuple, d["prices"]))
