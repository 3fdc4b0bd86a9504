"""One program again after new events, from where the last solve ended; and decisions by its prices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from statistics import fmean, median
from typing import Any

from _clock import timed
from _worlds import Program, first, independent, latent, repeating

import stream_agg as sa
from stream_agg.rule.ascent import Ascent
from stream_agg.rule.rule import Rule
from stream_agg.rule.solver import Solver
from stream_agg.rule.support import Profile

RUNS = 5
"""The batches are gone through so many times, with new events each time; means over a run, medians over runs."""

PUBLISHED = 20
"""So many batches, after the others, are made into a new rule, with its bounds computed afresh."""


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
    of, found = Program.of(case.experts, case.levels, counts), []
    solver, ascent = Solver(of.spec, lambda: of.support), of.ascent()
    rule = solver.rule(of.gamma, 0.0)
    ascent.solve()
    for size, times in batches.items():
        runs = [[list(islice(case.profiles, size)) for _ in range(times)] for _ in range(RUNS)]
        taken = [resolved(solver, rule, new) for new in runs]
        row = {name: median(each[name] for each in taken) for name in taken[0]}
        row |= pivoted(ascent, [batch for new in runs for batch in new])
        later = [list(islice(case.profiles, size)) for _ in range(min(times, PUBLISHED))]
        row["rule_us"] = published(solver, rule, later)
        counts.update(chain.from_iterable(chain(*runs, later)))
        ascent.count(chain.from_iterable(later))
        ascent.solve()
        now = Program(of.spec, Counter(counts))
        other, spent = timed(now.robust)
        row["off"] = abs(ascent.solution().lower - other.lower) / now.support.total
        about = {"world": case.name, "experts": case.experts, "levels": case.levels, "k": len(now.counts)}
        found.append({**about, "events": size, **row, "highs": asdict(spent)})
    return found


def resolved(solver: Solver, rule: Rule, new: Sequence[Sequence[Profile]]) -> dict[str, float]:
    """Batch after batch counted, solved, and its prices compared with a rule's: microseconds a batch."""
    walls, cpu = [], time.process_time()
    for batch in new:
        start = time.perf_counter()
        for e in batch:
            solver.count(e)
        solver.holds(rule)
        walls.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    return {"cpu_us": cpu / len(new) * 1e6, "wall_us": fmean(walls) * 1e6, "median_us": median(walls) * 1e6}


def pivoted(ascent: Ascent, new: Sequence[Sequence[Profile]]) -> dict[str, float]:
    """Pivots a batch, and the share of the batches that needed one: the same solves again, without a clock."""
    pivots = []
    for batch in new:
        before = ascent.pivots
        ascent.count(batch)
        ascent.solve()
        pivots.append(ascent.pivots - before)
    return {"pivots": fmean(pivots), "pivoted": sum(map(bool, pivots)) / len(new)}


def published(solver: Solver, rule: Rule, new: Sequence[Sequence[Profile]]) -> float:
    """Microseconds of the processor for a batch, with a new rule made of it every time."""
    cpu = time.process_time()
    for batch in new:
        for e in batch:
            solver.count(e)
        solver.rule(rule.gamma, rule.epsilon)
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
