"""What the learners share: probabilities from exponents, and how many profiles a horizon can hold. No payoffs here."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stream_agg.spec import SessionSpec

Mix = tuple[tuple[int, float], ...]
"""A mixed action: (action index, probability), indices ascending."""

NEGLIGIBLE = 2.0**-60
"""Actions of at most this share of the largest weight are left out: a draw has 53 bits and cannot tell them from 0."""


def mixed(exponents: Sequence[float]) -> Mix:
    """Probabilities proportional to exp(exponent), however large or small the exponents are.

    >>> mixed([1e12, 1e12, -1e12])
    ((0, 0.5), (1, 0.5))
    """
    top = max(exponents)
    weights = [math.exp(x - top) for x in exponents]
    total = sum([w for w in weights if w > NEGLIGIBLE])
    return tuple([(a, w / total) for a, w in enumerate(weights) if w > NEGLIGIBLE])


def profiles_within(spec: SessionSpec, rounds: int) -> int:
    """min(m, rounds): the most profiles that so many rounds can show; silence, where allowed, is a report."""
    silence = spec.missing == "allow"
    return min(math.prod(len(a.levels) + silence for a in spec.experts.values()), rounds)
