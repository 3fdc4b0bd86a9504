"""Outputs to a real broker: what cannot be delivered as it is, and what it takes to deliver once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

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
