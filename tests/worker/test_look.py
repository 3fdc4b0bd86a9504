"""How a worker is looked at: progress by the topics' own ends, and what is told when nothing moves."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from stream_agg.errors import UnavailableError
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec
from stream_agg.store.memory import MemoryStore
from stream_agg.watch.observer import Observer
from stream_agg.worker.look import Look, oldest_s, slope
from stream_agg.worker.settings import Settings

F, S = ("forecasts", 0), ("states", 0)


@dataclass
class Ends:
    """The broker's side: where its topics end, or that it is away."""

    at: dict[tuple[str, int], int] = field(default_factory=lambda: {F: 0, S: 0})
    away: bool = False

    async def ends(self, topics: object, partitions: object) -> dict[tuple[str, int], int]:
        if self.away:
            raise UnavailableError("no broker answers")
        return dict(self.at)


class Seen:
    """A worker with one partition and a clock that stands where the test puts it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("stream_agg.worker.look.monotonic", lambda: self.now_s)
        monkeypatch.setattr("stream_agg.watch.observer.monotonic", lambda: self.now_s)
        self.store, self.ends, self.worked = MemoryStore(), Ends(), {F: 0, S: 0}
        self.owned = SimpleNamespace(partition=0, epoch=0, sessions={})
        loop = SimpleNamespace(settings=Settings(), store=self.store, specs=self.ends, owned={0: self.owned})
        self.observer = Observer(stuck_s=60)
        self._look = Look(loop, lambda: dict(self.worked), self.observer)  # type: ignore[arg-type]

    async def look(self, after_s: float = 2.0) -> None:
        self.now_s += after_s
        self.observer.health.beat_s = self.now_s
        await self._look.look()

    @property
    def dead(self) -> list[str]:
        return self.observer.health.dead(self.now_s)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


async def test_records_that_nobody_works_are_death_and_told_once(seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    await seen.look()
    seen.ends.at[F] = 10
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await seen.look(40)
    assert "no offset has moved for 120 s" in seen.dead[0]
    stuck = [record for record in caplog.records if record.getMessage().startswith("stuck:")]
    assert len(stuck) == 1
    assert "test_records_that_nobody_works" in stuck[0].getMessage()
    seen.worked[F] = 1
    await seen.look()
    assert not seen.dead


async def test_a_worker_that_keeps_up_or_gets_on_lives(seen: Seen) -> None:
    seen.ends.at[F] = 10
    for i in range(5):
        seen.worked[F] = i
        await seen.look(40)
        assert not seen.dead
    seen.worked[F] = 10
    for _ in range(5):
        await seen.look(1000)
        assert not seen.dead


async def test_waiting_for_a_server_is_no_death(seen: Seen) -> None:
    seen.ends.at[F] = 10
    await seen.look()
    seen.ends.away = True
    await seen.look(1000)
    assert not seen.dead
    assert "no broker answers" in " ".join(seen.observer.health.unready(seen.now_s))


async def test_a_claim_that_another_worker_took_is_seen(seen: Seen) -> None:
    seen.owned.epoch = (await seen.store.claim(0)).epoch
    await seen.look()
    assert not seen.observer.health.unready(seen.now_s)
    await seen.store.claim(0)
    await seen.look()
    assert "partition 0 was claimed by another worker" in seen.observer.health.unready(seen.now_s)


def test_the_slope_of_the_lag() -> None:
    assert slope([]) == slope([(5.0, 3)]) == slope([(5.0, 3), (5.0, 9)]) == 0.0
    assert slope([(t, 1000 - 30 * t) for t in range(0, 60, 2)]) == pytest.approx(-30.0)


def test_the_oldest_open_decision() -> None:
    session = Session(
        SessionSpec.from_dict({"session": "s", "experts": {"a": {"levels": 3}}, "actions": {"x": [1, 0]}})
    )
    assert oldest_s(session) == 0.0
    for hour in (1, 2, 5):
        session.decide(f"e{hour}", {"a": 0.5}, f"2026-11-01T0{hour}:00:00Z")
    assert oldest_s(session) == 4 * 3600
    session.learn("e1", 1, "2026-11-02T00:00:00Z")
    assert oldest_s(session) == 3 * 3600


BLOCKED = """
import asyncio, logging, time
from stream_agg.watch.observer import Observer
from stream_agg.worker.look import beat

async def main():
    observer = Observer(stuck_s=0.3)
    beating = asyncio.create_task(beat(observer))
    await asyncio.sleep(0)
    this_is_where_it_hangs()
    while b"stream_agg_stalls_total 1.0" not in observer.metrics.text():
        await asyncio.sleep(0.05)
    beating.cancel()

def this_is_where_it_hangs():
    time.sleep(1)

logging.basicConfig()
asyncio.run(main())
"""


def test_a_loop_that_stands_still_leaves_its_stacks_in_the_log() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60, check=True)
    assert "in this_is_where_it_hangs" in done.stderr
    assert "the event loop stood still for 1 s" in done.stderr


async def test_looking_takes_no_longer_than_its_patience(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> dict[tuple[str, int], int]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("stream_agg.worker.look.LOOK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(seen.ends, "ends", never)
    await seen.look()
    assert seen.observer.health.faults == ("the broker did not answer within 0.05 s",)
