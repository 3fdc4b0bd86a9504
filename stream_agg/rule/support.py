"""The seen profiles with their counts, in canonical order, and the calibration rows they touch.

Only profiles that were seen enter a program, so the size of the profile space does not matter. The canonical order
(profiles sorted) makes every sum and every solve a function of the counts alone, whatever the order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from stream_agg.spec import SILENT, Alphabet

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Profile = tuple[int, ...]
"""Level indices, one an expert."""
Levels = tuple[float | None, ...]
"""Levels themselves, one an expert, None for silence."""


@dataclass(frozen=True)
class Support:
    """k seen profiles of n experts with r levels in all.

    `profiles` (k, n) level indices, `counts` (k,) N(e), `rows` (k, n) flat level numbers with r for a silent expert,
    `levels` (r,) z, `mass` (r,) N_{i,z}. Row i,z is the calibration constraint of expert i at level z.
    """

    profiles: Ints
    counts: Floats
    rows: Ints
    levels: Floats
    mass: Floats
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, alphabets: Iterable[Alphabet], counts: Mapping[Profile, float]) -> Support:
        """Sorted and counted; profiles with count 0 are left out."""
        sizes = [(a.levels, len(a.levels)) for a in alphabets]
        offsets = tuple(np.cumsum([0, *(size for _, size in sizes)]).tolist())
        n, r = len(sizes), offsets[-1]
        profiles = np.fromiter(chain.from_iterable(counts), np.int64, len(counts) * n).reshape(len(counts), n)
        weights = np.fromiter(counts.values(), np.float64, len(counts))
        order = np.lexsort(profiles.T[::-1])
        order = order[weights[order] > 0]
        profiles, weights = profiles[order], weights[order]
        rows = np.where(profiles == SILENT, r, profiles + np.array(offsets[:-1], dtype=np.int64))
        mass = np.bincount(rows.ravel(), np.repeat(weights, n), r + 1)[:r].astype(np.float64)
        levels = np.concatenate([np.array(z, dtype=np.float64) for z, _ in sizes])
        return cls(profiles, weights, rows, levels, mass, offsets)

    @property
    def total(self) -> float:
        """t, the number of rounds counted."""
        return float(self.counts.sum())

    def in_whole_rounds(self) -> tuple[Support, float]:
        """This support in counts that a solver can take for rounds, and the power of two by which they were multiplied:
        1 where they are whole already, else so much that a dead zone of 1e-5 rounds is small."""
        if not np.any(self.counts % 1):
            return self, 1.0
        factor = 2.0 ** (20 - math.floor(math.log2(self.total)))
        return replace(self, counts=self.counts * factor, mass=self.mass * factor), factor

    def prices(self, duals: Floats) -> Floats:
        """s_e = sum_i lambda_{i, e^i} of every profile, shape (k,); silent experts have no price."""
        padded = np.append(duals, 0.0)
        return np.asarray(padded[self.rows].sum(axis=1))

    def residuals(self, rho: Floats) -> Floats:
        """sum_{e: e^i = z} N(e) (rho(e) - z) of every row, shape (r,)."""
        n = self.profiles.shape[1]
        held = np.bincount(self.rows.ravel(), np.repeat(self.counts * rho, n), len(self.mass) + 1)[:-1]
        return held - self.levels * self.mass

    def violation(self, rho: Floats, epsilon: float) -> float:
        """sum_{i,z} max(0, |residual| - epsilon N_{i,z}), in counts."""
        return float(np.maximum(np.abs(self.residuals(rho)) - epsilon * self.mass, 0.0).sum())

    def half_spread(self) -> float:
        """Half the spread of the experts' mean reports: what epsilon must be at least, where nobody was ever silent;
        0 otherwise."""
        cuts = list(zip(self.offsets, self.offsets[1:], strict=False))
        heard = [float(self.mass[a:b].sum()) for a, b in cuts]
        if not heard or min(heard) < self.total:
            return 0.0
        means = [float(self.levels[a:b] @ self.mass[a:b]) / n for (a, b), n in zip(cuts, heard, strict=True)]
        return (max(means) - min(means)) / 2 * (1 - 1e-12)

    def by_expert(self, flat: Floats) -> list[list[float]]:
        """A flat (r,) array cut into one list an expert."""
        return [flat[a:b].tolist() for a, b in zip(self.offsets, self.offsets[1:], strict=False)]
