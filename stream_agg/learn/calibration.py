"""How calibrated an expert was, from counts of states at each of its levels: frequencies with intervals, the smallest
epsilon that they support, and levels put right. Pure; knows neither rules nor payoffs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
"""Of one interval alone, and of all rows together where they speak about one epsilon."""

PRIOR = 4.0
"""Rounds that a stated level counts as (`recalibrated`): the square of 1.96, rounded."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One level: `n` rounds known to have had it, the share of them in state 1, and Wilson's interval of that share.
    Without a round, 0 to 1 around nothing: `frequency` is None."""

    level: float
    n: int
    frequency: float | None
    low: float
    high: float


def wilson(zeros: float, ones: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's score interval (1927) of the chance behind `ones` in `zeros + ones` trials; (0, 1) without trials.

    It keeps its level with few trials and at shares of 0 and 1, where the interval of the normal law has no width
    (Brown, Cai and DasGupta 2001). Written out because reports need hundreds of them at once: `scipy.stats.binomtest`
    does an exact test before it gives one.

    >>> [round(end, 4) for end in wilson(7, 3)]
    [0.1078, 0.6032]
    """
    return _wilson(zeros, ones, NormalDist().inv_cdf((1 + confidence) / 2))


def observed(levels: Sequence[float], zeros: Sequence[float], ones: Sequence[float]) -> tuple[Observed, ...]:
    """Every level of an expert, with the rounds known to have ended in state 0 and in state 1 at it."""
    rows = []
    for z, n0, n1 in zip(levels, zeros, ones, strict=True):
        n = n0 + n1
        rows.append(Observed(z, int(n), n1 / n if n else None, *wilson(n0, n1)))
    return tuple(rows)


def recalibrated(levels: Sequence[float], zeros: Sequence[float], ones: Sequence[float]) -> tuple[float, ...]:
    """What each level has meant: ascending like `levels`, in [0, 1], neighbours possibly equal.

    Level z, with n1 of its n known rounds in state 1, becomes

        (n1 + PRIOR z) / (n + PRIOR),

    the mean of the chance under a Beta(PRIOR z, PRIOR (1 - z)) prior, which has the stated level as its mean (the
    m-estimate of Cestnik 1990). Four rounds, because that is what one interval at 95 % is worth: Wilson's interval is
    centred where 1.96^2 = 3.84 rounds of prior put the estimate (Agresti and Coull 1998: "add two successes and two
    failures"); theirs lie at one half, ours at what the expert says, because it says it. So a level without states
    stays, one state moves it by a fifth of the way, and many states decide.

    Then levels out of order are pooled (isotonic regression of the least squares, weights n + PRIOR, as in Zadrozny
    and Elkan 2002): whoever says more means more, and what contradicts that is noise of the rarer levels.
    """
    weights = [n0 + n1 + PRIOR for n0, n1 in zip(zeros, ones, strict=True)]
    shrunk = [(n1 + PRIOR * z) / w for z, n1, w in zip(levels, ones, weights, strict=True)]
    return _ascending(shrunk, weights)


def _wilson(zeros: float, ones: float, z: float) -> tuple[float, float]:
    n = zeros + ones
    if not n:
        return 0.0, 1.0
    centre = (ones + z * z / 2) / (n + z * z)
    reach = z * math.sqrt(zeros * ones / n + z * z / 4) / (n + z * z)
    # At a share of 0 or 1 the end is 0 or 1 itself, but for rounding.
    return (0.0 if not ones else centre - reach), (1.0 if not zeros else centre + reach)


def _ascending(values: Iterable[float], weights: Iterable[float]) -> tuple[float, ...]:
    """The ascending values nearest to those given, by pooling neighbours that are out of order."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        size = 1
        while pools and pools[-1][0] > value:
            before, mass, count = pools.pop()
            value = (before * mass + value * weight) / (mass + weight)  # the pool grows to the left
            weight, size = mass + weight, size + count
        pools.append((value, weight, size))
    return tuple(value for value, _, size in pools for _ in range(size))
