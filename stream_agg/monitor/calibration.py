"""How sure one can be that an expert is off at a level: the evidence for an alarm. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Calibration = Mapping[str, Mapping[float, tuple[int, int]]]
"""expert -> level -> known rounds with state 0 and 1."""

ALPHA = 0.01
"""Chance that a session of calibrated experts ever raises an alarm: it sends somebody to look, so it must be rare."""

TOLERANCE = 0.05
"""Differences below this raise no alarm, however certain: 11 levels, the usual number, round a report by as much."""


@dataclass(frozen=True, slots=True)
class Off:
    """An expert that is off: its observed frequency of state 1 at a level, over so many known rounds."""

    expert: str
    level: float
    frequency: float
    rounds: int


def evidence(level: float, zeros: int, ones: int) -> float:
    """Logarithm of how much likelier the outcomes are under an unknown frequency, all equally likely, than under
    `level`: log B(ones + 1, zeros + 1) - ones log(level) - zeros log(1 - level).

    One may look after every outcome: while state 1 has the chance `level`, its exponential is a martingale of mean 1
    and so ever exceeds 1/a with a chance of a at most (Ville's inequality).
    """
    if (ones and level == 0) or (zeros and level == 1):
        return math.inf
    likely = math.lgamma(ones + 1) + math.lgamma(zeros + 1) - math.lgamma(ones + zeros + 2)
    return likely - (ones * math.log(level) if ones else 0.0) - (zeros * math.log1p(-level) if zeros else 0.0)


def off(calibration: Calibration, alphabets: Mapping[str, Sequence[float]]) -> list[Off]:
    """The experts that are off for certain and by more than rounding, each at the level that shows it best.

    `alphabets` are all levels of an expert where they are known; `ALPHA` is shared by all levels of all experts.
    """
    cells = sum(len(alphabets.get(name) or rows) for name, rows in calibration.items())
    found = []
    for name, rows in calibration.items():
        alphabet = alphabets.get(name)
        surest = 0.0
        worst: Off | None = None
        for level, (zeros, ones) in rows.items():
            rounds = zeros + ones
            if not rounds or abs(ones / rounds - level) < TOLERANCE:
                continue
            sure = evidence(level, zeros, ones)
            least = tolerance(level, alphabet) if alphabet else TOLERANCE
            if sure < math.log(cells / ALPHA) or abs(ones / rounds - level) < least:
                continue
            if sure > surest:
                surest, worst = sure, Off(name, level, ones / rounds, rounds)
        if worst is not None:
            found.append(worst)
    return found


def tolerance(level: float, levels: Sequence[float]) -> float:
    """What rounding to the nearest of `levels` can change at this one: half the wider distance to a neighbour (or to
    the end of [0, 1]), and `TOLERANCE` at least."""
    below = [level - z for z in levels if z < level] or [2 * level]
    above = [z - level for z in levels if z > level] or [2 * (1 - level)]
    return max(TOLERANCE, min(below) / 2, min(above) / 2)
