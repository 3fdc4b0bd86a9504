"""Feeds through the engine: what an event costs under a schedule, and what a schedule gives up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
from _clock import timed
from _worlds import Feed, ascent, generated, latent, repeating

import stream_agg as sa
from stream_agg.events import Regret
from stream_agg.rule import program
from stream_agg.rule.rule import Rule
from stream_agg.rule.solver import Solver
from stream_agg.rule.support import Floats, Profile, Support

NEVER = 10**9
"""Events between solves, in a session that is to do all but solve."""


def through(feed: Feed, spec: sa.SessionSpec) -> tuple[sa.Session, list[float]]:
    """A session with the feed behind it, and the wall time, in seconds, of every event that brought a report."""
    session, reports = sa.Session(spec), []
    for forecast in feed.forecasts:
        start = time.perf_counter()
        outputs = session.forecast(forecast)
        if len(outputs) > 1 and any(isinstance(output, Regret) for output in outputs):
            reports.append(time.perf_counter() - start)
    return session, reports


def engine(feed: Feed, kind: str, amount: float) -> dict[str, Any]:
    """Microseconds an event, the whole engine included; `reports_us` those of events that brought a report."""
    spec = feed.scheduled(kind, amount)
    (session, reports), spent = timed(lambda: through(feed, spec))
    size = len(feed.forecasts)
    return {
        "cpu_us": spent.cpu_s / size * 1e6,
        "wall_us": spent.wall_s / size * 1e6,
        "times": spent.times,
        "reports": len(reports),
        "reports_us": sum(reports) / size * 1e6,
        "price_changes": session.counters.rule_version,
        "unsolved": session.counters.counts["unsolved"],
        "gamma": session.rule.gamma,
    }


def every(feed: Feed) -> dict[str, Any]:
    """A solve at every event; the same feed without solves; and the solver alone, at the gamma of the last rule."""
    found = engine(feed, "every", 1)
    size, gamma = len(feed.forecasts), found["gamma"]
    _, spent = timed(lambda: followed(feed, gamma))
    exact, pivoted = ascent(feed.spec, gamma, 0.0), 0
    for e in feed.profiles:
        before = exact.pivots
        exact.count((e,))
        exact.solve()
        pivoted += exact.pivots > before
    return {
        "feed": feed.name,
        "events": size,
        "k": len(set(feed.profiles)),
        **found,
        "solver_us": spent.cpu_s / size * 1e6,
        "quiet_us": engine(feed, "every", NEVER)["cpu_us"],
        "pivoted": pivoted / size,
    }


def followed(feed: Feed, gamma: float) -> Rule:
    """The rule after every event, without an engine; at the end, the last."""
    counts: Counter[Profile] = Counter(feed.profiles[:1])
    solver = Solver(feed.spec, lambda: Support.of(feed.spec.experts.values(), counts))
    rule = solver.rule(gamma, 0.0)
    for e in feed.profiles[1:]:
        counts[e] += 1
        solver.count(e)
        if not solver.holds(rule):
            rule = solver.rule(gamma, 0.0)
    return rule


class Books:
    """All profiles of a feed with their counts so far: what a rule proves on them, and what its strategy earns."""

    def __init__(self, feed: Feed) -> None:
        alphabets = feed.spec.experts.values()
        self.all = Support.of(alphabets, dict.fromkeys(feed.profiles, 1.0))
        self.at = {tuple(e): i for i, e in enumerate(self.all.profiles.tolist())}
        self.alphabets, self.payoffs = alphabets, np.array(list(feed.spec.actions.values()))
        self.counts, self.mass = np.zeros(len(self.at)), np.zeros(len(self.all.mass) + 1)
        self.rule: Rule | None = None
        self.phi: Floats = self.counts

    def count(self, profile: Profile) -> None:
        """One more round."""
        i = self.at[profile]
        self.counts[i] += 1
        self.mass[self.all.rows[i]] += 1

    def proven(self, rule: Rule) -> float:
        """What the rule's prices prove (the dual objective), over all rounds."""
        if rule is not self.rule:
            self.rule, self.phi = rule, rule.envelope.phi(self.all.prices(rule.flat[:-1]))
        paid = (rule.levels * rule.flat + rule.epsilon * np.abs(rule.flat)) @ self.mass
        return float(self.counts @ self.phi - paid)

    def earned(self, rule: Rule) -> float:
        """What the rule's strategy earns against the rho that is worst for it, over all rounds, by HiGHS."""
        counted = {e: self.counts[i] for e, i in self.at.items() if self.counts[i]}
        seen = Support.of(self.alphabets, counted)
        base, slope = np.zeros((2, len(seen.counts)))
        for i, e in enumerate(seen.profiles.tolist()):
            for action, weight in rule.mix(tuple(e)):
                u0, u1 = self.payoffs[action]
                base[i] += weight * u0
                slope[i] += weight * (u1 - u0)
        worst, _ = program.worst_case(seen, seen.counts * slope, rule.gamma, rule.epsilon)
        return float(seen.counts @ base) + worst


def certified(feed: Feed, share: float, sample: int) -> dict[str, Any]:
    """What the certified schedule costs, and what it gives up at every event against a solve at every event.

    Before every decision, on the rounds counted by then: the exact value (the ascent, warm, at the gamma in force) less
    what the rule in force proves; at `sample` events, less what its strategy earns. `above`: by how much the first was
    ever above the gap that the decision carries; `short`: by how much a strategy ever earned less than was proven.
    """
    cost = engine(feed, "certified", share)
    session, books = sa.Session(feed.scheduled("certified", share)), Books(feed)
    size, rule, solves = len(feed.forecasts), session.rule, 0
    exact = ascent(feed.spec, rule.gamma, rule.epsilon)
    asked = {*np.linspace(1, size - 1, sample).astype(int).tolist()}
    lost, gaps, earned, short = [], [], [], []
    for t, (forecast, profile) in enumerate(zip(feed.forecasts, feed.profiles, strict=True)):
        action: Any = session.forecast(forecast)[-1]
        if t:
            solves += session.rule is not rule
            rule = session.rule
            exact.terms(rule.gamma, rule.epsilon)
            exact.solve()
            value, proven = exact.solution().lower, books.proven(rule)
            lost.append((value - proven) / t)
            gaps.append(action.rule.gap)
            if t in asked:
                worth = books.earned(rule)
                earned.append((value - worth) / t)
                short.append((proven - worth) / t)
        books.count(profile)
        exact.count((profile,))
    return {
        "feed": feed.name,
        **cost,
        "solves": solves,
        "checked": len(lost),
        "lost": {"mean": fmean(lost), "max": max(lost), "late_max": max(lost[size // 10 :])},
        "gap": {"mean": fmean(gaps), "max": max(gaps)},
        "above": max(a - b for a, b in zip(lost, gaps, strict=True)),
        "sampled": len(earned),
        "strategy_lost": {"mean": fmean(earned), "max": max(earned)},
        "short": max(short),
    }


def size(experts: Sequence[int], pool: int, events: int) -> list[dict[str, Any]]:
    """The engine under two schedules, with equally many different profiles of few and of many experts, 11 levels."""
    found = []
    for n in experts:
        feed = generated(f"{n} experts", n, 11, repeating(latent(n, 11), pool), events)
        for kind, amount in (("certified", 0.1), ("growth", 0.05)):
            about = {"experts": n, "k": len(set(feed.profiles)), "schedule": f"{kind} {amount:g}"}
            found.append({**about, **engine(feed, kind, amount)})
    return found
