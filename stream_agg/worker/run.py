"""A worker from start to end: checks what it needs, puts its parts together, runs until told to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from stream_agg.errors import UnavailableError
from stream_agg.session.warm import warm_up
from stream_agg.store.redis import RedisStore
from stream_agg.watch.observer import Observer
from stream_agg.watch.serve import Server
from stream_agg.watch.tracing import Tracing
from stream_agg.worker import app as faust_app
from stream_agg.worker import kafka
from stream_agg.worker.broker import Specs, count_partitions, create_topics
from stream_agg.worker.look import Look, Offsets, beat
from stream_agg.worker.loop import Loop
from stream_agg.worker.publish import publisher_of
from stream_agg.worker.rights import Side
from stream_agg.worker.settings import Settings

_log = logging.getLogger(__name__)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Work until `stop` is set. `UnavailableError` where a server is missing at start, `RefusedError` where going on
    would break a promise; whatever else a crash was is raised as it is."""
    tracing = Tracing(settings.app) if settings.tracing else None
    observer = Observer(settings.stuck_s, tracing)
    try:
        with _served(settings, observer) as tell:
            warm_up()  # before the first record: the loop must not stand still in the middle
            await _work(settings, stop, observer, tell)
    finally:
        if tracing:
            tracing.close()


async def _work(settings: Settings, stop: asyncio.Event, observer: Observer, tell: Callable[[], None]) -> None:
    if settings.create_topics:
        await create_topics(settings)
    sides: list[Side] = ["worker", "exactly once"] if settings.delivery == "exactly_once" else ["worker"]
    partitions = (await count_partitions(settings, *sides))[settings.topic_forecasts]
    store = RedisStore(settings.redis_url, settings.app, settings.redis_timeout_s)
    publisher, specs = publisher_of(settings), Specs(settings)
    try:
        await store.check()
        await store.peek(0)
        await publisher.start()
        await specs.start()
        loop = Loop(settings, store, publisher, specs, observer)
        app = faust_app.build_app(
            app_id=settings.app,
            brokers=settings.broker_list,
            topics=[settings.topic_forecasts, settings.topic_states],
            handler=loop,
            instance=settings.instance or None,
            security=kafka.security(settings),
            session_timeout_s=settings.session_timeout_s,
        )
        _log.info("ready to take %d partitions of %s", partitions, ", ".join(settings.inputs))
        tell()
        watching = asyncio.create_task(loop.watch_specs())
        watching.add_done_callback(lambda task: stop.set())  # it ends only by an error
        try:
            async with _watched(loop, lambda: faust_app.worked(app), observer):
                try:
                    await faust_app.run(app, stop)
                except UnavailableError as e:
                    raise kafka.denied(settings, e.__cause__ or e) or e from e.__cause__
        finally:
            watching.cancel()
            ended = (await asyncio.gather(watching, return_exceptions=True))[0]
            await loop.finish()
        if isinstance(ended, Exception):
            raise ended
    finally:
        await specs.stop()
        await publisher.stop()
        await store.close()


@contextmanager
def _served(settings: Settings, observer: Observer) -> Iterator[Callable[[], None]]:
    """Serve while the body runs; what says where, once there is something to see."""
    if not settings.http_port:
        yield lambda: None
        return
    server = Server(observer, settings.http_bind, settings.http_port, settings.http_token)
    server.start()
    try:
        yield server.tell
    finally:
        server.stop()


@asynccontextmanager
async def _watched(loop: Loop, worked: Callable[[], Offsets | None], observer: Observer) -> AsyncIterator[None]:
    """Watch while the body runs; that watching failed is said, and stops nothing."""
    tasks = [asyncio.create_task(Look(loop, worked, observer).run()), asyncio.create_task(beat(observer))]
    for task in tasks:
        task.add_done_callback(_tell_failure)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("watching the worker ended; its health is not known any more", exc_info=task.exception())
