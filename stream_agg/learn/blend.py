"""From what each expert reports to what each way of reading the reports says, and to the actions they play. Compiled,
because it is done for every event; no state."""

from __future__ import annotations

import numpy as np
from numba import njit

from stream_agg.learn.squint import Floats, Ints


@njit(cache=True)
def said(reports: Floats) -> Floats:
    """Each report (nan: silent; then the mean), the mean, the median, and room for one more, shape (n+3,). One half
    where all are silent."""
    n = len(reports)
    heard = np.sort(reports[~np.isnan(reports)])
    if not len(heard):
        heard = np.array([0.5])
    size, total = len(heard), 0.0
    for p in heard:
        total += p
    told = np.empty(n + 3)
    told[n] = mean = total / size
    told[n + 1] = (heard[size // 2] + heard[(size - 1) // 2]) / 2
    for i in range(n):
        told[i] = mean if np.isnan(reports[i]) else reports[i]
    return told


@njit(cache=True)
def acts(told: Floats, whose: Ints, kinks: Floats, best: Ints) -> Ints:
    """The best action at the probability of each of `whose`, the one that is best on the left at a kink."""
    found = np.empty(len(whose), dtype=np.int64)
    for k, i in enumerate(whose):
        found[k] = best[np.searchsorted(kinks, told[i])]
    return found


@njit(cache=True)
def chances(played: Ints, weights: Floats, members: Ints, actions: int) -> Floats:
    """The weight of each action under those `members` who play one for sure, shape (d,)."""
    total = np.zeros(actions)
    for k, a in enumerate(played):
        total[a] += weights[members[k]]
    return total
