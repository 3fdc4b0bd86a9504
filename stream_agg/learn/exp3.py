"""Contextual EXP3 (the remark after Algorithm 2): one learner per profile, from the payoff of the played action alone.

Losses are (high - payoff) / (high - low) in the range of the spec's payoffs. The loss of a played action is divided
by its probability at decision time, whatever that of today is: so the sum of an action's estimates has the mean of
the sum of its losses, in any order and with any delay, as long as neither depends on the action drawn.

Rates, of n updates: sqrt(log d / (d k)) at the k-th, for which 2 (high - low) sqrt(n d log d) bounds the regret of a
profile (Bubeck and Cesa-Bianchi 2012, theorem 3.1); with a horizon T, sqrt(2 min(m, T) log d / (d T)) for
(high - low) sqrt(2 min(m, T) T d log d) in all. Both hold in expectation over the draws and without delay (for the
cost of delay: Cesa-Bianchi, Gentile and Mansour 2019), so reports claim neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from stream_agg.learn.weights import Mix, mixed, profiles_within
from stream_agg.spec import SessionSpec

ROUNDING = 1e-9
"""A payoff outside the range by this share of its size at most was rounded on its way here."""


@dataclass(slots=True)
class Estimates:
    """What one profile has learned: how many payoffs, and the estimated total loss of each action ever paid for."""

    updates: int = 0
    losses: dict[int, float] = field(default_factory=dict)


class Exp3:
    """EXP3 for every profile of a session: payoffs (d pairs of state 0 and 1), and the rate as for `Hedge`."""

    def __init__(self, payoffs: Sequence[tuple[float, float]], profiles_per_round: float | None = None) -> None:
        self.low, self.high = min(map(min, payoffs)), max(map(max, payoffs))
        self._unit = self.high - self.low or 1.0
        self._actions = range(len(payoffs))
        self._hardness = math.log(len(payoffs)) / len(payoffs)
        self._fixed = None if profiles_per_round is None else math.sqrt(2 * profiles_per_round * self._hardness)

    @classmethod
    def of(cls, spec: SessionSpec) -> Self:
        """With the rate that the spec asks for."""
        horizon = spec.horizon
        return cls(tuple(spec.actions.values()), horizon and profiles_within(spec, horizon) / horizon)

    def possible(self, payoff: float) -> bool:
        """Whether the payoff lies in the range of the spec's payoffs, on which rates and bounds rest."""
        rounding = ROUNDING * max(abs(self.low), abs(self.high))
        return self.low - rounding <= payoff <= self.high + rounding

    def mix(self, known: Estimates) -> Mix:
        """The mixed action of a profile."""
        rate = math.sqrt(self._hardness / (known.updates + 1)) if self._fixed is None else self._fixed
        losses = known.losses
        return mixed([-rate * losses.get(a, 0.0) for a in self._actions])

    def learn(self, known: Estimates, action: int, probability: float, payoff: float) -> None:
        """Learn the payoff of an action that was drawn with that probability."""
        loss = min(max((self.high - payoff) / self._unit, 0.0), 1.0)
        known.updates += 1
        known.losses[action] = known.losses.get(action, 0.0) + loss / probability
