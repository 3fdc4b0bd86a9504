"""The oracle against the engine, and that it sees what is wrong: one thing at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from _faults.feed import feed, specs
from _faults.fold import Fold, Published

from stream_agg.events import Forecast, State
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec
from stream_agg.watch.observer import Observer
from stream_agg.worker.batch import Batch, read
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Encoder, Place

SPECS = specs(1, 2)
World = tuple[dict[tuple[str, int], list[tuple[int, bytes]]], Published, dict[str, Any]]


@pytest.fixture(scope="module")
def world() -> World:
    """A feed through the batches, without any server."""
    batch = Batch(
        {n: Session(SessionSpec.from_dict(s)) for n, s in SPECS.items()}, Encoder(Settings()), 1, Observer().facts()
    )
    log: dict[tuple[str, int], list[tuple[int, bytes]]] = {("forecasts", 0): [], ("states", 0): []}
    for topic, key, value in feed(1, 2, 800, mishaps=3.0, minutes=60):
        at = len(log[topic, 0])
        log[topic, 0].append((at, value))
        decoder: Callable[[Any], Any] = Forecast.from_record if topic == "forecasts" else State.from_record
        batch.event(read(Place(topic, 0, at, 0, key.encode(), value), decoder))
    tables = {
        n: {t: {k: v.decode() for k, v in f.items()} for t, f in s.tables().items()} for n, s in batch.sessions.items()
    }
    out = Published()
    for row in batch.rows:
        headers = dict(row.headers)
        if row.topic == "actions":
            told = json.loads(row.value)
            out.actions[told["session"], told["event"]] = told
        elif row.topic == "regret":
            told = json.loads(row.value)
            name = told["reason"], told["round"], told["realized"]["states"]
            out.regrets.setdefault(told["session"], {})[name] = told
        elif row.topic == "dead-letters":
            out.dead[headers["topic"], 0, int(headers["offset"])] = headers["reason"], row.value
    return log, out, tables


def folded(world: World) -> Fold:
    log, out, tables = deepcopy(world)
    fold = Fold(SPECS, log, out).run()
    fold.compare(tables)
    return fold


def test_it_agrees_with_the_engine(world: World) -> None:
    fold = folded(world)
    assert fold.faults == {}
    assert fold.checked["programs"] > 5
    assert {"late", "conflict", "unknown", "duplicate", "parked", "bad_json"} <= {k for k, n in fold.kinds.items() if n}


def _first(found: dict[Any, Any]) -> Any:
    return next(iter(found))


def _other_counter(world: World) -> None:
    state = world[2]["s0"]["state"]
    state["counters"] = json.dumps(json.loads(state["counters"]) | {"states": 1})


def _other_tally(world: World) -> None:
    profiles = world[2]["s1"]["profiles"]
    first = _first(profiles)
    seen, *rest = json.loads(profiles[first])
    profiles[first] = json.dumps([seen + 1, *rest])


def _other_regret(world: World) -> None:
    reports = world[1].regrets["s0"]
    moment = next(m for m in reports if m[0] == "solve" and m[1] > 10)
    reports[moment]["robust"]["regret"] += 1e-5


def _other_action(world: World) -> None:
    action = world[1].actions[_first(world[1].actions)]
    action["action"] = next(name for name in SPECS["s0"]["actions"] if name != action["action"])


BREAKS: dict[str, tuple[str, Callable[[World], object]]] = {
    "a lost action": ("I3", lambda w: w[1].actions.pop(_first(w[1].actions))),
    "a lost dead letter": ("I1", lambda w: w[1].dead.pop(_first(w[1].dead))),
    "an action of another draw": ("I3", _other_action),
    "a counter": ("I2", _other_counter),
    "a profile's count": ("I2", _other_tally),
    "a regret": ("I4", _other_regret),
    "a session nobody stored": ("I2", lambda w: w[2].pop("s0")),
    "a record nobody knows of": ("I1", lambda w: w[0]["states", 0].append((10**6, b"{"))),
}


@pytest.mark.parametrize("what", BREAKS)
def test_it_sees(world: World, what: str) -> None:
    invariant, spoil = BREAKS[what]
    broken = deepcopy(world)
    spoil(broken)
    assert invariant in folded(broken).faults
