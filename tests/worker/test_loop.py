"""What a running worker makes of every kind of record: a real broker, a real Redis, a worker process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from redis import Redis

from stream_agg.cli.local import WorkerProcess
from stream_agg.replay.tap import Tap
from stream_agg.worker.broker import create_topics
from stream_agg.worker.settings import PREFIX, Settings

DAY = "2026-11-{:02d}T06:00:00Z"


@dataclass
class Out:
    """One output record."""

    topic: str
    key: str
    value: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return orjson.loads(self.value)


class Bench:
    """Sends raw records and finds what came of them."""

    def __init__(self, settings: Settings, tap: Tap, producer: AIOKafkaProducer, out: list[Out]) -> None:
        self.settings, self.tap, self.producer, self.out = settings, tap, producer, out
        self.session = f"paris-{uuid.uuid4().hex[:6]}"

    async def send(self, topic: str, value: Any, key: str | None = None) -> int:
        """Send bytes, or a JSON value; the offset it got."""
        raw = value if isinstance(value, bytes) or value is None else orjson.dumps(value)
        to = getattr(self.settings, f"topic_{topic}")
        return int((await self.producer.send_and_wait(to, raw, key=(key or self.session).encode())).offset)

    async def open(self, **spec: Any) -> None:
        base = {
            "session": self.session,
            "experts": {"ecmwf": {"levels": 11}, "gfs": {"levels": [0.0, 0.25, 0.5, 0.75, 1.0]}},
            "actions": {"stay": [1, 0], "prepare": [0, 3]},
            "schedule": {"every": 1},
        }
        await self.send("sessions", {**base, **spec})

    async def forecast(self, event: str, day: int = 1, **reports: float | None) -> int:
        reports = reports or {"ecmwf": 0.3, "gfs": 0.25}
        record = {"session": self.session, "event": event, "time": DAY.format(day), "forecasts": reports}
        return await self.send("forecasts", record)

    async def state(self, event: str, state: int, day: int = 2) -> int:
        record = {"session": self.session, "event": event, "time": DAY.format(day), "state": state}
        return await self.send("states", record)

    def of(self, topic: str) -> list[Out]:
        name = getattr(self.settings, f"topic_{topic}")
        return [o for o in self.out if o.topic == name and o.key == self.session]

    async def until(self, topic: str, count: int, where: Callable[[Out], bool] = lambda o: True) -> list[Out]:
        """The records of a topic, once there are `count`."""
        deadline = time.monotonic() + 30
        while len(found := [o for o in self.of(topic) if where(o)]) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} in {topic}: {self.of(topic)}"
            await asyncio.sleep(0.02)
        assert len(found) == count
        return found

    async def until_stored(self, done: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until what Redis holds of the session, decoded, is `done`."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for partition in range(self.settings.partitions):
                tables = await self.tap.load(partition, self.session)
                if tables and done({name: orjson.loads(text) for name, text in tables["state"].items()}):
                    return
            await asyncio.sleep(0.02)
        raise AssertionError("never stored")


async def until_committed(settings: Settings, records: int) -> None:
    """Wait until the group's committed offsets of the forecasts add up to that many records."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.broker_list, group_id=settings.app, enable_auto_commit=False)
    await consumer.start()
    try:
        at = [TopicPartition(settings.topic_forecasts, p) for p in range(settings.partitions)]
        consumer.assign(at)
        deadline = time.monotonic() + 30
        while sum([await consumer.committed(tp) or 0 for tp in at]) < records:
            assert time.monotonic() < deadline, "never committed"
            await asyncio.sleep(0.1)
    finally:
        await consumer.stop()


@asynccontextmanager
async def bench(settings: Settings) -> AsyncIterator[Bench]:
    out: list[Out] = []
    producer = AIOKafkaProducer(bootstrap_servers=settings.broker_list, max_request_size=16 << 20)
    async with Tap(settings, lambda *record: out.append(Out(*record))) as tap:
        await producer.start()
        try:
            yield Bench(settings, tap, producer, out)
        finally:
            await producer.stop()


