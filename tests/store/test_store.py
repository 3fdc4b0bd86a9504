"""What every store must do. One suite, run on the Redis store and on its twin, and the two side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random

import pytest

from stream_agg.embedded import RedisServer
from stream_agg.store.memory import MemoryStore
from stream_agg.store.redis import RedisStore
from stream_agg.store.tables import TABLES, Changes, Claim, Commit, Committed, Outcome, SessionChange, Store

P = 3


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest, server: RedisServer, app: str) -> AsyncIterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else RedisStore(server.url, app)
    yield store
    await store.close()


def wrote(tables: Changes | None = None, **options: object) -> dict[str, SessionChange]:
    """The changes of a commit that touched session "a" only."""
    return {"a": SessionChange(tables if tables is not None else {"state": {"t": b"1"}}, **options)}  # type: ignore[arg-type]


async def first(store: Store, **options: object) -> Commit:
    """A commit that takes forecasts from nothing to 10, under a new claim."""
    epoch = (await store.claim(P)).epoch
    return replace(Commit(P, epoch, "forecasts", None, 10, wrote(), b"blob"), **options)  # type: ignore[arg-type]


async def everything(store: Store) -> tuple[Claim, dict[str, object]]:
    return await store.peek(P), {name: await store.load(P, name) for name in await store.sessions(P)}


async def test_a_new_partition_is_empty(store: Store) -> None:
    assert await store.peek(P) == Claim(P, 0, {}, [])
    assert await store.load(P, "a") is None
    assert await store.sessions(P) == []


async def test_epochs_rise_by_partition(store: Store) -> None:
    epochs = [(await store.claim(P)).epoch for _ in range(3)]
    assert epochs == sorted(set(epochs))
    assert (await store.peek(P)).epoch == epochs[-1]
    assert (await store.peek(P + 1)).epoch == 0


async def test_epochs_are_told_of_many_partitions_at_once(store: Store) -> None:
    await store.claim(P)
    epoch = (await store.claim(P)).epoch
    assert await store.epochs([P, P + 1]) == {P: epoch, P + 1: 0}
    assert await store.epochs([]) == {}


async def test_a_commit_is_there_at_the_next_claim(store: Store) -> None:
    commit = await first(store)
    assert await store.commit(commit) == Committed(Outcome.OK, 1, 10)
    claim = await store.claim(P)
    assert claim == Claim(P, commit.epoch + 1, {"forecasts": 10}, [(1, b"blob")])
    assert await store.load(P, "a") == {"state": {"t": b"1"}}
    assert (await store.peek(P + 1), await store.sessions(P + 1)) == (Claim(P + 1, 0, {}, []), [])


async def test_an_old_epoch_is_fenced(store: Store) -> None:
    commit = await first(store)
    await store.commit(commit)
    await store.claim(P)
    before = await everything(store)
    late = replace(commit, expected=10, next=20, changes=wrote({"state": {"t": b"2"}}), trim=1)
    assert await store.commit(late) == Committed(Outcome.FENCED, 0, 10)
    assert await store.trim(P, commit.epoch, 1) is Outcome.FENCED
    assert await everything(store) == before


@pytest.mark.parametrize("epoch", [0, 1])
async def test_what_nobody_claimed_is_fenced(store: Store, epoch: int) -> None:
    assert await store.commit(Commit(P, epoch, "forecasts", None, 1, wrote())) == Committed(Outcome.FENCED)
    assert await store.trim(P, epoch, 1) is Outcome.FENCED
    assert await everything(store) == (Claim(P, 0, {}, []), {})


@pytest.mark.parametrize("expected", [None, 0, 9, 11])
async def test_an_old_view_is_stale(store: Store, expected: int | None) -> None:
    commit = await first(store)
    await store.commit(commit)
    before = await everything(store)
    other = replace(commit, expected=expected, next=20, changes=wrote({"state": {"t": b"2"}}), trim=1)
    assert await store.commit(other) == Committed(Outcome.STALE, 0, 10)
    assert await everything(store) == before


async def test_an_offset_that_is_gone_is_stale(store: Store) -> None:
    assert await store.commit(await first(store, expected=5)) == Committed(Outcome.STALE, 0, None)
    assert await store.sessions(P) == []


async def test_a_view_must_hold_for_the_other_topics_too(store: Store) -> None:
    commit = await first(store, others={"states": None})
    assert (await store.commit(commit)).outcome is Outcome.OK
    states = replace(commit, topic="states", expected=None, next=7, others={"forecasts": 10})
    for wrong in ({"forecasts": 11}, {"forecasts": None}, {"forecasts": 10, "sessions": 1}):
        assert await store.commit(replace(states, others=wrong)) == Committed(Outcome.STALE, 0, None)
    assert await store.commit(states) == Committed(Outcome.OK, 2, 7)
    assert (await store.peek(P)).next_offsets == {"forecasts": 10, "states": 7}


async def test_a_commit_sent_twice_counts_once(store: Store) -> None:
    commit = await first(store)
    await store.commit(commit)
    before = await everything(store)
    assert await store.commit(commit) == Committed(Outcome.STALE, 0, commit.next)
    assert await everything(store) == before


async def test_a_table_that_does_not_exist_is_a_mistake(store: Store) -> None:
    commit = await first(store, changes=wrote({"state": {"t": b"1"}, "nonsense": {"t": b"1"}}))
    before = await everything(store)
    with pytest.raises(KeyError):
        await store.commit(commit)
    assert await everything(store) == before


async def test_fields_are_written_and_deleted_one_by_one(store: Store) -> None:
    commit = await first(store, changes=wrote({"state": {"t": b"1", "u": b"1"}, "events": {"e": b"1"}}))
    await store.commit(commit)
    changes = wrote({"state": {"t": b"2", "v": b"2", "absent": None}, "events": {"e": None}, "parked": {"p": b""}})
    await store.commit(replace(commit, expected=10, next=11, changes=changes))
    assert await store.load(P, "a") == {"state": {"t": b"2", "u": b"1", "v": b"2"}, "parked": {"p": b""}}


async def test_a_loaded_session_is_the_callers(store: Store) -> None:
    commit = await first(store)
    await store.commit(commit)
    loaded = await store.load(P, "a")
    assert loaded is not None
    loaded["state"]["t"] = b"mine"
    assert await store.load(P, "a") == {"state": {"t": b"1"}}


async def test_a_session_without_fields_is_held(store: Store) -> None:
    await store.commit(await first(store, changes=wrote({})))
    assert (await store.load(P, "a"), await store.sessions(P)) == ({}, ["a"])


async def test_reset_drops_what_was_there(store: Store) -> None:
    commit = await first(store, changes=wrote({"state": {"t": b"1"}, "events": {"e": b"1"}}))
    await store.commit(commit)
    await store.commit(replace(commit, expected=10, next=11, changes=wrote({"state": {"u": b"2"}}, reset=True)))
    assert await store.load(P, "a") == {"state": {"u": b"2"}}


@pytest.mark.parametrize("reset", [False, True])
async def test_an_expiring_session_is_gone_and_begins_from_nothing(store: Store, reset: bool) -> None:
    commit = await first(store, changes=wrote({"state": {"t": b"1"}, "events": {"e": b"1"}}))
    await store.commit(commit)
    await store.commit(replace(commit, expected=10, next=11, changes=wrote({"state": {"t": b"2"}}, expire_ms=60_000)))
    assert (await store.load(P, "a"), await store.sessions(P)) == (None, [])
    await store.commit(replace(commit, expected=11, next=12, changes=wrote({"state": {"u": b"3"}}, reset=reset)))
    assert (await store.load(P, "a"), await store.sessions(P)) == ({"state": {"u": b"3"}}, ["a"])


async def test_the_outbox_is_kept_in_order_until_trimmed(store: Store) -> None:
    commit = await first(store)
    blobs = [bytes([n]) for n in range(12)]  # past 9, where the order of numbers is not that of their text
    for n, blob in enumerate(blobs):
        done = await store.commit(replace(commit, expected=n or None, next=n + 1, outbox=blob))
        assert done.number == n + 1
    assert (await store.claim(P)).outbox == list(enumerate(blobs, 1))
    epoch = (await store.claim(P)).epoch
    assert await store.trim(P, epoch, 4) is Outcome.OK
    assert [n for n, _ in (await store.peek(P)).outbox] == [*range(5, 13)]
    assert await store.commit(replace(commit, epoch=epoch, expected=12, next=13, outbox=b"", trim=11)) == Committed(
        Outcome.OK, 0, 13
    )
    assert [n for n, _ in (await store.peek(P)).outbox] == [12]
    assert await store.trim(P, epoch, 4) is Outcome.OK
    # A trim reaches no blob that is not there yet, the one of its own commit included.
    assert await store.trim(P, epoch, 99) is Outcome.OK
    done = await store.commit(replace(commit, epoch=epoch, expected=13, next=14, outbox=b"new", trim=99))
    assert (done.number, (await store.peek(P)).outbox) == (13, [(13, b"new")])


async def test_bytes_come_back_as_they_were(store: Store) -> None:
    blob = bytes(range(256)) * 2 + b"\r\n$-1\r\n"
    await store.commit(await first(store, outbox=blob, changes=wrote({"state": {"naïve\n{}": blob, "": b"1"}})))
    assert (await store.claim(P)).outbox == [(1, blob)]
    assert await store.load(P, "a") == {"state": {"naïve\n{}": blob, "": b"1"}}


async def test_session_ids_are_any_text(store: Store) -> None:
    names = ["", "a", "a:state", "b", "{x}", "}{", "{other:9}:meta", "two\nlines\r\n", "日本 ☃", "\0", "x" * 400]
    commit = await first(store, changes={n: SessionChange({"state": {"name": n.encode()}}) for n in names})
    assert (await store.commit(commit)).outcome is Outcome.OK
    assert await store.sessions(P) == sorted(names)
    for name in names:
        assert await store.load(P, name) == {"state": {"name": name.encode()}}


async def test_a_big_commit(store: Store) -> None:
    fields = {f"event-{n}": f"{n:0600}".encode() for n in range(5000)}
    commit = await first(store, changes=wrote({"events": dict(fields), "parked": {"p": b"1"}}), outbox=b"x" * 3_000_000)
    assert (await store.commit(commit)).outcome is Outcome.OK
    assert await store.load(P, "a") == {"events": fields, "parked": {"p": b"1"}}
    gone = replace(commit, expected=10, next=11, changes=wrote({"events": dict.fromkeys(fields)}), outbox=b"", trim=1)
    assert (await store.commit(gone)).outcome is Outcome.OK
    assert await store.load(P, "a") == {"parked": {"p": b"1"}}


async def random_step(random: Random, store: Store) -> object:
    """The answer to one call, random but for what earlier answers make likely to succeed."""
    partition = random.choice([0, 1])
    claim = await store.peek(partition)
    epoch = claim.epoch if random.random() < 0.9 else random.randrange(4)
    number = random.randrange(8)
    match random.choices(["commit", "claim", "load", "sessions", "trim"], [12, 1, 2, 1, 1])[0]:
        case "claim":
            return await store.claim(partition)
        case "load":
            return await store.load(partition, random.choice("abc"))
        case "sessions":
            return await store.sessions(partition)
        case "trim":
            return await store.trim(partition, epoch, number)
    topic = random.choice(["forecasts", "states"])
    expected = claim.next_offsets.get(topic) if random.random() < 0.85 else random.choice([None, 1, 2])
    others = {t: claim.next_offsets.get(t) for t in ("forecasts", "states") if t != topic and random.random() < 0.5}
    outbox = random.randbytes(random.randrange(4))
    changes = {name: random_change(random) for name in random.sample("abc", random.randrange(4))}
    next_offset = (expected or 0) + random.randrange(3)
    commit = Commit(partition, epoch, topic, expected, next_offset, changes, outbox, number, others)
    return await store.commit(commit)


def random_change(random: Random) -> SessionChange:
    tables: Changes = {
        table: {f: None if random.random() < 0.3 else random.randbytes(2) for f in random.sample("tuv", 2)}
        for table in random.sample(TABLES, random.randrange(len(TABLES)))
    }
    return SessionChange(tables, random.random() < 0.2, 60_000 if random.random() < 0.2 else None)


async def test_both_stores_answer_alike(server: RedisServer, app: str) -> None:
    seen = set()
    for seed in range(50):
        answers, ends = [], []
        for store in (MemoryStore(), RedisStore(server.url, f"{app}-{seed}")):
            random = Random(seed)
            answers.append([await random_step(random, store) for _ in range(40)])
            ends.append([(await store.peek(p), [await store.load(p, name) for name in "abc"]) for p in (0, 1)])
            await store.close()
        for step, (memory, redis) in enumerate(zip(*answers, strict=True)):
            assert memory == redis, f"seed {seed}, step {step}"
        assert ends[0] == ends[1], f"seed {seed}"
        seen |= {answer.outcome for answer in answers[0] if isinstance(answer, Committed)}
    assert seen == set(Outcome)
