"""The small web server of a worker: /metrics, /livez, /readyz, /startupz. It answers from a thread of its own, so that
a long solve does not look like a dead process. It reads facts and never the work itself.

/metrics and the reasons of a probe are for those who bring the token, where there is one; a probe's yes or no is for
all who reach the port. On a loopback address only a loopback name is answered.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from time import monotonic

from aiohttp import web

from stream_agg.watch import names
from stream_agg.watch.door import HEADERS, bearer, loopback, name_of, right
from stream_agg.watch.metrics import CONTENT_TYPE
from stream_agg.watch.observer import Observer

_log = logging.getLogger(__name__)

_STOP_S = 2.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Serves what `observer` knows on `bind`:`port`, from `start` to `stop`.

    A port that is taken is no reason to stop working: nothing is served then, and `tell` says so.
    """

    def __init__(self, observer: Observer, bind: str, port: int, token: str = "") -> None:
        self._observer, self._bind, self._port, self._token = observer, bind, port, token
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
        app = _app(self._observer, loopback(self._bind), self._token)
        runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=_STOP_S)
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


def _app(observer: Observer, local: bool, token: str) -> web.Application:
    health = observer.health

    def trusted(request: web.Request) -> bool:
        return not token or right(token, bearer(request.headers.get("Authorization", "")))

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if local and not loopback(name_of(request.host)):
            answer: web.StreamResponse = web.Response(status=403, text="Ask by a loopback address.")
        else:
            try:
                answer = await handler(request)
            except web.HTTPException as e:  # such as 404 and 405
                answer = web.Response(status=e.status, text=e.reason)
        answer.headers.update(HEADERS)
        return answer

    async def metrics(request: web.Request) -> web.Response:
        if not trusted(request):
            return web.Response(status=401, text="Bring the token of STREAM_AGG_HTTP_TOKEN as a bearer token.")
        now_s = monotonic()
        observer.metrics.set(names.READY, not health.unready(now_s))
        observer.metrics.set(names.ALIVE, not health.dead(now_s))
        return web.Response(body=observer.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application(middlewares=[guard], client_max_size=1024)
    app.router.add_get("/metrics", metrics)
    for path, faults in (("/livez", health.dead), ("/readyz", health.unready), ("/startupz", health.unstarted)):
        app.router.add_get(path, _probe(faults, trusted))
    return app


def _probe(faults: Callable[[float], list[str]], trusted: Callable[[web.Request], bool]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        found = faults(monotonic())
        why = {"why": found} if trusted(request) else {}
        return web.json_response({"ok": not found, **why}, status=503 if found else 200)

    return answer
