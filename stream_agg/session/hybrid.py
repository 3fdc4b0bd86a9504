"""Policy `hybrid`: Squint over a pool of policies, each scored on every known state as if it had played alone.

The pool, `SessionSpec.members`. On the reports as they came, not on their levels, which round:

    expert:NAME    the best action at what that expert says; where it is silent, what `mean` plays
    mean, median   the best action at the mean or median of the reports; at one half where all are silent
    logistic       the best action at `learn.logistic`'s pool of log-odds

and on the profile of levels:

    robust         the rule in force (Algorithm 1)
    recalibrated   the rule of the same counts on recalibrated levels (`session.recalibrated`), until then `robust`
    hedge          contextual Hedge (Algorithm 2)

Until a state is known there is nothing to choose by, and what is played is the robust rule itself, with its gap, and
said to be: "policy": "robust". From the first state on it is the members' mixed actions, mixed by their weights, and
"policy" is "hybrid". What those first rounds cost against any member is in the bound, since that is of what was played.

Prior: half for the mean, two fifths for the logistic pool, which starts as a mean, too, and a tenth for all others
together; a half costs log 2 of evidence, however many members there are. Forecasters are many and states may be few,
and averaging is what a user would do without us, so it must not be lost to for having looked at the others. Where some
of the three are not in the pool, the others' shares stay in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stream_agg.events import MemberPart
from stream_agg.learn import blend
from stream_agg.learn.hedge import Hedge
from stream_agg.learn.logistic import LogisticPool
from stream_agg.learn.squint import SCALE, Floats, Squint
from stream_agg.learn.weights import NEGLIGIBLE, Mix
from stream_agg.rule.envelope import envelope
from stream_agg.rule.rule import Rule
from stream_agg.rule.support import Profile
from stream_agg.session.pool import Learned, Note
from stream_agg.session.scores import Tally
from stream_agg.spec import SessionSpec

MIXERS = ("robust", "recalibrated", "hedge")
"""Members that may mix actions; the others play one for sure."""

SHARES = {"mean": 0.5, "logistic": 0.4}
OTHERS = 0.1


def prior(members: Sequence[str]) -> list[float]:
    """What each member weighs before any state.

    >>> prior(["mean", "logistic", "hedge", "robust"])
    [0.5, 0.4, 0.05, 0.05]
    """
    others = sum(name not in SHARES for name in members)
    shares = [SHARES.get(name, OTHERS / max(others, 1)) for name in members]
    return [share / sum(shares) for share in shares]


class Pool:
    """The members of a session at work: what each would play, what the mix of them is, what was learned of them."""

    def __init__(self, spec: SessionSpec) -> None:
        self.names = spec.members
        self._experts = tuple(spec.experts)
        payoffs = np.array(list(spec.actions.values())).T
        self._tops = payoffs.max(axis=1)
        self.hedge = Hedge.of(spec)
        self._rows: list[list[float]] = ((payoffs - self._tops[:, None]) / (self.hedge.span or 1.0)).tolist()
        """Of every action in state 0 and 1, shape (2, d): behind the best one, in units of the largest range."""
        cost = envelope(tuple(spec.actions.values()))
        self._cost, self._kinks, self._best = cost, np.array(cost.ends[1:-1]), np.array(cost.actions, dtype=np.int64)
        self._surely = np.array([k for k, name in enumerate(self.names) if name not in MIXERS], dtype=np.int64)
        self._mixing = np.array([k for k, name in enumerate(self.names) if name in MIXERS], dtype=np.int64)
        self._mixers = tuple([name for name in self.names if name in MIXERS])
        self._order = np.argsort([*self._surely, *self._mixing])
        said = (*(f"expert:{x}" for x in self._experts), "mean", "median", "logistic")
        self._saying = np.array([said.index(self.names[k]) for k in self._surely.tolist()], dtype=np.int64)
        self.master, self._logistic = Squint(prior(self.names)), LogisticPool(len(self._experts))
        self._logistic_in, self.recalibrates = "logistic" in self.names, "recalibrated" in self.names
        self.learned = Learned(
            self.master.nothing(), np.zeros(len(self.names), dtype=np.int64), self._logistic.nothing()
        )
        self._untuned = np.zeros(0)
        self._now: tuple[Floats, list[float], tuple[int, ...]] | None = None

    def play(self, rule: Rule, profile: Profile, tally: Tally, told: Mapping[str, float | None]) -> tuple[Mix, Note]:
        """The members' mixed actions mixed by their weights, and what learning will need."""
        reports = tuple([told.get(x) for x in self._experts])
        weights, mixing, regrets = self._standing()
        tuned = self._logistic.weights(self.learned.sums) if self._logistic_in else self._untuned
        acts, sure, log_odds = blend.play(
            _array(reports), tuned, self._saying, self._kinks, self._best, weights, self._surely, len(self._rows[0])
        )
        mixes, chances = self._mixes(rule, profile, tally), sure.tolist()
        for weight, mix in zip(mixing, mixes, strict=True):
            for action, probability in mix:
                chances[action] += weight * probability
        total = sum(chances)
        mixed = tuple([self._worth(mix) for mix in mixes])
        note = Note(tuple(acts.tolist()), mixed, regrets, reports if self._logistic_in else (), log_odds)
        return tuple([(a, w / total) for a, w in enumerate(chances) if w > NEGLIGIBLE]), note

    def learn(self, note: Note, played: Mix, state: int) -> None:
        """The state of a decision with that note, at which `played` was played."""
        learned = self.learned
        gains = self._gained(note, state)
        self.master.learn(learned.regrets, gains - self._worth(played)[state], note.regrets)
        learned.gains += np.rint(gains * SCALE).astype(np.int64)
        learned.states1 += state
        if self._logistic_in:
            self._logistic.learn(learned.sums, _array(note.reports), note.log_odds, state)
        self._now = None

    def members(self) -> dict[str, MemberPart]:
        """What each member's payoff, weight and bound is after the states learned."""
        learned, span = self.learned, self.hedge.span
        most = float(np.array([learned.states0, learned.states1]) @ self._tops)
        payoffs = (learned.gains * (span / SCALE) + most).tolist()
        weights, bounds = self._standing()[0].tolist(), (span * self.master.bounds(learned.regrets)).tolist()
        return {name: MemberPart(*part) for name, *part in zip(self.names, payoffs, weights, bounds, strict=True)}

    def _standing(self) -> tuple[Floats, list[float], tuple[int, ...]]:
        """Weights of all and of the mixers, and sums of regrets, now; the same until a state is learned."""
        if self._now is None:
            weights, regrets = self.master.weights(self.learned.regrets), self.learned.regrets.sums
            self._now = weights, weights[self._mixing].tolist(), tuple(regrets.tolist())
        return self._now

    def _mixes(self, rule: Rule, profile: Profile, tally: Tally) -> list[Mix]:
        """What each of the mixers would play."""
        robust, prices, mixes = rule.mix(profile), self.learned.prices, []
        for name in self._mixers:
            if name == "hedge":
                mixes.append(self.hedge.mix(tally.states0, tally.states1))
            elif name == "robust" or prices is None:
                mixes.append(robust)
            else:
                mixes.append(self._cost.respond(sum([row[x] for row, x in zip(prices, profile, strict=True)])))
        return mixes

    def _worth(self, mix: Mix) -> tuple[float, float]:
        zero, one = self._rows
        if len(mix) == 1:
            ((a, _),) = mix
            return zero[a], one[a]
        return sum([p * zero[a] for a, p in mix]), sum([p * one[a] for a, p in mix])

    def _gained(self, note: Note, state: int) -> Floats:
        """Gains of the members, shape (K,)."""
        row = self._rows[state]
        return np.array([*[row[a] for a in note.acts], *[pair[state] for pair in note.mixed]])[self._order]


def _array(reports: Sequence[float | None]) -> Floats:
    return np.array(reports, dtype=np.float64)  # None becomes nan
