"""The look at a fixed distribution: what it computes, how seldom it is wrong, what it finds, how it is kept."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from scipy.stats import chi2, chi2_contingency, hypergeom

import stream_agg as sa
from stream_agg.events import DriftPart, Forecast
from stream_agg.replay.source import Source
from stream_agg.session.drift import ALPHA, EXPECTED, Drift, compare, due, merge, number

Make = Callable[..., sa.Session]
At = Callable[[float], str]
Rounds = list[tuple[int, ...]]

LOOKS = [r for r in range(64, 5000) if due(r)]


def counted(rounds: Rounds, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Reports by expert, silence (-1) last."""
    return tuple(
        tuple(np.bincount([e[i] % (k + 1) for e in rounds], minlength=k + 1).tolist()) for i, k in enumerate(sizes)
    )


def follow(rounds: Rounds, sizes: Sequence[int]) -> Iterator[DriftPart]:
    """The looks at a history, by counting it anew for each."""
    drift = Drift()
    for t in range(len(rounds) + 1):
        if due(t):
            drift = drift.look([f"x{i}" for i in range(len(sizes))], counted(rounds[:t], sizes))
            if drift.latest:
                yield drift.latest


def naive(rounds: Rounds, sizes: Sequence[int]) -> DriftPart:
    """A look at the whole history, from Pearson's formula and the chi-square law alone; first_alarm is left out."""
    half, found = len(rounds) // 2, []
    for i, size in enumerate(sizes):
        early, recent = Counter(e[i] for e in rounds[:half]), Counter(e[i] for e in rounds[half:])
        cells, open_cell = [], np.zeros(2)
        for level in [*range(size), -1]:
            open_cell = open_cell + np.array([early[level], recent[level]])
            if open_cell.sum() >= 10:
                cells.append(open_cell)
                open_cell = np.zeros(2)
        cells[-1] = cells[-1] + open_cell
        expected = np.sum(cells, axis=1, keepdims=True) / 2
        off = np.abs(np.array(cells) - expected)
        if len(cells) == 2:
            off = np.maximum(off - 0.5, 0)  # Yates
        p = chi2.sf((off**2 / expected).sum(), len(cells) - 1) if len(cells) > 1 else 1.0
        found.append((p, np.abs(np.array(cells) - expected).sum() / len(rounds), f"x{i}"))
    p, distance, expert = min(found, key=lambda f: (f[0], -f[1], f[2]))
    looks = LOOKS.index(len(rounds)) + 1
    p = min(p * len(sizes) * looks * (looks + 1), 1.0)
    return DriftPart(len(rounds), expert, p, distance, p <= 0.01, None)


def session_of(levels: Sequence[Any], **changes: Any) -> sa.Session:
    spec = {
        "session": "s",
        "experts": {f"x{i}": {"levels": k} for i, k in enumerate(levels)},
        "actions": {"stay": [1, 0], "go": [0, 2]},
        "schedule": {"growth": 0.5},
    }
    return sa.Session(sa.SessionSpec.from_dict(spec | changes))


def drawn(rng: random.Random, sizes: Sequence[int], rounds: int, shift: float = 0.0) -> Rounds:
    """Independent rounds: every expert's levels weighed 1, 2, 3, ..., the first one's as much more as `shift` says."""
    weights = [[1.0, *(1.0 + level for level in range(k))] for k in sizes]  # silence first
    weights[0][1] += shift
    return list(
        zip(*(rng.choices(range(-1, k), w, k=rounds) for k, w in zip(sizes, weights, strict=True)), strict=True)
    )


def decide(session: sa.Session, rounds: Rounds, start: int = 0) -> None:
    alphabets = list(session.spec.experts.items())
    for t, e in enumerate(rounds, start):
        reports = {name: None if i < 0 else a.levels[i] for (name, a), i in zip(alphabets, e, strict=True)}
        session.forecast(Forecast("s", f"e{t}", t * 1_000_000, reports))


