"""The seen profiles with their counts, in canonical order, and the calibration rows they touch.

Only profiles that were seen enter a program, so the size of the profile space does not matter. The canonical order
(profiles sorted) makes every sum and every solve a function of the counts alone, whatever the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
        seen = sorted(e for e, count in counts.items() if count > 0)
        profiles = np.array(seen, dtype=np.int64).reshape(len(seen), n)
        weights = np.array([counts[e] for e in seen], dtype=np.float64)
        rows = np.where(profiles == SILENT, r, profiles + np.array(offsets[:-1], dtype=np.int64))
        mass = np.bincount(rows.ravel(), np.repeat(weights, n), r + 1)[:r].astype(np.float64)
        levels = np.concatenate([np.array(z, dtype=np.float64) for z, _ in sizes])
        return cls(profiles, weights, rows, levels, mass, offsets)

    @property
    def total(self) -> float:
        """t, the number of rounds counted."""
        return float(self.counts.sum())

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

    def by_expert(self, flat: Floats) -> list[list[float]]:
        """A flat (r,) array cut into one list an expert."""
        return [flat[a:b].tolist() for a, b in zip(self.offsets, self.offsets[1:], strict=False)]


def flat(parts: Sequence[Sequence[float]]) -> Floats:
    """The inverse of `Support.by_expert`."""
    return np.array([x for part in parts for x in part], dtype=np.float64)
