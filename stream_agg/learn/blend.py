"""From what each expert reports to what each way of reading the reports says, and to the actions they play. Compiled,
because it is done for every event; no state."""

from __future__ import annotations

import numpy as np
from numba import njit

from stream_agg.learn.logistic import log_odds
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
def play(
    reports: Floats, tuned: Floats, whose: Ints, kinks: Floats, best: Ints, weights: Floats, members: Ints, actions: int
) -> tuple[Ints, Floats, float]:
    """What those `members` do who play one action for sure, reading the reports as `whose` of `said`.

    The best action at each probability, the one that is best on the left at a kink; the weight of each action under
    them, shape (d,); and the log-odds of the logistic pool with the weights `tuned` (empty: it is no member).
    """
    told, z = said(reports), 0.0
    if len(tuned):
        z = log_odds(tuned, reports)
        told[-1] = 1 / (1 + np.exp(-z))
    acts, chances = np.empty(len(whose), dtype=np.int64), np.zeros(actions)
    for k, i in enumerate(whose):
        acts[k] = best[np.searchsorted(kinks, told[i])]
        chances[acts[k]] += weights[members[k]]
    return acts, chances, z
