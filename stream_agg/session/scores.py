"""What a session's accumulators say: robust regret by its own program, and the benchmarks that states allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from stream_agg.events import ExpertCalibration, RobustPart
from stream_agg.learn.calibration import mean_error, wilson
from stream_agg.learn.exp3 import Estimates
from stream_agg.rule import program
from stream_agg.rule.rule import NO_VIOLATION, Rule
from stream_agg.rule.support import Floats, Profile, Support
from stream_agg.spec import SessionSpec


@dataclass(slots=True)
class Tally:
    """One profile's accumulators: `seen` N(e); `payoff0` C(e) = sum of x_t.u0 and `slope` D(e) = sum of x_t.(u1 - u0)
    over its rounds; `states` the rounds known to have ended in state 0 and 1; `estimates` what EXP3 learned."""

    seen: float = 0
    payoff0: float = 0.0
    slope: float = 0.0
    states0: int = 0
    states1: int = 0
    estimates: Estimates | None = None


def largest_payoff(spec: SessionSpec) -> float:
    """U = max |u(a, state)|."""
    return max(max(abs(u0), abs(u1)) for u0, u1 in spec.actions.values())


def support(spec: SessionSpec, tallies: Mapping[Profile, Tally]) -> Support:
    """The profiles seen, counted."""
    return Support.of(spec.experts.values(), {e: tally.seen for e, tally in tallies.items()})


def robust_part(
    spec: SessionSpec, seen: Support, tallies: Mapping[Profile, Tally], rule: Rule, rounds: int, robust: bool
) -> RobustPart:
    """Robust regret of what was played, against a rule solved on the same `rounds`.

    worst case = min_rho sum_e [C(e) + D(e) rho(e)] + gamma * violations; regret = t * value - worst case. `robust`:
    whether all of it was played by robust rules, which is what the theorem bounds.
    """
    ordered = [tallies[tuple(e)] for e in seen.profiles.tolist()]
    slope = np.array([tally.slope for tally in ordered])
    t = seen.total  # fewer than the rounds where old ones are forgotten
    moved, rho = program.worst_case(seen, slope, rule.gamma, rule.epsilon)
    worst = math.fsum(tally.payoff0 for tally in ordered) + moved
    violation = seen.violation(rho, rule.epsilon) / t
    penalty = 0.0 if math.isinf(rule.gamma) or violation <= NO_VIOLATION else rule.gamma * violation
    return RobustPart(
        round=rounds,
        value=rule.value,
        worst_case=worst / t,
        regret=t * rule.value - worst,
        bound=None if spec.half_life else robust_bound(spec, rounds, rule.gamma, rule.epsilon, robust),
        penalty=penalty,
        value_penalty=rule.penalty,
        exact=rule.exact,
        gamma=None if math.isinf(rule.gamma) else rule.gamma,
        epsilon_min=rule.epsilon_min,
    )


def no_rounds(rule: Rule) -> RobustPart:
    """The robust part before any round."""
    gamma = None if math.isinf(rule.gamma) else rule.gamma
    return RobustPart(0, rule.value, rule.value, 0.0, 0.0, 0.0, 0.0, rule.exact, gamma, 0.0)


def robust_bound(spec: SessionSpec, rounds: int, gamma: float, epsilon: float, robust: bool) -> float | None:
    """Theorem "online_regret" with the constants of its proof, or 2 U T where that is less (always, for large m):
    (4U + 4 n gamma) sqrt((m-1) T) + 2U + 2 n gamma + 2 n gamma epsilon T. None where not all of it was `robust`: the
    theorem is about Algorithm 1."""
    n, u = len(spec.experts), largest_payoff(spec)
    if not robust:
        return None
    silence = spec.missing == "allow"
    m = math.prod(float(len(a.levels) + silence) for a in spec.experts.values())
    ng = n * gamma
    theorem = 4 * (u + ng) * math.sqrt((m - 1) * rounds) + 2 * (u + ng) + 2 * ng * epsilon * rounds
    return min(theorem, 2 * u * rounds)


def reports(spec: SessionSpec, tallies: Mapping[Profile, Tally]) -> tuple[tuple[int, ...], ...]:
    """For each expert, how often it reported each of its levels; last, how often it was silent."""
    seen = support(spec, tallies)
    return tuple((*map(int, mass), int(seen.total - sum(mass))) for mass in seen.by_expert(seen.mass))


class Known(NamedTuple):
    """How many rounds are known to have ended in state 0 and 1: at the k `profiles` that have any, sorted, shape
    (k, 2); and for each expert at each of its levels, silence last, shape (levels + 1, 2)."""

    at_profiles: Floats
    at_levels: tuple[Floats, ...]


def known_states(spec: SessionSpec, tallies: Mapping[Profile, Tally]) -> Known:
    """What the tallies say of states."""
    known = [(e, t.states0, t.states1) for e, t in tallies.items() if t.states0 or t.states1]
    k, n = len(known), len(spec.experts)
    profiles = np.fromiter(chain.from_iterable([e for e, _, _ in known]), np.int64, k * n).reshape(k, n)
    states = np.array([[s0 for _, s0, _ in known], [s1 for _, _, s1 in known]], dtype=np.float64).T
    order = np.lexsort(profiles.T[::-1].astype(np.int16))  # in such small numbers it does not compare
    profiles, states = profiles[order], states[order]
    at_levels: list[Floats] = []
    for i, alphabet in enumerate(spec.experts.values()):
        size = len(alphabet.levels) + 1
        at = profiles[:, i] % size  # SILENT is -1
        at_levels.append(np.stack([np.bincount(at, states[:, s], size) for s in (0, 1)], axis=1))
    return Known(states, tuple(at_levels))


def hindsight(spec: SessionSpec, known: Known) -> tuple[float, float]:
    """(OIH, Cont) over the rounds whose state is known: the best map from the reports of one expert to actions, and
    from profiles."""
    payoffs = np.array(list(spec.actions.values()), dtype=np.float64).T
    *maps, contextual = (float((n @ payoffs).max(axis=1).sum()) for n in (*known.at_levels, known.at_profiles))
    return max(maps), contextual


def states_by_level(spec: SessionSpec, known: Known) -> dict[str, Floats]:
    """expert -> array (levels, 2): known rounds with state 0 and 1 at each level."""
    return {name: n[:-1] for name, n in zip(spec.experts, known.at_levels, strict=True)}


def measured_epsilon(spec: SessionSpec, tallies: Mapping[Profile, Tally]) -> float:
    """The epsilon that the known states support (`learn.calibration.mean_error`)."""
    by_level = states_by_level(spec, known_states(spec, tallies))
    return mean_error(
        (z, n0, n1)
        for name, alphabet in spec.experts.items()
        for z, (n0, n1) in zip(alphabet.levels, by_level[name].tolist(), strict=True)
    )


def calibration(spec: SessionSpec, known: Known) -> dict[str, ExpertCalibration]:
    """Observed frequency against level, for every expert with a known round."""
    result = {}
    for name, counts in states_by_level(spec, known).items():
        total = counts.sum()
        if total:
            levels = np.array(spec.experts[name].levels)
            rounds = counts.sum(axis=1)
            off = np.abs(counts[:, 1] - levels * rounds)
            worst = int(np.argmax(np.where(rounds, off, -1.0)))  # a level without a round errs by nothing
            rows = zip(levels.tolist(), counts, strict=True)
            result[name] = ExpertCalibration(
                error=float(off.sum() / total),
                worst_level=float(levels[worst]),
                n=int(total),
                interval=wilson(*counts[worst].tolist()),
                levels={repr(z): (int(n0), int(n1)) for z, (n0, n1) in rows if n0 + n1},
            )
    return result
