"""In what policies differ: the mixed action, what feedback teaches beyond the counts, what is proven. No storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stream_agg.errors import EventError
from stream_agg.events import MemberPart, State
from stream_agg.learn.exp3 import Estimates, Exp3
from stream_agg.learn.hedge import Hedge
from stream_agg.learn.weights import Mix
from stream_agg.rule.rule import Rule
from stream_agg.rule.support import Profile
from stream_agg.session.codec import Counters, Decision
from stream_agg.session.hybrid import Pool
from stream_agg.session.pool import Note
from stream_agg.session.scores import Tally
from stream_agg.spec import SessionSpec


class Policy:
    """`robust` (Algorithm 1): plays the rule in force, which feedback does not change. The learners differ from it."""

    name = "robust"
    pool: Pool | None = None
    """Of `hybrid`; its sums are stored with the session."""

    @property
    def follows_rule(self) -> bool:
        """Whether actions are the robust rule's; if not, it is solved all the same, to measure them by."""
        return self.name == "robust"

    def act(
        self, rule: Rule, profile: Profile, tally: Tally, told: Mapping[str, float | None]
    ) -> tuple[Mix, Note | None]:
        """The mixed action at a profile, from the rule in force, what is known of the profile and what was `told` in
        the very words; and what learning will need of it."""
        return self.mix(rule, profile, tally), None

    def mix(self, rule: Rule, profile: Profile, tally: Tally) -> Mix:
        """The mixed action of a policy that looks at no more than this."""
        return rule.mix(profile)

    def check(self, state: State) -> None:
        """`EventError` for feedback of the right kind that cannot be learned from."""

    def learn(self, known: Counters, tally: Tally, decision: Decision) -> None:
        """Learn from a decision whose feedback is known and counted now."""

    def bound(self, known: Counters, tallies: Iterable[Tally]) -> float | None:
        """What contextual less expected payoff cannot exceed, over the known rounds; None where nothing is proven."""
        return None

    def members(self) -> dict[str, MemberPart] | None:
        """What is known of the members of the pool of `hybrid`, once a state is."""
        return None


class ContextualHedge(Policy):
    """`hedge` (Algorithm 2), a function of the counts of states; the session keeps what their delay may have cost."""

    name = "hedge"

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

    name = "exp3"

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


class Hybrid(Policy):
    """`hybrid`: the robust rule itself until the first state is learned, then the pool (`session.hybrid`)."""

    def __init__(self, spec: SessionSpec) -> None:
        self.pool: Pool = Pool(spec)

    @property
    def name(self) -> str:  # type: ignore[override]
        return "hybrid" if self.pool.learned.regrets.states else "robust"

    def act(
        self, rule: Rule, profile: Profile, tally: Tally, told: Mapping[str, float | None]
    ) -> tuple[Mix, Note | None]:
        mix, note = self.pool.play(rule, profile, tally, told)
        return rule.mix(profile) if self.follows_rule else mix, note

    def learn(self, known: Counters, tally: Tally, decision: Decision) -> None:
        if decision.note is not None and decision.state is not None:
            known.delay_cost += self.pool.hedge.delay_cost(decision.states_known, tally.states0 + tally.states1)
            self.pool.learn(decision.note, decision.mix, decision.state)
            decision.note = None

    def bound(self, known: Counters, tallies: Iterable[Tally]) -> float | None:
        """That of contextual Hedge on its own, and that of this policy against it: None where it is no member."""
        member = (self.members() or {}).get("hedge")
        if member is None:
            return None
        hedge = self.pool.hedge
        alone = hedge.bound((t.states0 + t.states1 for t in tallies), known.delay_cost)
        return min(alone + member.bound, hedge.span * known.states)

    def members(self) -> dict[str, MemberPart] | None:
        return None if self.follows_rule else self.pool.members()


def policy_of(spec: SessionSpec) -> Policy:
    """The policy that the spec names."""
    learners: dict[str, type[ContextualHedge | ContextualExp3 | Hybrid]] = {
        "hedge": ContextualHedge,
        "exp3": ContextualExp3,
        "hybrid": Hybrid,
    }
    return learners[spec.policy](spec) if spec.policy in learners else Policy()
