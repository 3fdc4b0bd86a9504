"""The engine in a process of its own: what an event costs and what is held, with so many profiles, experts, decisions.

Every function here is run in a fresh process, so that its memory is that of nothing else.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
from _engine import STEPS, laps
from _worlds import latent, repeating, spec

import stream_agg as sa
from _speed.records import NEVER
from stream_agg.events import Forecast, format_time
from stream_agg.rule.support import Profile
from stream_agg.session.warm import warm_up
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Encoder

BATCH = 500
Result = TypeVar("Result")


def alone(work: Callable[..., Result], *arguments: Any) -> Result:
    """The result of `work`, in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def of_profiles(count: int, batches: int) -> dict[str, Any]:
    """A session with so many profiles: an event of one of them without a solve, one solve, and a profile's memory."""
    warm_up()
    made = spec(6, 11, schedule={"every": NEVER}, window=BATCH)
    session, encoder = sa.Session(made), Encoder(Settings())
    _feed(session, encoder, [(0,) * 6] * BATCH)
    gc.collect()
    before = rss_bytes()
    order = np.random.default_rng(0).permutation(count)
    for start in range(0, count, 50_000):
        for t, j in enumerate(order[start : start + 50_000].tolist(), start):
            session.forecast(Forecast("s", f"first {t}", t * 1_000_000, made.reports(_nth(j))))
        session.changes()
    del order
    gc.collect()
    memory = rss_bytes() - before
    again = np.random.default_rng(1).integers(0, count, batches * BATCH).tolist()
    each = _feed(session, encoder, [_nth(j) for j in again])
    solve_s = _solve(session, encoder)
    held = sum(len(k) + len(v) for k, v in session.tables()["profiles"].items())
    return {
        "profiles": len(session.tallies),
        **each,
        "solve_s": solve_s,
        "bytes": memory / count,
        "held_bytes": held / count,
    }


def of_experts(count: int, batches: int) -> dict[str, Any]:
    """So many experts at 11 levels, 60 different profiles, no solve but the first."""
    warm_up()
    session, encoder = sa.Session(spec(count, 11, schedule={"every": NEVER})), Encoder(Settings())
    profiles = repeating(latent(count, 11), 60)
    return {"experts": count, **_feed(session, encoder, [next(profiles) for _ in range(batches * BATCH)])}


def of_decisions(count: int) -> dict[str, Any]:
    """So many open decisions: what one holds, in memory and as it is stored."""
    warm_up()
    made = spec(3, 11, schedule={"every": NEVER}, feedback="state", policy="robust", window=max(count, 1))
    session, encoder = sa.Session(made), Encoder(Settings())
    profiles = repeating(latent(3, 11), 100)
    _feed(session, encoder, [next(profiles) for _ in range(BATCH)])
    gc.collect()
    before = rss_bytes()
    for start in range(0, count - BATCH, 10_000):
        size = min(10_000, count - BATCH - start)
        _feed(session, encoder, [next(profiles) for _ in range(size)])
    gc.collect()
    grown, added = rss_bytes() - before, session.open - BATCH
    held = sum(len(k) + len(v) for k, v in session.tables()["events"].items())
    return {"open": session.open, "bytes": grown / added, "held_bytes": held / session.open}


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _nth(j: int) -> Profile:
    """The j-th of the profiles of six experts in their order."""
    digits = []
    for _ in range(6):
        j, digit = divmod(j, 11)
        digits.append(digit)
    return tuple(reversed(digits))


def _feed(session: sa.Session, encoder: Encoder, profiles: Sequence[Profile]) -> dict[str, Any]:
    """Microseconds of processor time an event, by step: the median over batches."""
    spent = [laps(session, encoder, batch) for batch in _batches(session, profiles)]
    each = dict(zip(STEPS, (np.median(spent, axis=0) / BATCH * 1e6).tolist(), strict=True))
    return {"cpu_us": sum(each.values()), "steps": each}


def _batches(session: sa.Session, profiles: Sequence[Profile]) -> Iterator[list[bytes]]:
    made, t = session.spec, session.counters.round
    for start in range(0, len(profiles), BATCH):
        yield [
            orjson.dumps(
                {"session": "s", "event": f"{t + n}", "time": format_time((t + n) * 1_000_000), "forecasts": reports}
            )
            for n, e in enumerate(profiles[start : start + BATCH], start)
            for reports in [made.reports(e)]
        ]


def _solve(session: sa.Session, encoder: Encoder) -> float:
    """Seconds of processor time of one solve, report included."""
    changed = session.spec.to_dict() | {"epsilon": 0.001}
    session.change(sa.SessionSpec.from_dict(changed))
    start = time.process_time()
    _feed(session, encoder, [_nth(0)])
    return time.process_time() - start