class TestLooks:
    def test_they_come_four_to_the_doubling_and_half_of_each_was_counted(self) -> None:
        assert LOOKS[:10] == [64, 80, 96, 112, 128, 160, 192, 224, 256, 320]
        assert [r for r in range(64) if due(r)] == [32, 40, 48, 56]
        assert all(due(r // 2) and r % 2 == 0 for r in LOOKS)
        assert [number(r) for r in LOOKS] == list(range(1, len(LOOKS) + 1))

    @pytest.mark.parametrize("seed", range(6))
    def test_a_session_says_what_its_whole_history_says(self, seed: int) -> None:
        rng = random.Random(seed)
        sizes = [rng.choice([1, 2, 3, 11, 40]) for _ in range(rng.randint(1, 4))]
        rounds = drawn(rng, sizes, 200) + drawn(rng, sizes, 220, shift=9.0 * (seed % 3))
        session = session_of([[0.5] if k == 1 else k for k in sizes])
        first = None
        for t in range(420):
            decide(session, rounds[t : t + 1], t)
            seen = session.drift.latest
            if t + 1 in LOOKS:
                assert seen is not None
                expected = naive(rounds[: t + 1], sizes)
                first = first or (seen.round if seen.alarm else None)
                assert seen == replace(
                    expected, p_value=pytest.approx(expected.p_value), distance=pytest.approx(expected.distance),
                    first_alarm=first,
                )  # fmt: skip
        assert seen is not None
        assert seen.round == 384
        assert session.report().drift == seen
        assert orjson.loads(orjson.dumps(session.report()))["drift"] == orjson.loads(orjson.dumps(seen))

    def test_there_is_none_before_round_64(self, make: Make, at: At) -> None:
        session = make(schedule={"every": 50})
        for t in range(64):
            assert session.report().drift is None
            session.decide(f"e{t}", {"ecmwf": 0.3}, at(t))
        assert session.report().drift == DriftPart(64, "ecmwf", 1.0, 0.0, False, None)

    def test_cells_expect_enough_and_lose_nothing(self) -> None:
        rng = random.Random(1)
        for _ in range(200):
            rows = [[rng.choice([0, 0, 1, 4, 30]) for _ in range(12)] for _ in range(2)]
            cells = merge(*rows)
            assert [sum(c) for c in zip(*cells, strict=True)] == [sum(row) for row in rows]
            if sum(map(sum, rows)) >= 2 * EXPECTED:
                assert min(map(sum, cells)) >= 2 * EXPECTED

    def test_of_two_changes_beyond_all_numbers_the_larger_is_named(self) -> None:
        drift, names = Drift(), ("a", "b", "c")
        for t in (32 << 14, 40 << 14, 48 << 14, 56 << 14):
            drift = drift.look(names, ((t, 0), (t, 0), (t // 2, t // 2)))
        half, t = 32 << 14, 64 << 14
        found = drift.look(names, ((t - half // 2, half // 2), (half, half), (half, half))).latest
        assert found == DriftPart(t, "b", 0.0, 1.0, True, t)


class TestFalseAlarms:
    def test_a_session_seldom_raises_one(self) -> None:
        """The smallest p-value of all looks of a stream is below x in a share of at most x of the streams."""
        rng, sizes, streams = np.random.default_rng(7), (2, 4, 11), 300
        blocks = np.diff([0, 32, 40, 48, 56, *LOOKS[:13]])
        smallest, alarms = [], 0
        for _ in range(streams):
            drift, total = Drift(), [np.zeros(k + 1, dtype=int) for k in sizes]
            chances = [rng.dirichlet(np.full(k + 1, 0.7)) for k in sizes]
            lowest = 1.0
            for block in blocks:
                total = [n + rng.multinomial(block, p) for n, p in zip(total, chances, strict=True)]
                drift = drift.look("abc", tuple(tuple(n.tolist()) for n in total))
                lowest = min(lowest, drift.latest.p_value if drift.latest else 1.0)
            smallest.append(lowest)
            assert drift.latest is not None
            alarms += drift.latest.first_alarm is not None
        assert alarms == sum(p <= ALPHA for p in smallest)
        for x in (ALPHA, 0.05, 0.2, 0.5):
            share = sum(p <= x for p in smallest) / streams
            assert share <= x + 3 * (x * (1 - x) / streams) ** 0.5
        assert sum(p <= 0.5 for p in smallest) > 0.05 * streams  # nor is it deaf

    def test_it_is_the_test_of_scipy_to_the_bit(self) -> None:
        rng = random.Random(9)
        for cells, reports in [(n, 20 * n * size) for n in (1, 2, 3, 8, 13) for size in (1, 7, 900) for _ in range(5)]:
            chances = [rng.random() + 0.5 for _ in range(cells)]
            rows = [Counter(rng.choices(range(cells), chances, k=reports)) for _ in range(2)]
            early, recent = ([row[i] for i in range(cells)] for row in rows)
            table = list(zip(*merge(early, recent), strict=True))
            assert compare(early, recent)[0] == chi2_contingency(table).pvalue

    @pytest.mark.parametrize("rounds", [64, 80, 128])
    def test_two_cells_keep_the_level_by_the_exact_law(self, rounds: int) -> None:
        """Given the totals, the reports in the early half are hypergeometric: every outcome is weighed."""
        half = rounds // 2
        for total in range(2 * EXPECTED, half + 1):
            early = np.arange(total + 1)
            p = np.array([compare([half - k, k], [half - total + k, total - k])[0] for k in early.tolist()])
            chance = hypergeom(rounds, total, half).pmf(early)
            for level in (5e-3, 1e-3, 1e-4, 1e-5):
                assert chance[p <= level].sum() <= level

    def test_days_alone_raise_it_and_the_distance_falls(self) -> None:
        """As documented: rows of one day that go together are no independent draws, though no day is like the last."""
        rng = random.Random(3)
        days = [rng.random() for _ in range(205)]
        looks = list(follow([(int(rng.random() < day),) for day in days for _ in range(20)], [2]))
        assert looks[-1].first_alarm is not None
        assert looks[-1].distance < 0.1 < max(look.distance for look in looks)


class TestPower:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("change", [300, 450, 700])
    def test_a_change_is_found_before_the_rounds_double_and_named(self, change: int, seed: int) -> None:
        rng, sizes = random.Random(seed), (5, 11, 3)
        looks = list(follow(drawn(rng, sizes, change) + drawn(rng, sizes, change, shift=9.0), sizes))
        assert looks[-1].expert == "x0"
        assert looks[-1].first_alarm is not None
        assert change < looks[-1].first_alarm <= 2 * change

    def test_falling_silent_is_a_change(self) -> None:
        looks = list(follow([(1, 1)] * 100 + [(1, -1)] * 28, [2, 3]))
        assert (looks[-1].expert, looks[-1].alarm, looks[-1].distance) == ("x1", True, 28 / 64)

    def test_who_has_one_level_or_is_always_silent_never_changes(self) -> None:
        looks = list(follow([(0, -1)] * 200, [1, 11]))
        assert {(look.p_value, look.distance, look.first_alarm) for look in looks} == {(1.0, 0.0, None)}

    def test_an_old_alarm_is_remembered_when_the_latest_look_has_none(self) -> None:
        rng, sizes = random.Random(0), (5,)
        early = [(0,)] * 40 + [(3,)] * 40
        looks = list(follow(early + drawn(rng, sizes, 2000), sizes))
        assert looks[0].alarm
        assert not looks[-1].alarm
        assert looks[-1].first_alarm == 64


class TestKept:
    def test_saved_and_loaded_anywhere_it_goes_on_the_same(self) -> None:
        rng, sizes = random.Random(4), (3, 11)
        rounds = drawn(rng, sizes, 130) + drawn(rng, sizes, 130, shift=9.0)
        through, again = session_of(sizes), session_of(sizes)
        for t, e in enumerate(rounds):
            decide(through, [e], t)
            if t % 7 == 0 or due(t):
                again = sa.Session.from_bytes(again.to_bytes())
            decide(again, [e], t)
            assert again.drift == through.drift
            assert again.to_bytes() == through.to_bytes()
        assert through.drift.latest is not None
        assert through.drift.latest.first_alarm is not None

    def test_it_is_written_when_it_looked_and_only_then(self) -> None:
        session = session_of((3,), schedule={"every": 10_000})
        session.changes()
        written = []
        for t in range(600):
            decide(session, [(t % 3,)], t)
            if "drift" in session.changes()["state"]:
                written.append(t + 1)
        assert written == [32, 40, 48, 56, *(r for r in LOOKS if r <= 600)]

    def test_it_does_not_grow(self) -> None:
        session = session_of((3, 4))
        decide(session, [(t % 3, t % 4) for t in range(1100)])
        assert len(session.drift.past) == 4
        assert orjson.loads(session.tables()["state"]["drift"])["past"][-1] == {
            "x0": [342, 341, 341, 0],
            "x1": [256, 256, 256, 256, 0],
        }

    def test_who_only_solves_does_not_wait_for_the_import(self) -> None:
        ask = (
            "import sys, stream_agg as sa; from stream_agg.session import drift; "
            "print('scipy.special' in sys.modules); drift.warm_up(); print('scipy.special' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.split() == ["False", "True"]


@pytest.mark.data
def test_real_solar_forecasts_change_with_the_solar_cycle(data: Callable[[str], Path]) -> None:
    source = Source(data("solar_c1_6m"))
    spec = session_of([2]).spec.to_dict()
    spec["experts"] = {name: {"levels": 11} for name in source.experts}
    session = sa.Session(sa.SessionSpec.from_dict(spec))
    for row in source.rows():
        session.forecast(Forecast("s", row.event, row.time_us, row.forecasts))
    found = session.report().drift
    assert found is not None
    assert (found.round, found.expert, found.alarm, found.first_alarm) == (640, "CLIM120", True, 80)
    assert found.distance == pytest.approx(0.728, abs=0.001)
