"""The comparison against sessions run one by one and baselines written down row by row."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

import orjson
import pytest

from stream_agg.errors import ConfigError
from stream_agg.events import parse_duration
from stream_agg.replay import files
from stream_agg.replay.compare import BEST, MEAN, Comparison, compare, play, policies
from stream_agg.replay.source import Row, Source, steps
from stream_agg.spec import SessionSpec

DAY_US = parse_duration("P1D")
ACTIONS = {"stay": [1.0, 0.0], "wait": [0.7, 0.6], "prepare": [0.0, 2.0]}


@pytest.fixture(scope="module")
def spec() -> SessionSpec:
    names = ("ecmwf", "gfs", "icon")
    record = {"session": "rain", "experts": {name: {"levels": 6} for name in names}, "actions": ACTIONS}
    return SessionSpec.from_dict({**record, "feedback": "state", "policy": "robust"})


@pytest.fixture(scope="module")
def compared(made_up: Path, spec: SessionSpec) -> Comparison:
    return compare(files.feed(Source(made_up), spec, DAY_US), policies(spec))


def test_policies_are_those_that_a_replay_of_their_own_gives(
    made_up: Path, spec: SessionSpec, compared: Comparison, tmp_path: Path
) -> None:
    outcomes = {row.event: row.outcome for row in Source(made_up).rows()}
    for name, own in policies(spec).items():
        files.replay(Source(made_up), own, DAY_US, tmp_path)
        actions = [orjson.loads(line) for line in (tmp_path / "actions.jsonl").read_bytes().splitlines()]
        payoffs = [
            sum(p * ACTIONS[a][outcomes[action["event"]] or 0] for a, p in action["strategy"].items())
            for action in actions
            if outcomes[action["event"]] is not None
        ]
        assert compared.events == len(payoffs)
        assert compared.line(name).payoff.mean == pytest.approx(fmean(payoffs), abs=1e-12)
        assert compared.line(name).kind == "policy"


def paid(p: float, outcome: int) -> float:
    """What the best action at that chance pays."""
    return max(ACTIONS.values(), key=lambda u: (1 - p) * u[0] + p * u[1])[outcome]


def test_baselines_are_those_of_a_naive_fold(made_up: Path, spec: SessionSpec, compared: Comparison) -> None:
    told: dict[str, list[float]] = defaultdict(list)
    groups: dict[Any, list[int]] = defaultdict(list)
    for row in Source(made_up).rows():
        if row.outcome is None:
            continue
        said = [p for p in row.forecasts.values() if p is not None] or [0.5]
        told[MEAN].append(paid(fmean(said), row.outcome))
        told["median forecast"].append(paid(median(said), row.outcome))
        for name, p in row.forecasts.items():
            told[f"expert:{name}"].append(paid(fmean(said) if p is None else p, row.outcome))
        levels = spec.profile(row.forecasts)
        groups["all", levels].append(row.outcome)
        for i, z in enumerate(levels):
            groups[i, z].append(row.outcome)
    for name, payoffs in told.items():
        assert compared.line(name).payoff.mean == pytest.approx(fmean(payoffs), abs=1e-12)
        assert compared.line(name).over_mean.mean == pytest.approx(fmean(payoffs) - fmean(told[MEAN]), abs=1e-12)
    best = max(fmean(x) for name, x in told.items() if name.startswith("expert:"))
    assert compared.line(BEST).payoff.mean == pytest.approx(best, abs=1e-12)
    assert compared.line(BEST).kind == "hindsight"
    map_of = {
        of: sum(max(sum(u[s] for s in came) for u in ACTIONS.values()) for key, came in groups.items() if key[0] == of)
        for of in ("all", 0, 1, 2)
    }
    n = compared.events
    assert compared.line("best map of profiles").payoff.mean == pytest.approx(map_of["all"] / n, abs=1e-12)
    one = max(map_of[i] for i in range(3)) / n
    assert compared.line("best map of one expert's levels").payoff.mean == pytest.approx(one, abs=1e-12)


def test_times_are_the_blocks(compared: Comparison) -> None:
    assert (compared.times, compared.block) == (125, 5)
    assert compared.line(MEAN).over_mean.error == 0.0
    line = compared.line("hedge")
    assert line.payoff.low is not None
    assert line.payoff.high is not None
    assert line.payoff.low < line.payoff.mean < line.payoff.high


def row(event: str, day: int, outcome: int | None, **said: float | None) -> Row:
    return Row(event, f"2026-01-{day + 1:02}T00:00:00Z", day * DAY_US, outcome, said)


def test_outcomes_teach_nobody_before_their_time(spec: SessionSpec) -> None:
    """With a delay beyond the end, no policy differs from one whose states are the opposite."""
    rows = [row(f"e{i}", i // 3, i % 3 == 0, ecmwf=0.2 * (i % 6), gfs=0.4, icon=None) for i in range(60)]
    other = [row(r.event, i // 3, 1 - (r.outcome or 0), **r.forecasts) for i, r in enumerate(rows)]
    late = parse_duration("P30D")
    _, some = play(steps(rows, late), policies(spec))
    _, others = play(steps(other, late), policies(spec))
    for name in some:
        u = {name: sum(pair) for name, pair in ACTIONS.items()}
        both = some[name] + others[name]  # x.u0 + x.u1: of the mixed action alone
        assert all(min(u.values()) - 1e-9 <= x <= max(u.values()) + 1e-9 for x in both.tolist())
    again = play(steps(rows, 0), policies(spec))[1]
    assert again["hedge"].tolist() != some["hedge"].tolist()
    assert again["robust"].tolist() == some["robust"].tolist()


def test_rows_that_cannot_be_used_are_left_out_for_all(spec: SessionSpec) -> None:
    rows = [row("a", 0, 1, ecmwf=0.9), row("a", 0, 1, ecmwf=0.9), row("b", 1, None, gfs=0.1), row("c", 2, 0, gfs=0.2)]
    kept, played = play(steps(rows, DAY_US), policies(spec))
    assert [r.event for r in kept] == ["a", "c"]
    assert {len(x) for x in played.values()} == {2}


def test_nothing_to_compare_is_said(spec: SessionSpec) -> None:
    with pytest.raises(ConfigError, match="no event with an outcome"):
        compare(steps([row("a", 0, None, gfs=0.1)], DAY_US), policies(spec))


def test_a_specs_own_epsilon_is_compared_too(spec: SessionSpec) -> None:
    own = SessionSpec.from_dict({**spec.to_dict(), "epsilon": 0.03})
    assert policies(own)["robust, epsilon 0.03"].epsilon == 0.03
    assert set(policies(own)) == {*policies(spec), "robust, epsilon 0.03"}
    assert all(s.feedback == "state" for s in policies(own).values())
