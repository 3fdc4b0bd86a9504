"""The Faust app, built by one function from its parts, and run until it is told to stop or crashes.

What is done with the records is the handler's; how they get here is the business of `batches.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import aiokafka
import faust
from aiokafka.errors import KafkaError
from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials
from mode import CrashingSupervisor
from yarl import URL

from stream_agg.errors import UnavailableError
from stream_agg.worker.batches import BatchTopic, Transport

_log = logging.getLogger(__name__)

_LONG_S = 7 * 86400.0  # long enough to mean never, short enough for every unit it is turned into


class Handler(Protocol):
    """What the worker does with its partitions. `claim` and `process` never run at the same time."""

    async def claim(
        self, partitions: frozenset[int], committed: Mapping[tuple[str, int], int | None]
    ) -> Mapping[tuple[str, int], int]:
        """Become the owner of `partitions`: all this worker has, at every rebalance anew.

        Returns the offset to read each (topic, partition) from; one left out is read from the earliest record that is
        kept. `committed` is Kafka's view, a hint (None: none). No record is handed over before it returns, however long
        that takes; it is cancelled when another rebalance begins. Raising stops the worker.
        """

    async def revoke(self, partitions: frozenset[int]) -> None:
        """These partitions are to be claimed again, by us or another; a `process` of one may still be under way. Must
        not raise, and not take long: the rebalance waits."""

    async def process(self, topic: str, partition: int, records: Sequence[aiokafka.ConsumerRecord]) -> None:
        """One fetched run of one topic-partition, in offset order. Returns when its effects are durable.

        Offsets may be missing where the topic has none (compaction, transactions); none that it has is skipped.
        Raising stops the worker with the run not committed, except `FencedError` for a partition that was revoked
        meanwhile.
        """


class _App(faust.App):  # type: ignore[misc]  # faust is not typed
    finish_s: float

    def _create_directories(self) -> None:
        """None: there are no tables to keep."""

    async def on_stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.finish(self.finish_s)
        await super().on_stop()


class _Boot(faust.App.BootStrategy):  # type: ignore[misc]  # faust is not typed
    enable_kafka_producer = False  # outputs are sent by the handler, whose producer awaits every delivery
    enable_web = False


def build_app(
    *,
    app_id: str,
    brokers: Sequence[str],
    topics: Sequence[str],
    handler: Handler,
    instance: str | None = None,
    security: Mapping[str, Any] | None = None,
    session_timeout_s: float = 30.0,
    rebalance_timeout_s: float = 60.0,
    commit_interval_s: float = 1.0,
    finish_s: float = 5.0,
    run_records: int = 5000,
    runs_ahead: int = 4,
) -> faust.App:
    """An app that reads `topics` (which exist, with equal partition counts) as the consumer group `app_id`.

    Partition p of all of them is with the same worker. `brokers` are `host:port`. Run it with `run`, or start and stop
    it yourself and watch `app.crash_reason`.

    - `instance`: a name that the worker keeps when it is started again: its partitions wait for it through the session
      timeout, and the others are not disturbed. None: a rebalance at every start and stop.
    - `security`: what aiokafka is told about TLS and credentials (`kafka.security`). None: nothing.
    - `session_timeout_s`: how long a worker may be silent before its partitions go to others. 30: longer than any pause
      of a healthy process, short enough to wait for.
    - `rebalance_timeout_s`: how long the others wait for a worker to join again. 60, as in Faust.
    - `commit_interval_s`: how old the group's committed offsets get, which tools show as lag. 1: one small request.
    - `finish_s`: how long a run under way may take to end at a stop. 5: below the 10 s that containers get.
    - `run_records`: at most so many records are a run. 5000: the handler delivers a part of it while it works at the
      next, and a stop or a rebalance waits for no more than that.
    - `runs_ahead`: about so many runs wait in memory while one is worked. 4: enough that the handler never waits.
    """
    app = _App(
        app_id,
        broker=[URL(f"kafka://{broker}") for broker in brokers],
        broker_credentials=_credentials(security or {}),
        consumer_group_instance_id=instance,
        broker_session_timeout=session_timeout_s,
        broker_heartbeat_interval=min(3.0, session_timeout_s / 3),
        broker_rebalance_timeout=rebalance_timeout_s,
        # A join is answered when the last member has joined.
        broker_request_timeout=max(session_timeout_s, rebalance_timeout_s) + 30.0,
        # The heartbeats say that we live. A worker that waits for its store must keep its partitions, not shuffle them,
        # and is not to be called a bug by Faust's watchdog.
        broker_max_poll_interval=_LONG_S,
        stream_processing_timeout=_LONG_S,
        broker_commit_interval=commit_interval_s,
        consumer_auto_offset_reset="earliest",  # of no effect: a claim says where to read, and a lost record is refused
        agent_supervisor=CrashingSupervisor,  # a restarted agent would go on past what it could not do
        key_serializer="raw",
        value_serializer="raw",
        topic_allow_declare=False,
        topic_disable_leader=True,  # no topic beyond those of the contract
        table_standby_replicas=1,  # with 0 Faust assigns round robin: the topics would not go together
        # The epoch of a claim shuts out whatever is still under way, so a server that hangs need not block a rebalance.
        stream_wait_empty=False,
        web_enabled=False,
    )
    app.finish_s = finish_s
    app.boot_strategy = _Boot(app)
    app.finalize()
    app.transport = Transport(
        app.conf.broker_consumer, app, handler=handler, run_records=run_records, runs_ahead=runs_ahead
    )

    # Acknowledgements are ours: Faust's skip an unfinished batch, and take a failed one for done.
    async def work(runs: Any) -> None:
        async for run in runs:
            await app.consumer.work(run)

    app.agent(BatchTopic(app, topics=list(topics), acks=False), name="work")(work)
    return app


def _credentials(security: Mapping[str, Any]) -> Any:
    """In Faust's words."""
    context = security.get("ssl_context")
    if "sasl_oauth_token_provider" in security:
        return OAuthCredentials(oauth_cb=security["sasl_oauth_token_provider"], ssl_context=context)
    if "sasl_mechanism" in security:
        return SASLCredentials(
            username=security["sasl_plain_username"],
            password=security["sasl_plain_password"],
            mechanism=security["sasl_mechanism"],
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None


def worked(app: faust.App) -> dict[tuple[str, int], int] | None:
    """(topic, partition) -> the offset after all that are finished; None while `app` has no claim."""
    return None if app._consumer is None else app._consumer.worked()


async def run(app: faust.App, stop: asyncio.Event, *, patience_s: float = 20.0) -> None:
    """Start `app`, and stop it when `stop` is set or it has crashed; what made it crash is raised then.

    A stop that takes longer than `patience_s` seconds is given up with a warning (20: a run under way, a last commit
    and leaving the group); threads of Faust may be left then, so the process should end. Raises `UnavailableError`
    when it was the broker that failed.
    """
    failed: BaseException | None = None
    starting, ended, asked = (asyncio.ensure_future(a) for a in (app.start(), app.wait_until_stopped(), stop.wait()))
    try:
        await asyncio.wait({ended, asked, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None:
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
        try:  # a start under way is not cancelled first: it would leave a thread that no stop ends
            await asyncio.wait_for(app.stop(), patience_s)
        except TimeoutError:
            _log.warning("the worker did not stop within %g s", patience_s)
        except KafkaError as e:  # what made it stop may be in the way of its last words, too
            failed = e
        starting.cancel()
        await asyncio.wait({starting, ended, asked})
    reason = app.crash_reason or failed
    if reason is None and not starting.cancelled():
        reason = starting.exception()
    if isinstance(reason, KafkaError):
        raise UnavailableError(f"the broker failed: {reason}") from reason
    if reason is not None:
        raise reason
