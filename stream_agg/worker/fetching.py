"""The thread of the Kafka consumer: fetches that tell exactly which offsets they cover. No Faust event is made here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import aiokafka
from aiokafka.errors import ConsumerStoppedError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

_FETCH_WAIT_S = 0.5  # one fetch waits no longer for a record: a rebalance that finds it waiting waits as long
_LONG_POLL_MS = 500  # aiokafka's own default; Faust asks for 1500, and the first fetch after a seek may wait for that


class Got(NamedTuple):
    """What one fetch brought."""

    moved: dict[TP, tuple[int, Sequence[aiokafka.ConsumerRecord]]]  # the position now, the records before it
    strayed: dict[TP, int]
    """Positions that were not as expected. Ahead: the answer to an earlier fetch was lost, or the record is kept no
    longer and aiokafka went to the earliest. Behind: it went there because there is no such record yet."""
    ends: dict[TP, int]  # high watermarks


class FetchThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]  # faust is not typed
    """The one thread that may touch aiokafka's consumer; its methods run there, called by `call_thread`."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # what a producer aborted was never sent
        consumer._fetch_max_wait_ms = _LONG_POLL_MS
        return consumer

    async def on_thread_stop(self) -> None:
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            # Not of us: aiokafka cancels its fetches and awaits them, and while the broker is away one says so. Faust
            # would wait for this thread for ever.
            await self._ensure_consumer()._client.close()

    async def offsets_committed(self, tps: Sequence[TP]) -> dict[TP, int | None]:
        """The group's committed offsets; None where there is none."""
        consumer = self._ensure_consumer()
        return dict(zip(tps, await asyncio.gather(*map(consumer.committed, tps)), strict=True))

    async def offsets_earliest(self, tps: Sequence[TP]) -> dict[TP, int]:
        """The earliest offsets that are kept."""
        return dict(await self._ensure_consumer().beginning_offsets(tps))

    async def place(self, offsets: Mapping[TP, int]) -> None:
        """Set fetch positions, of what is assigned."""
        consumer = self._ensure_consumer()
        for tp in consumer.assignment() & offsets.keys():
            consumer.seek(tp, offsets[tp])

    async def fetch(self, expected: Mapping[TP, int], most: int) -> Got:
        """Fetch at most `most` records from the `expected` positions on."""
        fetcher = self._ensure_consumer()._fetcher
        deadline = monotonic() + _FETCH_WAIT_S
        with fetcher._subscriptions.fetch_context():
            while not fetcher._closed:
                # With a timeout of 0 it does not yield between the two looks: what moved is what was fetched. (And of
                # no partitions it takes them all.)
                strayed = _moved(fetcher, expected)
                wanted = {tp: at for tp, at in expected.items() if tp not in strayed}
                records: dict[TP, Any] = {}
                if wanted:
                    records = await fetcher.fetched_records(wanted, timeout=0, max_records=most)
                moved = {tp: (at, records.get(tp, ())) for tp, at in _moved(fetcher, wanted).items()}
                if moved or strayed or monotonic() > deadline:
                    ends = {tp: state.highwater for tp, state in _states(fetcher, wanted).items()}
                    return Got(moved, strayed, {tp: end for tp, end in ends.items() if end is not None})
                news = fetcher._create_fetch_waiter()
                await asyncio.wait([news], timeout=deadline - monotonic())
                if not news.cancel():
                    news.result()  # not authorised, for one
        raise ConsumerStoppedError


def _states(fetcher: Any, tps: Iterable[TP]) -> dict[TP, Any]:
    subscription = fetcher._subscriptions.subscription
    if subscription is None or subscription.assignment is None:
        return {}
    states = {tp: subscription.assignment.state_value(tp) for tp in tps}
    return {tp: state for tp, state in states.items() if state is not None and state.has_valid_position}


def _moved(fetcher: Any, positions: Mapping[TP, int]) -> dict[TP, int]:
    states = _states(fetcher, positions)
    return {tp: state.position for tp, state in states.items() if state.position != positions[tp]}