@pytest.fixture(scope="module")
def running(local: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """One worker for all the tests that only differ in their session."""
    topics = {f.name: f"{f.default}-loop" for f in fields(Settings) if f.name.startswith("topic_")}
    settings = changed(local, app="test-loop", partitions=2, **topics)
    asyncio.run(create_topics(settings))
    with (tmp_path_factory.mktemp("loop") / "log").open("wb") as log:
        worker = WorkerProcess(settings, log.fileno())
        yield settings
        assert worker.starts == 1
        assert worker.stop() == 0


async def test_an_action_carries_what_the_contract_says(running: Settings) -> None:
    async with bench(running) as b:
        await b.open()
        await b.forecast("monday")
        await b.forecast("tuesday", 2, ecmwf=0.31, gfs=None)
        first, second = await b.until("actions", 2)
        assert first.json["profile"] == {"ecmwf": 0.3, "gfs": 0.25}
        assert second.json["profile"] == {"ecmwf": 0.3, "gfs": None}
        assert [o.json["round"] for o in (first, second)] == [1, 2]
        assert second.json["rule"]["version"] == 1
        assert set(first.json["strategy"]) == {"stay", "prepare"}
        assert sum(first.json["strategy"].values()) == pytest.approx(1)
        assert first.headers["ce_id"] == f"{b.session}/monday"
        assert first.headers["ce_time"] == first.json["time"] == DAY.format(1)
        for name in ("ce_type", "ce_source", "ce_specversion", "content-type"):
            assert first.headers[name]
        report = (await b.until("regret", 1))[0].json
        assert (report["reason"], report["round"]) == ("solve", 1)


POISON: list[tuple[bytes, str]] = [
    (b"", "bad_json"),
    (b"{", "bad_json"),
    (b"\xff\xfe{}", "bad_json"),
    (b"[" * 100_000, "bad_json"),
    (b'{"session": NaN}', "bad_json"),
    (b"[1]", "bad_event"),
    (b'{"session": "S", "event": "e", "time": "2026-11-01T00:00:00Z", "forecasts": {"ecmwf": 1e308}}', "bad_event"),
    (b'{"session": "S", "event": "e", "time": "2026-11-01T00:00:00Z", "forecasts": {"ecmwf": true}}', "bad_event"),
    (b'{"session": "S", "event": "e", "time": "2026-11-01T00:00:00Z", "forecasts": [0.3]}', "bad_event"),
    (b'{"session": "S", "event": "e", "time": "yesterday", "forecasts": {}}', "bad_event"),
    (b'{"session": "S", "event": "' + b"e" * 5000 + b'", "time": "2026-11-01T00:00:00Z"}', "bad_event"),
    (b'{"session": "S", "event": "e", "time": "2026-11-01T00:00:00Z", "forecasts": {"who": 0.1}}', "unknown_expert"),
]


async def test_poison_becomes_dead_letters_with_bytes_and_place(running: Settings) -> None:
    async with bench(running) as b:
        await b.open()
        sent = {}
        for value, reason in POISON:
            raw = value.replace(b'"S"', orjson.dumps(b.session))
            sent[await b.send("forecasts", raw)] = (raw, reason)
        await b.forecast("good")
        dead = await b.until("dead_letters", len(POISON))
        for letter in dead:
            raw, reason = sent[int(letter.headers["offset"])]
            assert letter.value == raw
            assert letter.headers["reason"] == reason
            assert letter.headers["topic"] == running.topic_forecasts
            assert letter.headers["detail"]
        assert [o.json["event"] for o in await b.until("actions", 1)] == ["good"]


async def test_a_forecast_waits_for_the_spec_sent_before_it_but_not_for_one_sent_after(running: Settings) -> None:
    async with bench(running) as b:
        await b.forecast("too early")
        letter = (await b.until("dead_letters", 1))[0]
        assert letter.headers["reason"] == "unknown_session"
        await b.open()
        await b.forecast("in time")
        assert (await b.until("actions", 1))[0].json["event"] == "in time"


async def test_a_repeated_event_counts_once(running: Settings) -> None:
    async with bench(running) as b:
        await b.open()
        for event in ("a", "a", "b"):
            await b.forecast(event)
        await b.until("actions", 2)
        await b.send("sessions", None)
        final = (await b.until("regret", 1, lambda o: o.json["reason"] == "close"))[0].json
        assert (final["round"], final["counts"]["duplicate"]) == (2, 1)
        assert b.of("dead_letters") == []


async def test_states_of_every_kind(running: Settings) -> None:
    async with bench(running) as b:
        await b.open(feedback="state", policy="robust", state_deadline="P5D")
        await b.state("early", 1)
        await b.state("never forecast", 0)
        for event in ("early", "plain", "late"):
            await b.forecast(event, 1)
        await b.until("actions", 3)
        await b.state("plain", 0)
        await b.state("plain", 0)
        await b.state("plain", 1)
        await b.state("late", 1, 20)
        await b.forecast("a week on", 10)
        dead = await b.until("dead_letters", 3)
        assert sorted(o.headers["reason"] for o in dead) == ["conflict", "late", "unknown"]
        lost = next(o for o in dead if o.headers["reason"] == "unknown")
        assert orjson.loads(lost.value)["event"] == "never forecast"
        assert lost.headers["topic"] == running.topic_states
        await b.send("sessions", None)
        final = (await b.until("regret", 1, lambda o: o.json["reason"] == "close"))[0].json
        assert final["realized"]["states"] == 2
        counts = {name: final["counts"][name] for name in ("duplicate", "late", "conflict", "unknown")}
        assert counts == {"duplicate": 1, "late": 1, "conflict": 1, "unknown": 1}


async def test_a_spec_may_change_gamma_but_not_the_actions(running: Settings) -> None:
    async with bench(running) as b:
        await b.open(gamma=1)
        await b.forecast("a")
        await b.until("actions", 1)
        await b.open(gamma=1, actions={"stay": [2, 0], "prepare": [0, 3]})
        letter = (await b.until("dead_letters", 1))[0]
        assert letter.headers["reason"] == "spec_change"
        assert "actions cannot change" in letter.headers["detail"]
        await b.send("sessions", b'{"session": 3, "experts": {}, "actions": {"x": [1]}}')
        bad = (await b.until("dead_letters", 2))[1]
        assert bad.headers["reason"] == "bad_spec"
        assert all(word in bad.headers["detail"] for word in ("session:", "experts:", "actions.x:"))
        await b.open(gamma=3)
        await b.until_stored(lambda state: state["counters"]["spec_version"] == 2)
        await b.forecast("b")
        assert (await b.until("actions", 2))[1].json["spec_version"] == 2
        assert (await b.until("regret", 1))[0].json["robust"]["gamma"] == 3.0


async def test_a_closed_session_reports_and_starts_afresh_with_the_next_spec(running: Settings) -> None:
    async with bench(running) as b:
        await b.open()
        await b.forecast("a")
        await b.until("actions", 1)
        await b.send("sessions", None)
        await b.until("regret", 1, lambda o: o.json["reason"] == "close")
        await b.forecast("b")
        assert (await b.until("dead_letters", 1))[0].headers["reason"] == "unknown_session"
        await b.open()
        await b.forecast("a")
        rounds = [o.json["round"] for o in await b.until("actions", 2)]
        assert rounds == [1, 1]


def run_worker(settings: Settings, *flags: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **{PREFIX + f.name.upper(): str(getattr(settings, f.name)) for f in fields(Settings)}}
    return subprocess.run(
        [sys.executable, "-P", "-m", "stream_agg", "worker", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
    )


def test_partition_counts_that_differ_are_refused(fresh: Callable[..., Settings]) -> None:
    settings = fresh()

    async def other_topic() -> Settings:
        admin = AIOKafkaAdminClient(bootstrap_servers=settings.broker_list)
        await admin.start()
        await admin.create_topics([NewTopic("three-of-them", 3, 1)])
        await admin.close()
        return changed(settings, topic_states="three-of-them", create_topics=False)

    ended = run_worker(asyncio.run(other_topic()))
    assert ended.returncode == 1
    assert "three-of-them has 3" in ended.stderr
    assert f"{settings.topic_forecasts} has 2" in ended.stderr


async def work_a_little(settings: Settings, log: Path, events: int) -> list[bytes]:
    """A session of some events through a worker that stops cleanly; its actions."""
    with log.open("ab") as file:
        async with bench(settings) as b:
            b.session = "steady"
            worker = await asyncio.to_thread(WorkerProcess, settings, file.fileno())
            if not b.out:
                await b.open()
                for k in range(events):
                    await b.forecast(f"e{k}", 1 + k % 28)
            actions = [o.value for o in await b.until("actions", events)]
            await until_committed(settings, events)
            assert await asyncio.to_thread(worker.stop) == 0
            return actions


def test_an_empty_redis_is_refused_and_rebuilt_to_the_same_bytes(
    fresh: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = fresh()
    before = asyncio.run(work_a_little(settings, tmp_path / "log", 40))
    store = Redis.from_url(settings.redis_url)
    keys = list(store.scan_iter(match=f"{{{settings.app}:*"))
    assert keys
    store.delete(*keys)
    store.close()
    ended = run_worker(settings)
    assert ended.returncode == 1
    assert "--rebuild" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr

    async def rebuild() -> list[bytes]:
        with (tmp_path / "log").open("ab") as file:
            async with bench(settings) as b:
                b.session = "steady"
                worker = await asyncio.to_thread(WorkerProcess, changed(settings, rebuild=True), file.fileno())
                actions = [o.value for o in await b.until("actions", 40)]
                await asyncio.to_thread(worker.stop)
                return actions

    assert asyncio.run(rebuild()) == before
