"""One program again after new events, from where the last solve ended; and decisions by its prices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from statistics import fmean, median
from typing import Any

from _clock import timed
from _worlds import Program, first, independent, latent, repeating

import stream_agg as sa
from stream_agg.rule import program
from stream_agg.rule.ascent import Ascent
from stream_agg.rule.support import Profile

RUNS = 5
"""The batches are gone through so many times, with new events each time; means over a run, medians over runs."""

PUBLISHED = 20
"""So many batches, after the others, are taken to the full solution that a session publishes."""


@dataclass(frozen=True)
class Case:
    """A stream of profiles, of which so many `rounds` are counted before the clock runs."""

    name: str
    experts: int
    levels: int
    profiles: Iterator[Profile]
    rounds: int


def cases(rounds: int) -> list[Case]:
    """Two streams of forecasters who nearly agree and repeat profiles, as bookmakers do; two of independent ones."""
    return [
        Case("bookmakers", 6, 10, repeating(latent(6, 10, 0.1), 500), rounds),
        Case("bookmakers", 6, 20, repeating(latent(6, 20, 0.1), 1850), rounds),
        Case("independent", 3, 10, independent(3, 10, 5.0), rounds),
        Case("independent", 6, 10, independent(6, 10, 1.1), rounds),
    ]


def warm(case: Case, batches: Mapping[int, int]) -> list[dict[str, Any]]:
    """Re-solves after batches of new events, `batches`: size -> how many; and HiGHS, cold, on the counts after them."""
    counts = Counter(islice(case.profiles, case.rounds))
    ascent = Program.of(case.experts, case.levels, counts).ascent()
    ascent.solve()
    found = []
    for size, times in batches.items():
        runs = []
        for _ in range(RUNS):
            new = [list(islice(case.profiles, size)) for _ in range(times)]
            runs.append(resolved(ascent, new))
            counts.update(chain.from_iterable(new))
        row = {name: median(run[name] for run in runs) for name in runs[0]}
        now = Program.of(case.experts, case.levels, Counter(counts))
        other, spent = timed(partial(program.robust, now.support, now.cost, now.gamma, 0.0))
        row["off"] = abs(ascent.solution().lower - other.lower) / now.support.total
        later = [list(islice(case.profiles, size)) for _ in range(min(times, PUBLISHED))]
        row["solution_us"] = published(ascent, later)
        counts.update(chain.from_iterable(later))
        about = {"world": case.name, "experts": case.experts, "levels": case.levels, "k": len(now.counts)}
        found.append({**about, "events": size, **row, "highs": asdict(spent)})
    return found


def resolved(ascent: Ascent, new: list[list[Profile]]) -> dict[str, float]:
    """Batch after batch counted, solved, and its prices read: microseconds a batch, and how it was done."""
    walls, pivots, cpu = [], [], time.process_time()
    for batch in new:
        before, start = ascent.pivots, time.perf_counter()
        ascent.count(batch)
        ascent.solve()
        ascent.prices()
        walls.append(time.perf_counter() - start)
        pivots.append(ascent.pivots - before)
    return {
        "cpu_us": (time.process_time() - cpu) / len(new) * 1e6,
        "wall_us": fmean(walls) * 1e6,
        "median_us": median(walls) * 1e6,
        "pivots": fmean(pivots),
        "pivoted": sum(map(bool, pivots)) / len(new),
    }


def published(ascent: Ascent, new: list[list[Profile]]) -> float:
    """Microseconds of the processor for a batch, with the solution computed afresh from the basis every time."""
    cpu = time.process_time()
    for batch in new:
        ascent.count(batch)
        ascent.solve()
        ascent.solution()
    return (time.process_time() - cpu) / len(new) * 1e6


def decide(experts: int) -> dict[str, Any]:
    """`Rule.mix` at 1,000 profiles that were not among those its rule was solved on."""
    profiles = latent(experts, 11)
    of = Program.of(experts, 11, first(profiles, 300))
    rule = sa.solve(of.spec, of.by_levels)
    unseen = list(islice((e for e in profiles if e not in of.counts), 1000))

    def mix() -> None:
        for e in unseen:
            rule.mix(e)

    _, spent = timed(mix)
    return {"experts": experts, "wall_us": spent.wall_s * 1e3, "cpu_us": spent.cpu_s * 1e3, "times": spent.times}
