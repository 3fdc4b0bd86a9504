"""Whether what a deployment published is what its inputs give: everything derived again, and compared to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heapreplace
from itertools import chain
from multiprocessing import get_context
from typing import Any, Self

from stream_agg.replay.kept import Kept
from stream_agg.replay.letters import MARK
from stream_agg.replay.log import At, Log, Record, Span
from stream_agg.replay.order import DeadLetters, Inputs, Order
from stream_agg.replay.published import AHEAD, DivergenceError, Published, Stream
from stream_agg.replay.rederive import Rederived
from stream_agg.worker.kafka import partition_of
from stream_agg.worker.settings import Settings


@dataclass
class Verdict:
    """What a verification found. `events` are forecasts and states read; the outputs are those found equal."""

    events: int = 0
    actions: int = 0
    regrets: int = 0
    rules: int = 0
    repeats: int = 0
    """Outputs that came again with equal bytes."""
    pending: int = 0
    """Forecasts, reports and rules that were not published yet when it was asked where the topics end."""
    unverifiable: list[str] = field(default_factory=list)
    """Sessions that began before the records that are kept."""
    missing: list[str] = field(default_factory=list)
    """Records that are gone, in words."""
    divergence: DivergenceError | None = None

    def add(self, other: Verdict) -> None:
        """Take in what was found of other partitions."""
        for name in ("events", "actions", "regrets", "rules", "repeats", "pending", "unverifiable", "missing"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.divergence = self.divergence or other.divergence

    @property
    def equal(self) -> bool:
        """Whether everything was there to be compared, and was equal."""
        return self.divergence is None and not self.unverifiable


@dataclass(frozen=True)
class Taken:
    """How far the topics of a deployment went at one moment."""

    counts: dict[str, int]
    """Partitions by topic."""
    committed: dict[At, int]
    spans: dict[At, Span]

    @classmethod
    def now(cls, log: Log) -> Self:
        """As they are. `RefusedError` where a topic is missing."""
        to, counts = log.settings, log.partitions()

        def places(*topics: str) -> list[At]:
            return [At(topic, p) for topic in topics for p in range(counts[topic])]

        # What was worked must have its outputs in what is read of them, and those their inputs: in this order.
        committed = log.committed(places(to.topic_forecasts, to.topic_states))
        outputs = (to.topic_rules, to.topic_regret, to.topic_actions, to.topic_dead_letters)
        spans: dict[At, Span] = {}
        for topic in (*outputs, *to.inputs):
            spans |= log.spans(places(topic))
        return cls(counts, committed, spans)


class Verification:
    """One verification, from the topics as they were `taken`: now, if nothing else is said."""

    def __init__(self, log: Log, taken: Taken | None = None) -> None:
        self.log, self.to = log, log.settings
        self.taken = taken or Taken.now(log)
        self.counts, self.committed, self.spans = self.taken.counts, self.taken.committed, self.taken.spans

    @property
    def events(self) -> int:
        """Forecasts and states to go through."""
        places = self._places(self.to.topic_forecasts, self.to.topic_states)
        return sum(self.spans[at].end - self.spans[at].first for at in places)

    def run(self, progress: Callable[[int], None] = lambda events: None, jobs: int = 1) -> Verdict:
        """Derive everything again and compare; ends at the first divergence. `progress` is told of events.

        With several `jobs` partitions are gone through side by side, by processes of their own.
        """
        dead = DeadLetters(self._letters())
        parts = self._parts()
        if jobs > 1 and len(parts) > 1:
            self.log.close()  # each process has its own
            verdict = _side_by_side(self.to, self.taken, parts, dead, progress, jobs)
        else:
            verdict = self.check(parts, dead, progress)
        gone = [f"{at}: {span.first:,} records are gone by retention" for at, span in self.spans.items() if span.first]
        verdict.missing = gone + verdict.missing
        return verdict

    def check(self, parts: list[list[int]], dead: DeadLetters, progress: Callable[[int], None]) -> Verdict:
        """Go through these parts, one after the other."""
        verdict, told = Verdict(), 0

        def tell() -> None:
            nonlocal told
            verdict.events += 1
            told += 1
            if told == 1000:
                progress(told)
                told = 0

        try:
            for partitions in parts:
                self._check(partitions, dead, verdict, tell)
        except DivergenceError as e:
            verdict.divergence = e
        progress(told)
        return verdict

    def _places(self, *topics: str) -> list[At]:
        return [At(topic, p) for topic in topics for p in range(self.counts[topic])]

    def _letters(self) -> Iterator[tuple[At, int, str]]:
        places = self._places(self.to.topic_dead_letters)
        self.log.open({at: self.spans[at].first for at in places})
        for at in places:
            for record in self._all(at):
                headers = {name: text.decode("utf-8", "replace") for name, text in record.headers}
                if MARK in headers:
                    continue
                try:
                    place = At(headers["topic"], int(headers["partition"]))
                    yield place, int(headers["offset"]), headers["reason"]
                except (KeyError, ValueError):
                    continue  # not one of ours

    def _all(self, at: At) -> Iterable[Record]:
        stream = self._stream(at)
        while (record := stream.next()) is not None:
            yield record

    def _stream(self, at: At) -> Stream:
        return Stream(partial(self.log.more, at, self.spans[at].end))

    def _parts(self) -> list[list[int]]:
        """Partitions that can be gone through one after the other: where a session's outputs have its number too."""
        places = self._places(self.to.topic_sessions)
        outputs = (self.to.topic_actions, self.to.topic_regret, self.to.topic_rules)
        alike = {self.counts[topic] for topic in outputs} == {len(places)}
        self.log.open({at: self.spans[at].first for at in places})
        keys = ((at.partition, record.key or b"") for at in places for record in self._all(at))
        alike = alike and all(partition_of(key, len(places)) == p for p, key in keys)
        return [[at.partition] for at in places] if alike else [[at.partition for at in places]]

    def _check(self, partitions: list[int], dead: DeadLetters, verdict: Verdict, tell: Callable[[], None]) -> None:
        to, alone = self.to, len(partitions) == 1
        outputs = (to.topic_actions, to.topic_regret, to.topic_rules)
        read_from = {topic: partitions if alone else range(self.counts[topic]) for topic in outputs}
        places = [At(topic, p) for topic in to.inputs for p in partitions]
        places += [At(topic, p) for topic in outputs for p in read_from[topic]]
        since_ms = self._since([*places, *self._places(to.topic_dead_letters)])
        self.log.open({at: self.spans[at].first for at in places})
        actions, regrets, rules = (
            Published(
                {p: self._stream(At(topic, p)) for p in read_from[topic]},
                partial(_partition_of_session, partitions[0] if alone else None, self.counts[topic]),
                AHEAD if alone and topic != to.topic_rules else float("inf"),
            )
            for topic in outputs
        )
        with Kept() as kept:
            made = self._made(kept, regrets, rules)
            orders = [Order(self._inputs(p, since_ms), actions, dead, made, tell) for p in partitions]
            try:
                _run_together(orders, made)
                if not any(order.pending for order in orders):
                    self._finish(actions, made)
            finally:
                verdict.pending += made.pending + sum(order.pending for order in orders)
                verdict.unverifiable += sorted(set().union(*(order.unverifiable for order in orders)))
                verdict.missing += [doubt for order in orders for doubt in order.doubts]
                verdict.actions += actions.taken
                verdict.regrets += regrets.taken
                verdict.rules += rules.taken
                verdict.repeats += actions.repeats + regrets.repeats + rules.repeats

    def _made(self, kept: Kept, regrets: Published, rules: Published) -> Rederived:
        return Rederived(kept, regrets, rules)

    def _finish(self, actions: Published, made: Rederived) -> None:
        for item in chain(actions.rest(), made.regrets.rest(), made.rules.rest()):
            raise item.wrong("nothing in the inputs gives it")

    def _inputs(self, partition: int, since_ms: float | None) -> Inputs:
        names = dict(zip(("sessions", "forecasts", "states"), self.to.inputs, strict=True))
        at = {name: At(topic, partition) for name, topic in names.items()}
        committed = {name: self.committed[place] for name, place in at.items() if place in self.committed}
        forecasts, states, specs = (self._stream(at[name]) for name in ("forecasts", "states", "sessions"))
        return Inputs(at, forecasts, states, specs, committed, since_ms)

    def _since(self, places: list[At]) -> float | None:
        """The time, in milliseconds, from which on all of these are complete; None where nothing is gone."""
        cut = [at for at in places if self.spans[at].first and at.topic != self.to.topic_rules]
        self.log.open({at: self.spans[at].first for at in cut})
        firsts = [next(iter(self._all(at)), None) for at in cut]
        return max((float("inf") if r is None else float(r.timestamp) for r in firsts), default=None)


