"""Outputs to a real broker: what cannot be delivered as it is, and what it takes to deliver once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_agg.errors import RefusedError
from stream_agg.replay.tap import Tap
from stream_agg.worker.publish import SHORT, AtLeastOnce, publisher_of
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Outputs, Row

TOO_LARGE = 17 << 20  # for the producer, whatever the broker takes


@pytest.fixture
def settings(fresh: Callable[..., Settings]) -> Settings:
    return fresh()


async def test_a_dead_letter_too_large_goes_without_its_end(settings: Settings) -> None:
    rows = [
        Row(settings.topic_dead_letters, "s", b"x" * TOO_LARGE, (("reason", "bad_json"),)),
        Row(settings.topic_dead_letters, "s", b"small", (("reason", "bad_json"),)),
    ]
    seen: dict[bytes, dict[str, str]] = {}
    publisher = AtLeastOnce(settings)
    async with Tap(settings, lambda topic, key, value, headers: seen.update({value: headers})) as tap:
        await publisher.start()
        try:
            await publisher.publish(0, Outputs("forecasts", 1, rows))
        finally:
            await publisher.stop()
        await tap.until(lambda: len(seen) == 2, "waiting for the dead letters")
    assert seen[b"small"] == {"reason": "bad_json"}
    assert seen[b"x" * SHORT] == {"reason": "bad_json", "truncated": str(TOO_LARGE)}


async def test_any_other_record_too_large_stops_the_worker_with_the_remedy(settings: Settings) -> None:
    publisher = AtLeastOnce(settings)
    await publisher.start()
    try:
        with pytest.raises(RefusedError, match=r"raise its max\.message\.bytes"):
            await publisher.publish(0, Outputs("forecasts", 1, [Row(settings.topic_rules, "s", b"x" * TOO_LARGE, ())]))
    finally:
        await publisher.stop()


async def test_a_broker_without_transactions_is_refused_with_the_remedy(settings: Settings) -> None:
    publisher = publisher_of(replace(settings, delivery="exactly_once"))
    try:
        with pytest.raises(RefusedError, match=r"has no transactions, .* STREAM_AGG_DELIVERY=at_least_once"):
            await publisher.start()
    finally:
        await publisher.stop()


async def test_rows_reach_the_partition_of_their_key_in_order(settings: Settings) -> None:
    rows = [
        Row(settings.topic_actions, f"s{k % 7}", b"%06d" % k + b"." * 2000 * (k % 3), (("ce_id", str(k)),))
        for k in range(600)  # several batches a partition
    ]
    seen: dict[str, list[bytes]] = {}
    publisher = AtLeastOnce(settings)
    one_by_one = AIOKafkaProducer(bootstrap_servers=settings.broker_list)
    async with Tap(settings, lambda topic, key, value, headers: seen.setdefault(key, []).append(value)) as tap:
        await publisher.start()
        await one_by_one.start()
        try:
            await publisher.publish(0, Outputs("forecasts", 1, rows))
            await tap.until(lambda: sum(map(len, seen.values())) == 600, "waiting for the rows")
            told = await one_by_one.send_and_wait(settings.topic_actions, b"", key=b"s3")
            consumer = AIOKafkaConsumer(bootstrap_servers=settings.broker_list)
            await consumer.start()
            tp = TopicPartition(settings.topic_actions, told.partition)
            consumer.assign([tp])
            consumer.seek(tp, 0)
            same = {r.key: r.partition for r in (await consumer.getmany(tp, timeout_ms=5000, max_records=600))[tp]}
            await consumer.stop()
        finally:
            await publisher.stop()
            await one_by_one.stop()
    assert b"s3" in same
    for k in range(7):
        assert seen[f"s{k}"] == [row.value for row in rows if row.key == f"s{k}"]
