"""The paper's offline benchmarks on counted profiles: RMM, OIH, Cont, Bay, and what calibration alone identifies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stream_agg.errors import InfeasibleError
from stream_agg.rule import program
from stream_agg.rule.envelope import envelope
from stream_agg.rule.epsilon import smallest_epsilon
from stream_agg.rule.solution import TOLERANCE
from stream_agg.rule.solver import count_indexed, epsilon_of, solve_support
from stream_agg.rule.support import Floats, Levels, Profile, Support
from stream_agg.spec import SILENT, SessionSpec

Outcomes = Mapping[Levels, tuple[float, float]]


@dataclass(frozen=True)
class Benchmarks:
    """Totals over the counted rounds; None where an input is missing or the benchmark does not exist.

    `robust`: RMM, eq. origin_def_RMM, at the spec's epsilon; None where no rho is calibrated within it (see
    `epsilon_min`). `optimal_in_hindsight`: OIH, Definition "Optimal-in-Hindsight Benchmark", and `contextual`: Cont,
    eq. contextual_benchmark, over the rounds with outcomes. `bayesian`: Bay under conditional independence and the
    prior. `epsilon_min`: the smallest epsilon for which the forecasts can all be calibrated at once.
    """

    robust: float | None
    optimal_in_hindsight: float | None
    contextual: float | None
    bayesian: float | None
    epsilon_min: float


def benchmarks(
    spec: SessionSpec,
    counts: Mapping[Levels, float],
    outcomes: Outcomes | None = None,
    prior: float | None = None,
) -> Benchmarks:
    """All benchmarks of counted profiles (levels in the spec's order, None: silent).

    `outcomes`: profile -> (rounds with state 0, rounds with state 1). `prior`: chance q of state 1, in (0, 1).
    With gamma = inf in the spec, infeasible constraints raise `InfeasibleError`.
    """
    indexed = count_indexed(spec, counts)
    support = Support.of(spec.experts.values(), indexed)
    payoffs = np.array(list(spec.actions.values()), dtype=np.float64)
    robust: float | None = None
    try:
        rule = solve_support(replace(spec, gamma=math.inf), support)
        robust, epsilon_min = rule.value * support.total, rule.epsilon_min
    except InfeasibleError as e:
        if spec.gamma == math.inf:
            raise
        epsilon_min = e.epsilon_min
    oih = contextual = None
    if outcomes is not None:
        known = _outcomes(spec, outcomes)
        oih, contextual = optimal_in_hindsight(spec, known), best_response(known.values(), payoffs)
    bayesian = None
    if prior is not None:
        rho = np.array([posterior(spec, tuple(e), prior) for e in support.profiles.tolist()])
        bayesian = float(support.counts @ envelope(tuple(spec.actions.values())).value(rho)) if len(rho) else 0.0
    return Benchmarks(robust, oih, contextual, bayesian, epsilon_min)


def posterior(spec: SessionSpec, profile: Profile, prior: float) -> float:
    """rho*(e) = (1-q)^(n-1) prod e^i / [(1-q)^(n-1) prod e^i + q^(n-1) prod (1-e^i)] over the n experts that spoke;
    the prior where none did, and where experts rule out each other's certainty."""
    if not 0.0 < prior < 1.0:
        raise ValueError(f"prior is {prior!r}: expected a probability strictly between 0 and 1")
    odds = np.log(prior) - np.log1p(-prior)
    total, certain = odds, set()
    for alphabet, level in zip(spec.experts.values(), profile, strict=True):
        if level == SILENT:
            continue
        z = alphabet.levels[level]
        if z in (0.0, 1.0):
            certain.add(z)
        else:
            total += np.log(z) - np.log1p(-z) - odds
    if certain:
        return prior if len(certain) == 2 else certain.pop()
    return float(1.0 / (1.0 + np.exp(-total)))


def best_response(states: Iterable[tuple[float, float]], payoffs: Floats) -> float:
    """sum over groups of max_a [n0 u(a,0) + n1 u(a,1)], `payoffs` of shape (d, 2)."""
    groups = np.array(list(states), dtype=np.float64).reshape(-1, 2)
    return float((groups @ payoffs.T).max(axis=1).sum()) if len(groups) else 0.0


def optimal_in_hindsight(spec: SessionSpec, outcomes: Mapping[Profile, tuple[float, float]]) -> float:
    """The best single expert's best map from reports to actions; silence counts as a report."""
    payoffs = np.array(list(spec.actions.values()), dtype=np.float64)
    profiles = np.array(sorted(outcomes), dtype=np.int64).reshape(len(outcomes), len(spec.experts))
    states = np.array([outcomes[tuple(e)] for e in profiles.tolist()], dtype=np.float64).reshape(-1, 2)
    totals = []
    for i, alphabet in enumerate(spec.experts.values()):
        size = len(alphabet.levels) + 1
        levels = np.where(profiles[:, i] == SILENT, size - 1, profiles[:, i])
        groups = np.stack([np.bincount(levels, states[:, state], size) for state in (0, 1)], axis=1)
        totals.append(float((groups @ payoffs.T).max(axis=1).sum()))
    return max(totals)


def posterior_range(
    spec: SessionSpec, counts: Mapping[Levels, float], profile: Sequence[float | None]
) -> tuple[float, float]:
    """The least and largest rho(profile) that calibration within the spec's epsilon allows; (0, 1) if never seen.

    `InfeasibleError` where nothing is calibrated within epsilon.
    """
    support = Support.of(spec.experts.values(), count_indexed(spec, counts))
    at = [tuple(e) for e in support.profiles.tolist()]
    epsilon_min = smallest_epsilon(support) if at else 0.0
    epsilon = epsilon_of(spec, lambda: epsilon_min)
    if epsilon_min > epsilon + TOLERANCE:
        raise InfeasibleError(epsilon, epsilon_min)
    wanted = spec.index(profile)
    if wanted not in at:
        return 0.0, 1.0
    unit = np.zeros(len(at))
    unit[at.index(wanted)] = 1.0
    low, _ = program.worst_case(support, unit, math.inf, epsilon)
    high, _ = program.worst_case(support, -unit, math.inf, epsilon)
    return min(max(low, 0.0), 1.0) + 0.0, min(max(-high, 0.0), 1.0) + 0.0


def _outcomes(spec: SessionSpec, outcomes: Outcomes) -> dict[Profile, tuple[float, float]]:
    known: dict[Profile, tuple[float, float]] = {}
    for levels, (n0, n1) in outcomes.items():
        e = spec.index(levels)
        before = known.get(e, (0.0, 0.0))
        known[e] = (before[0] + n0, before[1] + n1)
    return known
