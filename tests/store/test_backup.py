"""Partitions out of Redis and back in, whole, whoever works on them meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from stream_agg.embedded import RedisServer
from stream_agg.errors import FencedError, RefusedError
from stream_agg.store import backup
from stream_agg.store.backup import Backup
from stream_agg.store.keys import Keys
from stream_agg.store.tables import Commit, Outcome, SessionChange

P = 3


@pytest.fixture
async def store(server: RedisServer, app: str) -> AsyncIterator[Backup]:
    store = Backup(server.url, app)
    yield store
    await store.close()


async def filled(store: Backup, sessions: int = 3, events: int = 20) -> Commit:
    """A partition with some sessions; its last commit."""
    epoch = (await store.claim(P)).epoch
    tables = {"state": {"t": b"1"}, "events": {f"e{k}": b"[1]" for k in range(events)}}
    changes = {f"s{k}": SessionChange(tables) for k in range(sessions)}  # type: ignore[arg-type]
    commit = Commit(P, epoch, "forecasts", None, 10, changes, b"\xff blob")
    assert (await store.commit(commit)).outcome is Outcome.OK
    return commit


async def test_a_partition_comes_back_as_it_was(store: Backup, raw: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "CHUNK", 7)
    commit = await filled(store)
    saved = await store.snapshot(P)
    assert (saved.meta, saved.outbox) == ({"next:forecasts": "10", "outbox": "1"}, [(1, b"\xff blob")])
    other = SessionChange({"state": {"t": b"2"}, "parked": {"p": b"1"}})
    later = replace(commit, expected=10, next=20, changes={"s1": other, "new": other}, outbox=b"more", trim=1)
    assert (await store.commit(later)).outcome is Outcome.OK
    with pytest.raises(RefusedError, match="--overwrite"):
        await store.restore(saved)
    assert (await store.peek(P)).next_offsets == {"forecasts": 20}
    await store.restore(saved, overwrite=True)
    again = await store.snapshot(P)
    assert again == replace(saved, epoch=again.epoch)
    assert again.epoch > saved.epoch
    assert await raw.keys(f"*{Keys(store._app, P).tables('new')[0][-12:]}*") == []
    assert await store.partitions() == [P]


async def test_who_had_the_partition_is_shut_out(store: Backup) -> None:
    commit = await filled(store)
    saved = await store.snapshot(P)
    await store.restore(saved, overwrite=True)
    late = replace(commit, expected=10, next=11)
    assert (await store.commit(late)).outcome is Outcome.FENCED
    epoch = (await store.claim(P)).epoch
    assert (await store.commit(replace(late, epoch=epoch))).outcome is Outcome.OK


async def test_epochs_rise_over_a_wiped_server(store: Backup, raw: Redis) -> None:
    """A worker of before the wipe must not find its epoch again."""
    for _ in range(4):
        await store.claim(P)
    commit = await filled(store)
    saved = await store.snapshot(P)
    await raw.delete(*[key async for key in raw.scan_iter(f"{{{store._app}:*")])
    await store.restore(saved)
    assert (await store.commit(replace(commit, expected=10, next=11))).outcome is Outcome.FENCED


async def test_a_restore_that_was_broken_off_can_only_be_done_again(
    store: Backup, raw: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store)
    saved = await store.snapshot(P)
    await raw.delete(*[key async for key in raw.scan_iter(f"{{{store._app}:*")])
    fill = Backup._fill

    async def breaks(self: Backup, keys: Keys, epoch: int, key: str, fields: object) -> None:
        if key == keys.outbox:
            raise KeyboardInterrupt
        await fill(self, keys, epoch, key, fields)  # type: ignore[arg-type]

    monkeypatch.setattr(Backup, "_fill", breaks)
    with pytest.raises(KeyboardInterrupt):
        await store.restore(saved)
    monkeypatch.setattr(Backup, "_fill", fill)
    for call in (store.claim(P), store.peek(P), store.load(P, "s0"), store.sessions(P)):
        with pytest.raises(RefusedError, match="run it again"):
            await call
    fewer = replace(saved, sessions={"s1": saved.sessions["s1"]})
    await store.restore(fewer)
    assert await store.sessions(P) == ["s1"]
    assert [key.decode() async for key in raw.scan_iter(f"{{{store._app}:*s0*")] == []


async def test_of_two_restores_at_once_one_gives_way(store: Backup) -> None:
    await filled(store, sessions=20, events=600)
    saved = await store.snapshot(P)
    done = await asyncio.gather(*(store.restore(saved, overwrite=True) for _ in range(2)), return_exceptions=True)
    assert [type(one) for one in done].count(type(None)) == 1
    assert any(isinstance(one, FencedError) for one in done)
    assert (await store.snapshot(P)).sessions == saved.sessions


async def test_a_snapshot_is_of_one_moment(store: Backup) -> None:
    """Every commit writes its number to two sessions, and new sessions come: no snapshot sees a part of one."""
    epoch = (await store.claim(P)).epoch
    stop = asyncio.Event()

    async def work() -> int:
        k = 0
        while not stop.is_set():
            change = SessionChange({"state": {"t": str(k + 1).encode()}})
            changes = {"a": change, "b": change} | ({f"new{k}": change} if k % 5 == 0 else {})
            assert (await store.commit(Commit(P, epoch, "forecasts", k or None, k + 1, changes))).outcome is Outcome.OK
            k += 1
        return k

    working = asyncio.create_task(work())
    for _ in range(20):
        taken = await store.snapshot(P)
        if taken.sessions:
            number = taken.meta["next:forecasts"].encode()
            assert taken.sessions["a"]["state"]["t"] == taken.sessions["b"]["state"]["t"] == number
    stop.set()
    assert await working > 20


async def test_another_schema_is_refused(store: Backup, raw: Redis) -> None:
    await filled(store)
    saved = await store.snapshot(P)
    await raw.hset(Keys(store._app, P).meta, "schema", "7")  # type: ignore[misc]
    with pytest.raises(RefusedError, match="schema version 7"):
        await store.restore(saved, overwrite=True)