def _run_together(orders: list[Order], made: Rederived) -> None:
    """Several partitions in the order of their records' times, about as they were worked."""
    running = [(order.start(), i) for i, order in enumerate(orders)]
    heapify(running)
    while running:
        i = running[0][1]
        made.under_way = orders[i].under_way
        following = orders[i].step()
        if following is None:
            heappop(running)
        else:
            heapreplace(running, (following, i))


def _partition_of_session(known: int | None, count: int, session: str) -> int:
    return partition_of(session.encode(), count) if known is None else known


def _side_by_side(
    to: Settings, taken: Taken, parts: list[list[int]], dead: DeadLetters, progress: Callable[[int], None], jobs: int
) -> Verdict:
    apart = get_context("spawn")
    done, told, verdict = apart.Value("q"), 0, Verdict()
    with ProcessPoolExecutor(min(jobs, len(parts)), apart, _begin, (done,)) as pool:
        working = [pool.submit(_check_apart, to, taken, part, dead) for part in parts]
        left = set(working)
        while left:
            finished, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
            progress(done.value - told)
            told = done.value
            if any(one.result().divergence for one in finished):
                pool.shutdown(wait=False, cancel_futures=True)
                left = {one for one in left if not one.cancelled()}
    for one in working:
        if not one.cancelled():
            verdict.add(one.result())
    return verdict


def _begin(done: Any) -> None:
    """In every process: where it counts what it has gone through."""
    global _done
    _done = done


def _check_apart(to: Settings, taken: Taken, part: list[int], dead: DeadLetters) -> Verdict:
    def progress(events: int) -> None:
        with _done.get_lock():
            _done.value += events

    with Log(to) as log:
        return Verification(log, taken).check([part], dead, progress)


_done: Any = None
