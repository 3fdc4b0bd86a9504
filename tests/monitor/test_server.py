"""The page is read-only, for those who may look, and forbids a browser all that it does not need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
import pytest

from stream_agg.errors import ConfigError
from stream_agg.monitor import server
from stream_agg.monitor.server import check, serving
from stream_agg.monitor.view import View
from stream_agg.worker.settings import Settings

SETTINGS = Settings(monitor_port=0)
SECRET = replace(SETTINGS, monitor_token="hush")  # noqa: S106
PATHS = ["/", "/monitor.css", "/monitor.js", "/plotly.js", "/events"]


@asynccontextmanager
async def visiting(view: View | None = None, settings: Settings = SETTINGS) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the page of a view."""
    jar = aiohttp.CookieJar(unsafe=True)  # which means: of an address too, not of names alone
    async with (
        serving(settings, view or View()) as address,
        aiohttp.ClientSession(address, cookie_jar=jar) as client,
    ):
        yield client


async def status(client: aiohttp.ClientSession, path: str) -> int:
    """What asking for a path is answered with."""
    async with client.get(path) as answer:
        return answer.status


async def heard(answer: aiohttp.ClientResponse, count: int = 1) -> list[dict[str, Any]]:
    """The next `count` events."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            line = await answer.content.readuntil(b"\n\n")
            assert line.startswith(b"data: ")
            found.append(orjson.loads(line[6:]))
    return found


@pytest.mark.parametrize("path", PATHS)
async def test_every_answer_forbids_what_it_does_not_need(path: str) -> None:
    async with visiting() as client, client.get(path) as answer:
        assert answer.status == 200
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; connect-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Frame-Options"] == "DENY"


async def test_nothing_on_the_page_is_inline_or_from_elsewhere() -> None:
    async with visiting() as client:
        page = await (await client.get("/")).text()
    assert "<style" not in page
    assert " style=" not in page
    assert "://" not in page
    assert page.count("<script") == page.count('<script src="/') == 2


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_it_can_only_be_read(method: str) -> None:
    async with visiting() as client:
        for path in PATHS:
            assert (await client.request(method, path)).status == 405
        missing = await client.get("/../pyproject.toml")
        assert missing.status == 404
        assert "Content-Security-Policy" in missing.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1", "", "localhost.evil.example"])
async def test_another_sites_name_for_this_machine_is_refused(host: str) -> None:
    async with visiting() as client:
        for path in PATHS:
            assert (await client.get(path, headers={"Host": host})).status == 403
        assert (await client.get("/", headers={"Host": "localhost:1"})).status == 200
        assert (await client.get("/", headers={"Host": "[::1]:1"})).status == 200


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "10.1.2.3", "monitor.example"])  # noqa: S104
def test_an_open_address_needs_a_token(bind: str) -> None:
    with pytest.raises(ConfigError, match="STREAM_AGG_MONITOR_TOKEN"):
        check(replace(SETTINGS, monitor_bind=bind))
    check(replace(SECRET, monitor_bind=bind))


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_a_loopback_address_needs_none(bind: str) -> None:
    check(replace(SETTINGS, monitor_bind=bind))


async def test_with_a_token_nothing_is_shown_without_it() -> None:
    async with visiting(settings=SECRET) as client:
        for path in [*PATHS, "/?token=wrong", "/?token=", "/?token=hush2"]:
            answer = await client.get(path, allow_redirects=False)
            assert answer.status == 401
            assert "hush" not in await answer.text()
        wrong = {"Authorization": "Bearer hus\u00e9"}
        assert (await client.get("/", headers=wrong)).status == 401
        assert (await client.get("/", headers={"Authorization": "Bearer hush"})).status == 200


async def test_a_token_in_the_address_becomes_a_cookie() -> None:
    async with visiting(settings=SECRET) as client:
        first = await client.get("/?token=hush", allow_redirects=False)
        assert (first.status, first.headers["Location"]) == (303, "/")
        assert "HttpOnly" in first.headers["Set-Cookie"]
        assert "SameSite=Strict" in first.headers["Set-Cookie"]
        assert (await client.get("/")).status == 200
        async with client.get("/events") as answer:
            assert answer.status == 200


async def test_events_tell_what_changes_and_the_charts_only_then(records: Any) -> None:
    records.action()
    async with visiting(records.view) as client, client.get("/events?session=rain") as answer:
        (first,) = await heard(answer)
        assert first["detail"]["session"] == "rain"
        records.view.version += 1  # only an age, say
        (second,) = await heard(answer)
        assert "detail" not in second
        records.action(round_=2)
        (third,) = await heard(answer)
        assert third["detail"]["round"] == third["sessions"][0]["round"] == 2


@pytest.mark.parametrize(
    ("query", "shown", "name"),
    [("", 2, "oslo"), ("?find=rain", 1, "paris-rain"), ("?session=paris-rain", 2, "paris-rain"), ("?page=9", 2, "oslo"),
     ("?page=-1", 2, "oslo"), ("?page=²", 2, "oslo"), ("?session=nobody", 2, None)],
)  # fmt: skip
async def test_one_asks_for_a_session_a_page_or_a_name(records: Any, query: str, shown: int, name: str | None) -> None:
    records.action("paris-rain")
    records.action("oslo")
    async with visiting(records.view) as client, client.get("/events" + query) as answer:
        (event,) = await heard(answer)
    assert len(event["sessions"]) == shown
    assert event.get("detail", {}).get("session") == name


async def test_only_so_many_pages_are_open_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STREAMS", 1)
    async with visiting() as client:
        async with client.get("/events") as one:
            await heard(one)
            assert (await client.get("/events")).status == 503
        async with asyncio.timeout(10):
            while await status(client, "/events") != 200:
                pass


async def test_a_port_that_is_taken_is_one_line() -> None:
    async with serving(SETTINGS, View()) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        with pytest.raises(ConfigError, match=rf"cannot have 127.0.0.1:{port} .*--port"):
            async with serving(replace(SETTINGS, monitor_port=port), View()):
                pass


async def test_an_open_page_does_not_hold_up_the_end() -> None:
    async with aiohttp.ClientSession() as client:
        async with serving(SETTINGS, View()) as address:
            answer = await client.get(address + "events")
            await heard(answer)
            started = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - started < 5
        answer.close()
