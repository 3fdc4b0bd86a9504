"""What must hold after a fault: I1 to I7, from the topics and from Redis, against the oracle, and by `verify`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from _faults.bed import Bed
from _faults.fold import Fold
from _faults.held import CLEAN_STOP_S, Held
from _faults.tools import verified
from stream_agg.errors import InputError
from stream_agg.events import Action, Forecast, State
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec


async def check(bed: Bed, *, exactly_once: bool = False, rewound: bool = False, programs: bool = True) -> Held:
    """Settle, compare, close the sessions, stop the workers, compare again.

    `rewound`: Redis went back in time, so actions were derived anew: those may tell another interleaving.
    """
    held, start = Held(figures=bed.figures), time.monotonic()
    await bed.settle()
    log = await bed.inputs()
    held.claim("I5", True, "")
    bed.figures["settled_s"] = round(time.monotonic() - start, 1)
    stored = bed.stored()
    await bed.close_sessions()
    for worker in bed.workers:
        if worker.process.poll() is None:
            code, took = await worker.stop()
            held.claim("I7", code == 0 and took < CLEAN_STOP_S, f"a worker ended with {code} after {took:.1f} s")
    got = await bed.collect()
    if rewound:
        bed.figures["told_otherwise"] = len(got.unequal)
    else:
        held.claim("I3", not got.unequal, "; ".join(got.unequal[:3]))
    again = {name: n for name, n in got.copies.items() if name.endswith("again")}
    if exactly_once:
        held.claim("exactly once", not again, f"more than one committed copy: {again}")
    bed.figures |= {
        "records": sum(map(len, log.values())),
        "actions": got.copies["actions"],
        "repeats": sum(again.values()),
    }
    actions = dict(got.published.actions)
    for session, rounds in got.order.items() if not rewound else ():
        held.claim("I3", rounds == list(range(1, len(rounds) + 1)), f"{session}: rounds out of order or missing")
    fold = Fold(bed.specs, log, got.published, programs, rewound).run()
    fold.compare(stored)
    for name in ("I1", "I2", "I3", "I4"):
        for text in fold.faults.get(name, []):
            held.claim(name, False, text)
        held.invariants.setdefault(name, [])
    if got.published.actions:
        held.claim("I3", False, f"actions of nothing: {sorted(got.published.actions)[:3]}")
    if rewound:
        differ = again_by_engine(bed.specs, log, actions)
        held.claim("I4", not differ, f"{len(differ)} actions are not derived again: {differ[:3]}")
    await verified(bed, held, rewound=rewound)
    bed.figures |= {"checked": dict(fold.checked), "kinds": dict(fold.kinds)}
    return held


def again_by_engine(
    specs: Mapping[str, Mapping[str, Any]],
    log: Mapping[tuple[str, int], list[tuple[int, bytes]]],
    actions: Mapping[tuple[str, str], Mapping[str, Any]],
) -> list[str]:
    """Actions that the package's own engine does not derive to the same bytes, states let in by `states_seen`."""
    states: dict[str, list[State]] = {}
    for state in _decoded(log, "states", State.from_record):
        states.setdefault(state.session, []).append(state)
    sessions, differ = {name: Session(SessionSpec.from_dict(spec)) for name, spec in specs.items()}, []
    at = dict.fromkeys(specs, 0)
    for forecast in _decoded(log, "forecasts", Forecast.from_record):
        name = forecast.session
        told = actions.get((name, forecast.event))
        if told is None:
            continue
        while at[name] < min(told["states_seen"], len(states.get(name, []))):
            sessions[name].state(states[name][at[name]], None)
            at[name] += 1
        try:
            found = [o for o in sessions[name].forecast(forecast) if isinstance(o, Action)]
        except InputError:
            continue
        if found and json.loads(orjson.dumps(found[0])) != told:
            differ.append(f"{name}/{forecast.event}")
    return differ


def _decoded(log: Mapping[tuple[str, int], list[tuple[int, bytes]]], topic: str, decode: Callable[[Any], Any]) -> Any:
    for (t, _), records in sorted(log.items()):
        for _, value in records if t == topic else ():
            try:
                event = decode(orjson.loads(value))
            except (InputError, orjson.JSONDecodeError):
                continue
            yield event
