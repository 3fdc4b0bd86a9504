"""Watches the one assumption of robust regret that forecasts alone can refute: profiles drawn independently from one
distribution (Assumption "fixed distribution", Section 4). Counts in, a verdict out; no rule, no state of an event.

Profiles hardly repeat, so what is compared is how often each expert reported each of its levels, or nothing: in the
later half of the rounds against the earlier half, by the chi-square test of homogeneity. Given the
totals, chance alone decides under the assumption which half a report falls into; levels are merged with their
neighbours by those totals alone, so merging cannot favour a verdict, until every cell expects `EXPECTED` reports.
Two equal halves are what the chi-square law suits best: far out, where alarms are, the exact chance is the smaller one
(two cells have Yates's correction, without which it would be nearly twice as large; three cells may exceed a level of
0.005 by a quarter in the first looks; from four on none was found to exceed any).

Looks come four to the doubling, at 64, 80, 96, 112, 128, 160, ... rounds. The j-th spends ALPHA / (j (j + 1)) of the
chance of a false alarm, in equal parts on the n experts; a p-value is published times n j (j + 1), so an alarm is a
p-value of at most ALPHA. Where each test keeps its level, the chance that a session of independent rounds from one
distribution ever raises an alarm is, however the looks depend on each other, at most

    sum_j sum_i ALPHA / (n j (j + 1)) = ALPHA sum_j (1/j - 1/(j + 1)) <= ALPHA.

What an alarm means: the rounds are no such draws. It does not say why. Many rows of one day that share their weather
are not independent, and raise it though nothing ever changes for good. `distance` says how much it is: it falls like
one over the root of the days where only days differ, peaks while a single change lies in the middle of the rounds, and
stays where the world goes on changing. What no look can see: a change in how the experts go together that leaves each
of them alone as it was, and a change since the last look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stream_agg.events import DriftPart

ALPHA = 0.01
"""Chance of a false alarm over a whole session: an alarm sends somebody to look, so it must be rare."""

EXPECTED = 5
"""Reports that each cell of a table must expect in either half: the usual rule for the chi-square approximation."""

Reports = tuple[tuple[int, ...], ...]
"""For each expert, how often it reported each of its levels; last, how often it was silent."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What the next looks need: `past`, the reports up to the last four rounds that were due; and the latest look."""

    past: tuple[Reports, ...] = ()
    latest: DriftPart | None = None

    def look(self, experts: Iterable[str], reports: Reports) -> Drift:
        """The state after a look at all reports so far, called at every round that is `due`."""
        if len(self.past) < 4:
            return Drift((*self.past, reports))
        rounds, before = sum(reports[0]), self.latest
        found = []
        for name, early, total in zip(experts, self.past[0], reports, strict=True):
            p, distance = compare(early, [n - e for n, e in zip(total, early, strict=True)])
            found.append((p, -distance, name))
        p, distance, expert = min(found)  # p-values can be 0.0 more than once: then the larger distance
        p = min(p * len(found) * (j := number(rounds)) * (j + 1), 1.0)
        first = before.first_alarm if before else None
        if first is None and p <= ALPHA:
            first = rounds
        latest = DriftPart(rounds, expert, p, -distance, p <= ALPHA, first)
        return Drift((*self.past[1:], reports), latest)


def due(rounds: int) -> bool:
    """Whether it is time to count: 4, 5, 6 or 7 times a power of two, from 32 on; half of such a number is one too."""
    size = rounds.bit_length()
    return size >= 6 and not rounds & ((1 << (size - 3)) - 1)


def number(rounds: int) -> int:
    """Which look it is, from 1 at 64 rounds."""
    size = rounds.bit_length()
    return 4 * (size - 7) + (rounds >> (size - 3)) - 3


def compare(early: Sequence[int], recent: Sequence[int]) -> tuple[float, float]:
    """p-value of the chi-square test of homogeneity, and the total variation distance, of two rows of counts with
    equal sums, both over the merged cells. (1.0, 0.0) where all is in one cell.

    It is `scipy.stats.chi2_contingency`, to the bit, without the checks that take it a hundred times as long.
    """
    from scipy.special import chdtrc  # slow to import: nobody waits for it who only solves

    cells = np.array(list(zip(*merge(early, recent), strict=True)), dtype=np.float64)
    columns = cells.shape[1]
    if columns == 1:
        return 1.0, 0.0
    expected = cells.sum(axis=0) / 2
    off = np.abs(cells - expected)
    distance = float(off.sum() / cells.sum())
    if columns == 2:
        off = np.maximum(off - 0.5, 0.0)  # Yates's correction
    return float(chdtrc(columns - 1, (off**2 / expected).sum())), distance


def merge(early: Iterable[int], recent: Iterable[int]) -> list[tuple[int, int]]:
    """Cells of neighbouring levels with at least 2 * EXPECTED reports in all; what is left over joins the last one.

    >>> merge([3, 4, 20, 1], [4, 2, 9, 0])
    [(7, 6), (21, 9)]
    """
    cells: list[tuple[int, int]] = []
    a = b = 0
    for x, y in zip(early, recent, strict=True):
        a, b = a + x, b + y
        if a + b >= 2 * EXPECTED:
            cells.append((a, b))
            a = b = 0
    if not cells:
        return [(a, b)]
    cells[-1] = (cells[-1][0] + a, cells[-1][1] + b)
    return cells


def warm_up() -> None:
    """Do the slow import behind `compare` now, not at round 64 of a stream."""
    compare([1], [1])
