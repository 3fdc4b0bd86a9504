"""Verification of what a worker published, without servers: its batches on topics in memory, in any interleaving."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import orjson
import pytest

from stream_agg.events import Forecast, State
from stream_agg.replay.catchup import CatchUp
from stream_agg.replay.kept import Kept
from stream_agg.replay.log import At, Span
from stream_agg.replay.verify import Verdict, Verification
from stream_agg.session.engine import Session
from stream_agg.store.backup import Partition
from stream_agg.store.keys import NEXT
from stream_agg.watch.observer import Observer
from stream_agg.worker.batch import Batch, read
from stream_agg.worker.kafka import partition_of
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Encoder, Place, Row

SETTINGS = Settings()
DAY = "2026-11-{:02d}T06:00:00Z"


@dataclass
class Line:
    """A record of a topic in memory."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass
class Topics:
    """A `Log` in memory. Partitions of inputs and outputs may differ in number."""

    inputs: int = 1
    outputs: int = 1
    settings: Settings = SETTINGS
    lines: dict[At, list[Line]] = field(default_factory=dict)
    first: dict[At, int] = field(default_factory=dict)
    done: dict[At, int] = field(default_factory=dict)
    clock: int = 0
    at: dict[At, int] = field(default_factory=dict)

    def write(self, at: At, key: bytes, value: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        there = self.lines.setdefault(at, [])
        self.clock += 1
        raw = [(name, text.encode()) for name, text in headers]
        there.append(Line(*at, len(there), self.clock, key, value, raw))

    def partitions(self) -> dict[str, int]:
        to = self.settings
        outputs = (to.topic_actions, to.topic_regret, to.topic_rules, to.topic_dead_letters)
        return dict.fromkeys(to.inputs, self.inputs) | dict.fromkeys(outputs, self.outputs)

    def spans(self, places: Iterable[At]) -> dict[At, Span]:
        return {at: Span(self.first.get(at, 0), len(self.lines.get(at, ()))) for at in places}

    def committed(self, places: Iterable[At]) -> dict[At, int]:
        return {at: self.done[at] for at in places if at in self.done}

    def open(self, starts: Mapping[At, int]) -> None:
        self.at = dict(starts)

    def more(self, at: At, end: int) -> list[Line]:
        found = [line for line in self.lines.get(at, ()) if self.at[at] <= line.offset < end][:7]
        if found:
            self.at[at] = found[-1].offset + 1
        return found


class Worker:
    """What a worker does with the inputs, in batches of random sizes from random topics; now and then it publishes a
    batch twice."""

    def __init__(self, topics: Topics, rng: Random, repeats: float = 0.1) -> None:
        self.topics, self.rng, self.repeats = topics, rng, repeats
        self.sessions: list[dict[str, Session]] = [{} for _ in range(topics.inputs)]
        self.encoder = Encoder(topics.settings)
        self.last: list[list[Row]] = [[] for _ in range(topics.inputs)]

    def work(self, share: float = 1.0) -> None:
        """Batches until that share of every input is done."""
        to = self.topics.settings
        places = [at for at in self.topics.lines if at.topic in to.inputs]
        goals = {at: round(len(self.topics.lines[at]) * share) for at in places}
        while left := [at for at in places if self.topics.done.get(at, 0) < goals[at]]:
            at = self.rng.choice(left)
            start = self.topics.done.get(at, 0)
            end = min(start + self.rng.randint(1, 5), goals[at])
            self.batch(at, self.topics.lines[at][start:end])
            self.topics.done[at] = end

    def batch(self, at: At, lines: list[Line]) -> None:
        to, p = self.topics.settings, at.partition
        batch = Batch(
            self.sessions[p],
            self.encoder,
            1000,
            Observer().facts(),
            specs_seen=self.topics.done.get(At(to.topic_sessions, p), 0),
        )
        for line in lines:
            place = Place(line.topic, line.partition, line.offset, line.timestamp, line.key, line.value)
            if at.topic == to.topic_sessions:
                batch.spec(place)
            else:
                batch.event(read(place, Forecast.from_record if at.topic == to.topic_forecasts else State.from_record))
        if self.rng.random() < self.repeats:  # it died before it knew that they were delivered
            self.publish(self.last[p])
        self.publish(batch.rows)
        self.last[p] = batch.rows

    def publish(self, rows: list[Row]) -> None:
        for row in rows:
            at = At(row.topic, partition_of(row.key.encode(), self.topics.outputs))
            self.topics.write(at, row.key.encode(), row.value, row.headers)


def spec(name: str, **changes: Any) -> dict[str, Any]:
    base = {
        "session": name,
        "experts": {"a": {"levels": 3}, "b": {"levels": [0.25, 0.75]}},
        "actions": {"stay": [1, 0], "prepare": [0, 3]},
        "schedule": {"every": 1},
        "feedback": "state",
        "policy": "robust",
        "state_deadline": "P3D",
        "window": 12,
        "gamma": 2,
    }
    return {**base, **changes}


class Feed:
    """Random inputs: known and unknown sessions, repeats, poison, states of every kind, changes, closings."""

    def __init__(self, topics: Topics, rng: Random, sessions: int, moved: int = 0) -> None:
        self.topics, self.rng, self.moved, self.closings = topics, rng, moved, 0.02
        self.names = [f"s{i}" for i in range(sessions)]
        self.sent: dict[str, int] = dict.fromkeys(self.names, 0)

    def put(self, topic: str, name: str, value: Any) -> None:
        raw = value if isinstance(value, bytes) else orjson.dumps(value)
        p = (partition_of(name.encode(), self.topics.inputs) + self.moved) % self.topics.inputs
        self.topics.write(At(topic, p), name.encode(), raw)

    def spec(self, name: str) -> None:
        self.put("sessions", name, spec(name, gamma=self.rng.choice([1, 2, 4])))

    def one(self) -> None:
        rng, name = self.rng, self.rng.choice(self.names)
        draw = rng.random()
        if draw < self.closings:
            self.put("sessions", name, b"")
        elif draw < 0.06:
            self.spec(name)
        elif draw < 0.1:
            self.put(rng.choice(["forecasts", "states"]), name, rng.choice([b"{", b'{"session": "s0"}', b"[1]"]))
        elif draw < 0.6:
            self.sent[name] += rng.random() < 0.8
            reports = {"a": rng.choice([0, 0.5, 1, None]), "b": rng.choice([0.2, 0.8])} | (
                {"c": 1} if rng.random() < 0.03 else {}
            )
            event = f"e{self.sent[name]}"
            record = {"session": name, "event": event, "time": DAY.format(1 + self.sent[name] % 28)}
            self.put("forecasts", name, {**record, "forecasts": reports})
        else:
            k = max(0, self.sent[name] + rng.randint(-6, 2))
            record = {"session": name, "event": f"e{k}", "time": DAY.format(1 + k % 28), "state": rng.randint(0, 1)}
            self.put("states", name, record)


def verified(topics: Topics) -> Verdict:
    return Verification(topics).run()  # type: ignore[arg-type]


def deployment(seed: int, inputs: int = 1, outputs: int = 1, events: int = 250, **options: Any) -> Topics:
    """A feed, and all that a worker made of it."""
    rng = Random(seed)
    topics = Topics(inputs, outputs)
    feed = Feed(topics, rng, 4, **options)
    worker = Worker(topics, rng)
    for name in feed.names[:3]:
        feed.spec(name)
    for _ in range(5):
        for _ in range(events // 5):
            feed.one()
        worker.work(rng.random())
    worker.work()
    return topics


@pytest.mark.parametrize("seed", range(40))
def test_every_interleaving_is_found_again(seed: int) -> None:
    topics = deployment(seed)
    verdict = verified(topics)
    assert verdict.divergence is None
    assert verdict.equal
    assert (verdict.pending, verdict.missing) == (0, [])
    written = [len(topics.lines[At(topic, 0)]) for topic in ("actions", "regret", "rules")]
    assert verdict.actions > 10
    assert verdict.actions + verdict.regrets + verdict.rules + verdict.repeats == sum(written)
    assert verdict.events == sum(len(topics.lines[At(topic, 0)]) for topic in ("forecasts", "states"))


@pytest.mark.parametrize(("inputs", "outputs", "moved"), [(3, 3, 0), (3, 2, 0), (2, 3, 0), (3, 3, 1)])
@pytest.mark.parametrize("seed", range(100, 104))
def test_partitions_of_inputs_and_outputs_may_differ(seed: int, inputs: int, outputs: int, moved: int) -> None:
    verdict = verified(deployment(seed, inputs, outputs, moved=moved))
    assert verdict.equal
    assert verdict.actions > 10


def test_sessions_that_do_not_fit_into_memory_wait_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Kept] = []

    def small() -> Kept:
        kept.append(Kept(most=60, look_every=3))
        return kept[-1]

    monkeypatch.setattr("stream_agg.replay.verify.Kept", small)
    assert verified(deployment(3)).equal
    assert kept[0].evicted > 10


def actions(topics: Topics) -> list[Line]:
    return topics.lines[At("actions", 0)]


def changed(line: Line, **fields: Any) -> bytes:
    return orjson.dumps({**orjson.loads(line.value), **fields})


SPOILED: dict[str, tuple[str, Callable[[Line], bytes]]] = {
    "another action": ("actions", lambda line: line.value.replace(b'"action":"', b'"action":"x')),
    "a gap of another size": ("actions", lambda line: changed(line, rule={"version": 1, "round": 1, "gap": 0.5})),
    "more states than there are": ("actions", lambda line: changed(line, states_seen=10_000)),
    "fewer states than before": ("actions", lambda line: changed(line, states_seen=-1)),
    "not JSON": ("actions", lambda line: line.value[:-1]),
    "a report of another payoff": ("regret", lambda line: line.value.replace(b'"payoff":', b'"payoff":1')),
    "a report of more duplicates": ("regret", lambda line: line.value.replace(b'"duplicate":', b'"duplicate":9')),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_record_is_named(how: str) -> None:
    topic, spoil = SPOILED[how]
    topics = deployment(5)
    lines = topics.lines[At(topic, 0)]
    k = next(k for k in range(len(lines) // 2, len(lines)) if lines[k].value not in {x.value for x in lines[:k]})
    lines[k] = replace(lines[k], value=spoil(lines[k]))
    assert lines[k].value != deployment(5).lines[At(topic, 0)][k].value
    found = verified(topics).divergence
    assert found is not None
    assert (found.place, found.offset) == (At(topic, 0), k)


def test_a_repeat_with_other_bytes_is_named() -> None:
    topics = deployment(5)
    again = actions(topics)[3]
    topics.write(At("actions", 0), again.key, again.value + b" ", [(k, v.decode()) for k, v in again.headers])
    found = verified(topics).divergence
    assert found is not None
    assert (found.place, found.offset) == (At("actions", 0), len(actions(topics)) - 1)


def once(topics: Topics, topic: str) -> list[int]:
    """Where lines stand that no other repeats."""
    lines = topics.lines[At(topic, 0)]
    return [k for k, line in enumerate(lines) if sum(line.value == other.value for other in lines) == 1]


def without(topics: Topics, topic: str, k: int) -> None:
    lines = topics.lines[At(topic, 0)]
    topics.lines[At(topic, 0)] = [replace(x, offset=i) for i, x in enumerate([*lines[:k], *lines[k + 1 :]])]


@pytest.mark.parametrize("which", [0, 5, -1])
@pytest.mark.parametrize("topic", ["actions", "regret"])
def test_an_output_that_was_lost_is_missed(topic: str, which: int) -> None:
    topics = deployment(6)
    k = once(topics, topic)[which]
    lost = topics.lines[At(topic, 0)][k]
    without(topics, topic, k)
    found = verified(topics).divergence
    assert found is not None
    if topic == "actions":
        offset = int(dict(lost.headers)["forecast_offset"])
        assert (found.place, found.offset) == (At("forecasts", 0), offset)


def test_a_dead_letter_that_was_lost_is_missed() -> None:
    topics = deployment(7)
    letters = topics.lines[At("dead-letters", 0)]
    k = next(k for k in once(topics, "dead-letters") if dict(letters[k].headers)["topic"] == b"forecasts")
    place = dict(letters[k].headers)
    without(topics, "dead-letters", k)
    found = verified(topics).divergence
    assert found is not None
    assert (found.place.topic, found.offset) == (place["topic"].decode(), int(place["offset"]))


def test_a_topic_that_goes_on_is_verified_as_far_as_it_was_worked() -> None:
    rng = Random(8)
    topics = Topics()
    feed, worker = Feed(topics, rng, 3), Worker(topics, rng)
    for name in feed.names:
        feed.spec(name)
    for _ in range(300):
        feed.one()
    worker.work(0.5)
    half = verified(topics)
    worker.work()
    whole = verified(topics)
    assert half.equal
    assert whole.equal
    assert 0 < half.actions < whole.actions
    assert half.pending > whole.pending == 0


@pytest.mark.parametrize("gone", ["forecasts", "states", "actions", "regret", "dead-letters"])
def test_sessions_that_began_before_what_is_kept_are_left_out(gone: str) -> None:
    rng = Random(13)
    topics = Topics()
    feed, worker = Feed(topics, rng, 6), Worker(topics, rng)
    old, new = feed.names[:3], feed.names[3:]
    for names in (old, new):
        feed.names = names
        for name in names:
            feed.spec(name)
        worker.work()
        for _ in range(150):
            feed.one()
        worker.work()
    feed.names = old
    for _ in range(50):
        feed.one()
    worker.work()
    topics.first[At(gone, 0)] = 3
    verdict = verified(topics)
    assert verdict.divergence is None
    assert not verdict.equal
    assert set(verdict.unverifiable) <= set(old)
    assert f"{gone}[0]: 3 records are gone by retention" in verdict.missing
    assert verdict.actions == len({line.value for line in actions(topics) if line.key.decode() in new})


def test_specs_that_compaction_took_are_a_doubt() -> None:
    topics = deployment(10)
    specs = topics.lines[At("sessions", 0)]
    topics.lines[At("sessions", 0)] = specs[:1] + specs[2:]
    verdict = verified(topics)
    assert verdict.missing == ["sessions[0]: offsets 1 to 1 are gone, maybe specs with them"]


def test_what_nothing_gives_is_named() -> None:
    topics = deployment(11)
    headers = [("forecast_offset", "0"), ("specs_seen", "1")]
    topics.write(At("actions", 0), b"nobody", b'{"session":"nobody"}', headers)
    found = verified(topics).divergence
    assert found is not None
    assert (found.place, found.offset) == (At("actions", 0), len(actions(topics)) - 1)


@pytest.mark.parametrize("seed", range(20, 30))
def test_a_backup_is_brought_up_to_what_was_published_with_all_that_waits(seed: int) -> None:
    rng = Random(seed)
    topics = Topics()
    feed, worker = Feed(topics, rng, 4), Worker(topics, rng)
    feed.closings = 0.0
    for name in feed.names:
        feed.spec(name)
    worker.work()
    for _ in range(100):
        feed.one()
    worker.work()
    saved = backup(topics, worker)
    for _ in range(100):
        feed.one()
    worker.work()
    catching = CatchUp(topics)  # type: ignore[arg-type]
    brought = catching.bring(saved, catching.letters())
    now = backup(topics, worker)
    assert brought.sessions.keys() == now.sessions.keys()
    assert [parked(brought, name) for name in now.sessions] == [parked(now, name) for name in now.sessions]


def backup(topics: Topics, worker: Worker) -> Partition:
    meta = {NEXT + at.topic: str(offset) for at, offset in topics.done.items()}
    return Partition(0, 1, meta, [], {name: session.tables() for name, session in worker.sessions[0].items()})


def parked(partition: Partition, name: str) -> dict[str, bytes]:
    return partition.sessions[name].get("parked", {})
