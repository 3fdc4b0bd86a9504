"""The monitor page over HTTP: fixed files, and server-sent events with what is shown. Read-only: nothing but GET.

On a loopback address the page is for whoever is on the machine, and only under a loopback name: a page of another site
that lets its own name point here is refused. Any other address needs a token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files

import orjson
from aiohttp import web
from plotly.offline import get_plotlyjs

from stream_agg.errors import ConfigError
from stream_agg.monitor.shown import detail, overview
from stream_agg.monitor.view import View
from stream_agg.replay.page import DRAW, TONES
from stream_agg.watch import door
from stream_agg.watch.door import bearer, loopback, name_of, right
from stream_agg.worker.settings import Settings

PUSH_S = 0.2
"""How soon a change is sent: five times a second is as live as eyes can follow, and bounds the work."""
STILL_S = 1.0
"""How often ages are sent though nothing changed; the page takes five such silences for a lost connection."""
STREAMS = 32
"""Pages that may be open at once: each costs a fold over the sessions five times a second."""
COOKIE = "stream_agg_monitor"

# plotly begins its style sheet with an empty style element, whose hash this is; its rules come by script then.
_EMPTY = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
HEADERS = {
    **door.HEADERS,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    f"style-src 'self' {_EMPTY}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def check(settings: Settings) -> None:
    """`ConfigError` where the page would be open to a network."""
    if not loopback(settings.monitor_bind) and not settings.monitor_token:
        raise ConfigError(
            f"the monitor page on {settings.monitor_bind} would be open to a network: set STREAM_AGG_MONITOR_TOKEN (or "
            "STREAM_AGG_MONITOR_TOKEN_FILE), or bind it to 127.0.0.1"
        )


@asynccontextmanager
async def serving(settings: Settings, view: View) -> AsyncIterator[str]:
    """Serve the page of a view within the context; its address. Port 0 takes any free one. `ConfigError` where the
    address cannot be had."""
    check(settings)
    page = _Page(settings, view)
    runner = web.AppRunner(page.app(), access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.monitor_bind, settings.monitor_port)
        try:
            await site.start()
        except OSError as e:
            raise ConfigError(
                f"the monitor page cannot have {settings.monitor_bind}:{settings.monitor_port} ({e.strerror}): choose "
                "another port with --port or STREAM_AGG_MONITOR_PORT"
            ) from e
        host, port = runner.addresses[0][:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    finally:
        page.ending.set()
        await runner.cleanup()


class _Page:
    def __init__(self, settings: Settings, view: View) -> None:
        self.view, self.token = view, settings.monitor_token
        self.local = loopback(settings.monitor_bind)
        self.ending = asyncio.Event()
        self.streams = 0

    def app(self) -> web.Application:
        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            return await self._guard(request, handler)

        app = web.Application(middlewares=[guard], client_max_size=1024)
        app.router.add_get("/events", self._events)
        for path, (text, kind) in _files().items():
            app.router.add_get(path, _fixed(text, kind))
        return app

    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            answer = self._refused(request) or await handler(request)
        except web.HTTPException as e:  # such as 404 and 405
            answer = web.Response(status=e.status, text=e.reason)
        if not answer.prepared:
            answer.headers.update(HEADERS)
        return answer

    def _refused(self, request: web.Request) -> web.Response | None:
        """The answer to one who may not look; None to one who may."""
        if not self.token:
            if self.local and not loopback(name_of(request.host)):
                return web.Response(status=403, text="Ask for this page by a loopback address, such as 127.0.0.1.")
            return None
        given = request.query.get("token")
        if given is not None and self._right(given):  # once: from then on the cookie says it, and no address does
            answer = web.Response(status=303, headers={"Location": "/"})
            answer.set_cookie(COOKIE, given, httponly=True, samesite="Strict")
            return answer
        brought = (bearer(request.headers.get("Authorization", "")), request.cookies.get(COOKIE, ""))
        if any(self._right(one) for one in brought):
            return None
        return web.Response(status=401, text="Open this page as /?token=..., with the token it was started with.")

    def _right(self, given: str) -> bool:
        return right(self.token, given)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self.streams >= STREAMS:
            return web.Response(status=503, text=f"{STREAMS} pages are open already: close one.")
        page = request.query.get("page", "0")
        asked = (
            request.query.get("session"),
            request.query.get("find", "")[:512],
            int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 0,
        )
        answer = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", **HEADERS}
        )
        await answer.prepare(request)
        self.streams += 1
        try:
            await self._send(answer, *asked)
        except ConnectionError:  # the page was closed
            pass
        finally:
            self.streams -= 1
        return answer

    async def _send(self, answer: web.StreamResponse, name: str | None, find: str, page: int) -> None:
        """Send what is shown whenever it has changed; the session's part only when that has."""
        version, sent_s, spent_s = -1, 0.0, 0.0
        drawn: tuple[str, int] | None = None
        while not self.ending.is_set():
            now = time.monotonic()
            if version != self.view.version or now - sent_s >= STILL_S:
                version, sent_s = self.view.version, now
                shown = overview(self.view, time.time(), find, page)
                session = self.view.sessions.get(name or "") or (
                    self.view.sessions.get(shown["sessions"][0]["session"]) if not name and shown["sessions"] else None
                )
                if session is not None and drawn != (session.name, session.version):
                    drawn = (session.name, session.version)
                    shown["detail"] = detail(session, time.time())
                spent_s = time.monotonic() - now
                await answer.write(b"data: " + orjson.dumps(shown) + b"\n\n")
            await asyncio.sleep(max(PUSH_S, 4 * spent_s))  # a fifth of the time at most, however many sessions


def _fixed(text: bytes, kind: str) -> _Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=text, content_type=kind, charset="utf-8", headers={"Cache-Control": "no-cache"})

    return answer


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """path -> (content, media type). All that the page is made of comes from this package and plotly's."""
    own = files("stream_agg.monitor").joinpath("static")
    return {
        "/": (own.joinpath("page.html").read_bytes(), "text/html"),
        "/monitor.css": (TONES.encode() + own.joinpath("monitor.css").read_bytes(), "text/css"),
        "/monitor.js": (DRAW.encode() + own.joinpath("monitor.js").read_bytes(), "text/javascript"),
        "/plotly.js": (get_plotlyjs().encode(), "text/javascript"),
    }
