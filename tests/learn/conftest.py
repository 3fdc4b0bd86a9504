"""What the tests of the learners share: a game of one profile whose states come back in any order, or never."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stream_agg.learn.hedge import Hedge

Payoffs = Sequence[tuple[float, float]]
Play = Callable[..., tuple[int, float, float]]


@pytest.fixture(scope="session")
def play() -> Play:
    """Plays a Hedge at one profile; gives the known rounds, the regret of the mixed actions, and its bound.

    `arrivals`: for each round, before which later round its state comes (None: never); `states`: the state of a round,
    or what chooses it from the mixed payoffs behind the best in state 0 and 1.
    """

    def game(
        hedge: Hedge,
        payoffs: Payoffs,
        arrivals: Sequence[int | None],
        states: Sequence[int] | Callable[[float, float], int],
    ) -> tuple[int, float, float]:
        counts, earned, cost = [0, 0], 0.0, 0.0
        tops = [max(u[s] for u in payoffs) for s in (0, 1)]
        due: dict[int, list[tuple[int, int, list[float]]]] = {}
        for t in range(len(arrivals) + 1):
            for known_then, state, expected in due.pop(t, []):
                counts[state] += 1
                earned += expected[state]
                cost += hedge.delay_cost(known_then, sum(counts))
            if t == len(arrivals):
                break
            mix = hedge.mix(*counts)
            expected = [sum(p * payoffs[a][s] for a, p in mix) for s in (0, 1)]
            behind = [top - x for top, x in zip(tops, expected, strict=True)]
            state = states(*behind) if callable(states) else states[t]
            arrival = arrivals[t]
            if arrival is not None:
                due.setdefault(min(max(arrival, t + 1), len(arrivals)), []).append((sum(counts), state, expected))
        best = max(counts[0] * u0 + counts[1] * u1 for u0, u1 in payoffs)
        return sum(counts), best - earned, hedge.bound([sum(counts)], cost)

    return game
