"""Means of what came in time, with intervals that know that events of one time, and of times near each other, are not
independent. Pure statistics: arrays in, numbers out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 4000
"""An end of the interval is then off by some 2 % of its width at most: fewer would show in the third decimal."""

SEED = 20
"""One for all: series of the same times meet the same resamples, so that differences of their means are paired."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean per event, its 95 % interval and standard error by the bootstrap; None where a single block holds all."""

    mean: float
    low: float | None
    high: float | None
    error: float | None


class Blocks:
    """The circular block bootstrap (Politis and Romano 1992; of moving blocks, Kunsch 1989) over the times of events.

    All events of one time stay together; a resample is as many blocks of `length` times in a row as fill the series,
    the last time being followed by the first so that all weigh the same, and its statistic is the mean per event. The
    length is the cube root of the number of times, rounded up: the order that is best for a variance (Hall, Horowitz
    and Jing 1995). `times`: any number that is equal for events of one time, ascending, shape (events,).
    """

    def __init__(self, times: NDArray[np.int64]) -> None:
        self._starts = np.flatnonzero(np.diff(times, prepend=times[0] - 1)) if len(times) else np.zeros(0, np.int64)
        self.times = len(self._starts)
        self.length = math.ceil(round(self.times ** (1 / 3), 9))
        per_resample = math.ceil(self.times / max(self.length, 1))
        self._drawn = np.random.default_rng(SEED).integers(0, max(self.times, 1), (RESAMPLES, per_resample))
        self._counts = self._totals(np.ones(len(times)))

    def mean(self, values: Floats) -> Mean:
        """Of one number for every event, shape (events,), at least one."""
        if self.times <= self.length:
            return Mean(float(values.mean()), None, None, None)
        means = self._totals(values) / self._counts
        low, high = np.quantile(means, (0.025, 0.975))
        return Mean(float(values.mean()), float(low), float(high), float(means.std(ddof=1)))

    def _totals(self, values: Floats) -> Floats:
        """Sum over every resample, shape (RESAMPLES,)."""
        if not self.times:
            return np.zeros(RESAMPLES)
        by_time = np.add.reduceat(values, self._starts)
        around = np.concatenate([[0.0], np.cumsum(np.concatenate([by_time, by_time[: self.length]]))])
        blocks = around[self.length : self.length + self.times] - around[: self.times]
        return np.asarray(blocks[self._drawn].sum(axis=1))
