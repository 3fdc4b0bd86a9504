"""The rule of a session: when a new one is due, how it comes about, what is proven of the one in force."""

from __future__ import annotations

from stream_agg.errors import InfeasibleError, SolveError
from stream_agg.events import Regret, RobustPart, RuleRecord
from stream_agg.rule.certificate import Certificate
from stream_agg.rule.rule import Rule
from stream_agg.rule.solver import Solver, solve_support
from stream_agg.rule.support import Support
from stream_agg.session import recalibrated, reports, scores
from stream_agg.session.stored import Stored
from stream_agg.spec import SessionSpec

REPORT_GROWTH = 1.05
"""A report follows the states when their number has grown by this factor: often early, log-many over a session. A solve
that failed is tried again after as many more rounds."""

SETTLE_GROWTH = 1.5
"""Robust regret, the smallest epsilon and what follows from it are computed anew with the first solve after the rounds
have grown by this factor: they cost linear programs of their own, as much as hundreds of re-solves."""

PROVEN = 1e-8
"""The gap, in units of payoff, that is claimed of a rule whose prices were found optimal again without its value being
computed: what the solver takes for rounding."""

NEGLIGIBLE = 2.0**-20
"""Half lives after which a round is forgotten: what it still counts."""


class Solving(Stored):
    """A session's state and its solver, which follows from the tallies and is not stored."""

    def __init__(self, spec: SessionSpec) -> None:
        super().__init__(spec)
        self._solver: Solver | None = None
        self._largest_payoff = scores.largest_payoff(spec)

    def _due(self, gap: float | None) -> bool:
        """Whether the schedule asks for a new rule on the rounds counted so far; `gap` is that of the rule in force."""
        known, schedule = self.counters, self.spec.schedule
        t, tried = known.round, known.tried_round
        if t == tried and not known.resolve:
            return False
        if known.resolve or tried == 0:
            return t > 0
        if known.failed:
            return self._grown(tried, REPORT_GROWTH)
        if schedule.kind == "every":
            return t - tried >= schedule.amount
        if schedule.kind == "growth":
            return t >= tried * (1 + schedule.amount)
        if schedule.kind == "seconds":
            return (known.forecast_us or 0) - (known.tried_us or 0) >= schedule.amount * 1e6
        if self.spec.open_terms and self._grown(known.settled_round, SETTLE_GROWTH):
            return True  # the gap is about the terms in force, however few rounds chose them
        return gap is None or gap > schedule.amount * self._largest_payoff / self._rounds**0.5

    def _grown(self, since: int, factor: float) -> bool:
        """Whether the rounds that count have grown so much, or half of them are others, since that round."""
        now, half_life = self.counters.round, self.spec.half_life
        return now >= since * factor or (half_life is not None and now - since >= half_life)

    def _gap(self) -> float | None:
        """How far the rule in force can be from optimal on the rounds counted so far."""
        if self.certificate is not None:
            return self.certificate.gap(self.rule)
        known = self.counters
        return max(self.rule.gap, PROVEN * self.rule.envelope.unit) if known.proven_round == known.round else None

    def _solve(self) -> list[RuleRecord | Regret]:
        """A new rule on the rounds counted so far. Where there is none, the old one stays in force: its gap tells."""
        known, old = self.counters, self.rule
        settle = known.resolve or self._grown(known.settled_round, SETTLE_GROWTH)
        known.tried_round, known.tried_us, known.resolve = known.round, known.forecast_us, False
        solver = self._solver or Solver(self.spec, self._counted)
        always = self.spec.schedule.always
        try:
            if always and not settle and solver.holds(old):
                self._solver, known.proven_round = solver, known.round
                return []
            self.rule = solver.settle(self._measured()) if settle else solver.rule(old.gamma, old.epsilon, old.least)
            if settle:
                self.robust = self._robust(self._counted(), self.rule)
        except (InfeasibleError, SolveError) as e:
            self.rule, self._solver, known.failed = old, None, True
            known.counts["unsolved"] += 1
            return [reports.rule_record(self, unsolved=str(e))]
        self._solver, known.failed, known.proven_round = solver, False, known.round
        self.certificate = None if always else Certificate.of(self.rule, solver.found)
        self.touch("state", "rule")
        self.touch("state", "certificate")
        changed = not known.rule_version or self.rule.prices != old.prices or self.rule.gamma != old.gamma
        known.rule_version += changed
        outputs: list[RuleRecord | Regret] = [reports.rule_record(self)] if changed or settle else []
        if settle:
            known.settled_round = known.round
            self.touch("state", "robust")
            outputs.append(reports.regret(self, "solve", self.robust))
        return outputs

    def _fresh_robust(self) -> RobustPart:
        if self.counters.round == self.robust.round:
            return self.robust
        seen = self._counted()
        try:
            return self._robust(seen, solve_support(self.spec, seen, self._measured()))
        except (InfeasibleError, SolveError):
            return self.robust

    def _robust(self, seen: Support, rule: Rule) -> RobustPart:
        rounds, robust = self.counters.round, self.policy.follows_rule
        return scores.robust_part(self.spec, seen, self.tallies, rule, rounds, robust)

    def _recalibrate(self) -> None:
        """Policy `hybrid`: another look at what levels have meant, where it is time."""
        pool, states = self.policy.pool, self.counters.states
        if pool is None or not pool.recalibrates or not recalibrated.due(states, pool.learned.tried):
            return
        found = recalibrated.prices(self.spec, self.tallies, self.rule, states)
        pool.learned.tried, pool.learned.prices = states, found or pool.learned.prices
        self.touch("state", "recalibrated")

    def _counted(self) -> Support:
        return scores.support(self.spec, self.tallies)

    def _measured(self) -> float:
        """The epsilon that the states known so far support; 0 where the spec does not ask for it."""
        return scores.measured_epsilon(self.spec, self.tallies) if self.spec.epsilon == "measured" else 0.0

    def _forget(self) -> None:
        """All rounds so far count half as much as before."""
        for e, tally in list(self.tallies.items()):
            tally.seen, tally.payoff0, tally.slope = tally.seen / 2, tally.payoff0 / 2, tally.slope / 2
            if tally.seen < NEGLIGIBLE and not (tally.states0 + tally.states1 or tally.estimates):
                del self.tallies[e]
            self.touch_profile(e)
        if self.certificate is not None:
            self.certificate.halve()
        self._solver = None

    @property
    def _rounds(self) -> float:
        return self.certificate.rounds if self.certificate is not None else float(self.counters.round)
