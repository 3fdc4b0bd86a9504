"""Contextual Hedge (Algorithm 2): the mixed action of one profile from its counts of states, and its regret bound.

Weights follow from how often state 0 and state 1 were seen with a profile, so the order of arrival cannot matter and
nothing else is stored. One profile, its n known rounds in the order in which their states arrived; G_k is the sum of
the first k payoff vectors, R the largest range of payoffs within one state. The round whose state arrives k-th was
decided when the first c <= k-1 had arrived, by x_k = softmax(rate_{c+1} G_c).

Rates. What is added to all payoffs of a state changes nothing, so payoffs count as centred in each state, where the
paper's U is R/2 (never more than max |u|). With a horizon T, Algorithm 2's rate (1/U) sqrt(m log d / (2T)), with
min(m, T) for m: T rounds show no more profiles, so the theorem's 2U sqrt(2 min(m, T) T log d) stays true, and however
large m is the rate stays of order 1/U, where that of m = 1e12 would follow the leader of every profile and could
lose in every round. Without a horizon, rate_k = sqrt(log d / k) / U.

Bound, for all states and all delays, of Cont less the expected payoff. For rates that never grow, and no delay:

    log d / rate_n + (R^2/8) sum_k rate_k                       (as in Cesa-Bianchi and Lugosi 2006, section 2.3)

since P_k(r) = (1/r) log mean_a exp(r G_k(a)) grows with r, is at least max G_k - log d / r, and by Hoeffding's lemma
x.g_k >= P_k(rate_k) - P_{k-1}(rate_k) - rate_k R^2/8; sum over k. That is R sqrt(n log d) without a horizon, so
R sqrt(m T log d) in all at most; with one, the n of every profile are put in, beyond T as well.

Delay adds sum_k (y_k - x_k).g_k, with y_k = softmax(rate_k G_{k-1}). Go from x_k to y_k by one arrival j = c+1..k-1 at
a time: exponents move by v = rate_{j+1} g_j - (rate_j - rate_{j+1}) G_{j-1}, and softmax(s + v).g - softmax(s).g is a
mean of covariances of v and g, at most range(v) R/4. A fixed rate has range(v) <= rate R. The falling one has rate_j -
rate_{j+1} <= rate_{j+1} / (2j) and range(G_{j-1}) <= (j-1) R, so range(v) <= (3/2) rate_{j+1} R, and the steps of a
round add up to at most (3/2) R sqrt(log d) (sqrt(k) - sqrt(c+1)). No round costs more than R. States that never come
cost nothing.

With at most D states of a profile between a decision and its own, that is (1 + 1.5 D) R sqrt(n log d) or so. A rate
tuned to the delay would give order sqrt((n + total delay) log d) (Weinberger and Ordentlich 2002; Joulani, Gyorgy and
Szepesvari 2013); these rates know nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Self

from stream_agg.learn.weights import Mix, mixed, profiles_within
from stream_agg.spec import SessionSpec


class Hedge:
    """Hedge for every profile of a session: payoffs (d pairs of state 0 and 1), and the rate.

    `profiles_per_round`: min(m, T) / T for a horizon of T rounds; None for the rate that needs none.

    >>> Hedge([(1.0, 0.0), (0.0, 1.0)]).mix(5, 5)
    ((0, 0.5), (1, 0.5))
    """

    def __init__(self, payoffs: Sequence[tuple[float, float]], profiles_per_round: float | None = None) -> None:
        by_state = ([u0 for u0, _ in payoffs], [u1 for _, u1 in payoffs])
        tops = [max(u) for u in by_state]
        self.span = max(max(u) - min(u) for u in by_state)
        """R."""
        unit = self.span or 1.0
        # Behind the best action of the state, in units of R: large payoffs with small differences lose no digits.
        self._behind = tuple(((u0 - tops[0]) / unit, (u1 - tops[1]) / unit) for u0, u1 in payoffs)
        self._log_d = math.log(len(payoffs))
        self._fixed = None if profiles_per_round is None else math.sqrt(2 * profiles_per_round * self._log_d)
        """Algorithm 2's rate in units of 1/R; None without a horizon."""

    @classmethod
    def of(cls, spec: SessionSpec) -> Self:
        """With the rate that the spec asks for."""
        horizon = spec.horizon
        return cls(tuple(spec.actions.values()), horizon and profiles_within(spec, horizon) / horizon)

    def mix(self, states0: int, states1: int) -> Mix:
        """The mixed action of a profile seen so often with state 0 and state 1."""
        rate = self._fixed
        if rate is None:
            rate = 2 * math.sqrt(self._log_d / (states0 + states1 + 1))
        zero, one = rate * states0, rate * states1
        return mixed([zero * b0 + one * b1 for b0, b1 in self._behind])

    def delay_cost(self, known_then: int, arrived: int) -> float:
        """What the delay of the profile's state number `arrived` adds to the bound, in payoff, when `known_then` of
        the profile's states were known at the decision."""
        if self._fixed is None:
            steps = 1.5 * math.sqrt(self._log_d) * (math.sqrt(arrived) - math.sqrt(known_then + 1))
        else:
            steps = 0.25 * self._fixed * (arrived - 1 - known_then)
        return self.span * min(steps, 1.0)

    def bound(self, states: Iterable[int], delay_cost: float) -> float:
        """The bound of Cont less the expected payoff: `states` known per profile, and the sum of their delay costs."""
        known = [n for n in states if n]
        proven = math.fsum(map(self._undelayed, known))  # exact: profiles have no order
        return min(self.span * proven + delay_cost, self.span * sum(known))

    def _undelayed(self, n: int) -> float:
        """For one profile, in units of R."""
        if not self._log_d:
            return 0.0
        if self._fixed is None:
            return min(math.sqrt(n * self._log_d), n)
        return min(self._log_d / self._fixed + self._fixed * n / 8, n)
