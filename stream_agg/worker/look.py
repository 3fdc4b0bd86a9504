"""Looks at a running worker every few seconds: do servers answer, is the claim ours, do offsets move, what is open.

It asks by calls of its own, not by what the work last heard: a consumer that fetches nothing must not look like one
with nothing to fetch. What it finds goes to the observer; the work is not touched.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import logging
import math
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

from stream_agg.errors import StreamAggError
from stream_agg.session.engine import Session
from stream_agg.session.scores import largest_payoff
from stream_agg.watch import names
from stream_agg.watch.health import LOOK_S, LOOK_TIMEOUT_S, Health
from stream_agg.watch.names import Server
from stream_agg.watch.observer import Observer
from stream_agg.worker.loop import Loop

_log = logging.getLogger(__name__)
T = TypeVar("T")

Offsets = Mapping[tuple[str, int], int]

_BEAT_S = 1.0
_SLOPE_S = 60.0
_SESSIONS_EVERY = 5  # looks: going through the decisions of many sessions takes milliseconds


class Look:
    """Tells `observer` how the worker of `loop` is. `worked`: the next offset of every topic-partition that is read, or
    None while there is no claim."""

    def __init__(self, loop: Loop, worked: Callable[[], Offsets | None], observer: Observer) -> None:
        self._loop, self._worked, self._observer = loop, worked, observer
        self._before: Offsets | None = None
        self._lags: deque[tuple[float, int]] = deque()
        self._told = False
        self._looks = 0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """One look: at most `LOOK_TIMEOUT_S` seconds."""
        loop, health, inputs = self._loop, self._observer.health, self._loop.settings.inputs[1:]
        epochs = {owned.partition: owned.epoch for owned in loop.owned.values()}
        stored, ends = await asyncio.gather(
            self._ask("redis", loop.store.epochs(epochs or [0])),
            self._ask("broker", loop.specs.ends(inputs, epochs or [0])),
        )
        worked = self._worked()
        faults = [text for text in (stored, ends) if isinstance(text, str)]
        if not isinstance(stored, str):
            still = {o.partition: o.epoch for o in loop.owned.values()}
            taken = [p for p, epoch in epochs.items() if still.get(p) == epoch and stored[p] != epoch]
            faults += [f"partition {p} was claimed by another worker" for p in taken]
        if not isinstance(ends, str):
            self._progress(worked, ends)
        health.claimed, health.faults, health.looked_s = worked is not None, tuple(faults), monotonic()
        health.started = health.started or health.claimed
        self._tell(health)
        if self._looks % _SESSIONS_EVERY == 0:
            self._sessions([s for owned in loop.owned.values() for s in owned.sessions.values()])
        self._looks += 1
        self._observer.metrics.set(names.PARTITIONS, len(loop.owned))

    async def _ask(self, server: Server, question: Awaitable[T]) -> T | str:
        """The answer, or what is wrong in words."""
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                answer = await question
        except TimeoutError:
            found = f"the {server} did not answer within {LOOK_TIMEOUT_S:g} s"
        except StreamAggError as e:
            found = str(e)
        else:
            self._observer.metrics.set(names.SERVER_UP, 1, server)
            return answer
        self._observer.metrics.set(names.SERVER_UP, 0, server)
        return found

    def _progress(self, worked: Offsets | None, ends: Offsets) -> None:
        now_s, metrics = monotonic(), self._observer.metrics
        lag = sum(max(ends[tp] - at, 0) for tp, at in (worked or {}).items() if tp in ends)
        if worked is None or not lag or worked != self._before:
            self._observer.health.moved_s = now_s
        self._before = worked
        self._lags.append((now_s, lag))
        while now_s - self._lags[0][0] > _SLOPE_S:
            self._lags.popleft()
        metrics.set(names.LAG, lag)
        metrics.set(names.LAG_SLOPE, slope(self._lags))

    def _tell(self, health: Health) -> None:
        """Once, where nothing moves although it could: what every task and thread is at."""
        stuck = health.dead(monotonic())
        if stuck and not self._told:
            self._observer.metrics.add(names.STALLS)
            _log.error("stuck: %s; this is where every task stands:\n%s", stuck[0], _tasks())
            dump_stacks()
        self._told = bool(stuck)

    def _sessions(self, sessions: Sequence[Session]) -> None:
        metrics = self._observer.metrics
        gaps = [gap / (largest_payoff(s.spec) or 1.0) for s in sessions if (gap := s.gap) is not None]
        times = [t for s in sessions if (t := s.counters.forecast_us) is not None]
        metrics.set(names.SESSIONS, len(sessions))
        metrics.set(names.GAP, max(gaps, default=0.0))
        metrics.set(names.OPEN, sum(s.open for s in sessions))
        metrics.set(names.OLDEST, max(map(oldest_s, sessions), default=0.0))
        metrics.set(names.PARKED, sum(len(s.parked) for s in sessions))
        metrics.set(names.WATERMARK, max(times) / 1e6 if times else math.nan)


async def beat(observer: Observer) -> None:
    """Show that the event loop comes round, until cancelled. When it does not for `stuck_s` seconds, whatever holds it
    up (even compiled code that lets no other thread run), the stacks of all threads go to the error stream."""
    health, stream = observer.health, sys.__stderr__
    try:
        while True:
            still_s = monotonic() - health.beat_s
            if still_s > health.stuck_s:
                observer.metrics.add(names.STALLS)
                _log.error("the event loop stood still for %.0f s; the stacks are in the log before this", still_s)
            health.beat_s = monotonic()
            if stream is not None:
                faulthandler.dump_traceback_later(health.stuck_s, file=stream)
            await asyncio.sleep(_BEAT_S)
    finally:
        faulthandler.cancel_dump_traceback_later()


def dump_stacks() -> None:
    """The stacks of all threads, to the error stream."""
    if sys.__stderr__ is not None:
        faulthandler.dump_traceback(sys.__stderr__)


def slope(samples: Iterable[tuple[float, int]]) -> float:
    """Least-squares slope of (seconds, value) pairs, per second; 0 where one point says nothing.

    >>> slope([(0.0, 5), (1.0, 7), (2.0, 9)])
    2.0
    """
    points = list(samples)
    if len(points) < 2:
        return 0.0
    mean_t, mean_v = (sum(p[i] for p in points) / len(points) for i in (0, 1))
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return sum((t - mean_t) * (v - mean_v) for t, v in points) / spread if spread else 0.0


def oldest_s(session: Session) -> float:
    """Age in event time of the first decision whose state is not known; 0 where there is none."""
    newest_us = session.counters.forecast_us
    if not session.open or newest_us is None:
        return 0.0
    first = next(decision for decision in session.events.values() if decision.state is None)
    return max(newest_us - first.time_us, 0) / 1e6


def _tasks() -> str:
    text = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(limit=8, file=text)
    return text.getvalue()
