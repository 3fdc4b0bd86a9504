"""The small web server of a worker: /metrics, /livez, /readyz, /startupz. It answers from a thread of its own, so that
a long solve does not look like a dead process. It reads facts and never the work itself."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from time import monotonic

from aiohttp import web

from stream_agg.watch import names
from stream_agg.watch.metrics import CONTENT_TYPE
from stream_agg.watch.observer import Observer

_log = logging.getLogger(__name__)

_STOP_S = 2.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Serves what `observer` knows on `bind`:`port`, from `start` to `stop`.

    A port that is taken is no reason to stop working: nothing is served then, and `tell` says so.
    """

    def __init__(self, observer: Observer, bind: str, port: int) -> None:
        self._observer, self._bind, self._port = observer, bind, port
        self._thread = threading.Thread(target=self._serve, name="stream-agg-http", daemon=True)
        self._up = threading.Event()
        self._fault: OSError | None = None

    def start(self) -> None:
        """Serve; returns when connections are taken, or cannot be."""
        self._thread.start()
        self._up.wait()

    def tell(self) -> None:
        """Log where to look, or why there is nothing to be seen."""
        if self._fault is None:
            _log.info("metrics and health are at http://%s:%d", self._bind, self._port)
        else:
            _log.warning(
                "no metrics and no health: cannot listen on %s:%d (%s); set STREAM_AGG_HTTP_PORT (0: off)",
                self._bind,
                self._port,
                self._fault.strerror,
            )

    def stop(self) -> None:
        """Take no further connection and end the thread."""
        if self._fault is None:
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        runner = web.AppRunner(_app(self._observer), handle_signals=False, access_log=None, shutdown_timeout=_STOP_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._bind, self._port).start()
            self._up.set()
            await self._ended.wait()
        except OSError as e:
            self._fault = e
        finally:
            self._up.set()
            await runner.cleanup()


def _app(observer: Observer) -> web.Application:
    health = observer.health

    async def metrics(_: web.Request) -> web.Response:
        now_s = monotonic()
        observer.metrics.set(names.READY, not health.unready(now_s))
        observer.metrics.set(names.ALIVE, not health.dead(now_s))
        return web.Response(body=observer.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    for path, faults in (("/livez", health.dead), ("/readyz", health.unready), ("/startupz", health.unstarted)):
        app.router.add_get(path, _probe(faults))
    return app


def _probe(faults: Callable[[float], list[str]]) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        found = faults(monotonic())
        return web.json_response({"ok": not found, "why": found}, status=503 if found else 200)

    return answer
