"""In what policies differ: the mixed action, what feedback teaches beyond the counts, what is proven. No storage."""

from __future__ import annotations

from collections.abc import Iterable

from stream_agg.errors import EventError
from stream_agg.events import State
from stream_agg.learn.exp3 import Estimates, Exp3
from stream_agg.learn.hedge import Hedge
from stream_agg.learn.weights import Mix
from stream_agg.rule.rule import Rule
from stream_agg.rule.support import Profile
from stream_agg.session.codec import Counters, Decision
from stream_agg.session.scores import Tally
from stream_agg.spec import SessionSpec


class Policy:
    """`robust` (Algorithm 1): plays the rule in force, which feedback does not change. The learners differ from it."""

    follows_rule = True
    """Whether actions are the robust rule's; if not, it is solved all the same, to measure them by."""

    def mix(self, rule: Rule, profile: Profile, tally: Tally) -> Mix:
        """The mixed action at a profile, from the rule in force and what is known of the profile."""
        return rule.mix(profile)

    def check(self, state: State) -> None:
        """`EventError` for feedback of the right kind that cannot be learned from."""

    def learn(self, known: Counters, tally: Tally, decision: Decision) -> None:
        """Learn from a decision whose feedback is known and counted now."""

    def bound(self, known: Counters, tallies: Iterable[Tally]) -> float | None:
        """What contextual less expected payoff cannot exceed, over the known rounds; None where nothing is proven."""
        return None


class ContextualHedge(Policy):
    """`hedge` (Algorithm 2), a function of the counts of states; the session keeps what their delay may have cost."""

    follows_rule = False

    def __init__(self, spec: SessionSpec) -> None:
        self._hedge = Hedge.of(spec)

    def mix(self, rule: Rule, profile: Profile, tally: Tally) -> Mix:
        return self._hedge.mix(tally.states0, tally.states1)

    def learn(self, known: Counters, tally: Tally, decision: Decision) -> None:
        known.delay_cost += self._hedge.delay_cost(decision.states_known, tally.states0 + tally.states1)

    def bound(self, known: Counters, tallies: Iterable[Tally]) -> float | None:
        return self._hedge.bound((t.states0 + t.states1 for t in tallies), known.delay_cost)


class ContextualExp3(Policy):
    """`exp3`: estimates of every profile are kept in its tally. Its bounds hold in expectation only: none is reported.

    A payoff outside the range of the spec's table is refused: it says that the table is wrong (another unit, a missing
    outcome), and to clip it would teach something else in silence. Its bringer finds it among the dead letters.
    """

    follows_rule = False

    def __init__(self, spec: SessionSpec) -> None:
        self._exp3 = Exp3.of(spec)

    def mix(self, rule: Rule, profile: Profile, tally: Tally) -> Mix:
        return self._exp3.mix(tally.estimates or Estimates())

    def check(self, state: State) -> None:
        payoff, exp3 = state.payoff, self._exp3
        if payoff is not None and not exp3.possible(payoff):
            limits = f"[{exp3.low:g}, {exp3.high:g}]"
            raise EventError("bad_event", f"payoff: {payoff!r} is outside {limits}, the range of the spec's actions")

    def learn(self, known: Counters, tally: Tally, decision: Decision) -> None:
        if decision.payoff is not None:
            tally.estimates = tally.estimates or Estimates()
            probability = dict(decision.mix)[decision.action]
            self._exp3.learn(tally.estimates, decision.action, probability, decision.payoff)


def policy_of(spec: SessionSpec) -> Policy:
    """The policy that the spec names."""
    learners: dict[str, type[ContextualHedge | ContextualExp3]] = {"hedge": ContextualHedge, "exp3": ContextualExp3}
    return learners[spec.policy](spec) if spec.policy in learners else Policy()
