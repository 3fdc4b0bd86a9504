"""The monitor page as people see it: a real worker, the page of `stream-agg monitor --web`, headless Chromium.

STREAM_AGG_SCREENSHOTS=DIR keeps the pictures.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from stream_agg.cli.local import WorkerProcess
from stream_agg.events import Action, RuleStamp, format_time
from stream_agg.replay.tap import Tap
from stream_agg.worker.publish import AtLeastOnce
from stream_agg.worker.settings import PREFIX, Settings
from stream_agg.worker.wire import Applied, Encoder, Outputs, Row

playwright = pytest.importorskip("playwright.async_api", reason="the page is driven by playwright, of the extra `test`")

AT = Applied(0, 0, 0)

EVIL = "<img src=x onerror=\"document.title='owned'\">"
SPEC: dict[str, Any] = {
    "experts": {"ecmwf": {"levels": 11}, "gfs": {"levels": 11}},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
    "feedback": "state",
    "schedule": {"growth": 0.05},
}
HOUR_US = 3_600_000_000
PATIENCE_S = 40.0


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    """Headless Chromium; skips where none is installed."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    found = os.environ.get("STREAM_AGG_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium is installed: install one, or set STREAM_AGG_CHROMIUM to its path")
    flags = ["--disable-gpu", "--disable-background-networking", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with playwright.async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=found, args=flags)
        yield chromium
        await chromium.close()


class Watcher:
    """An open page, and all that it did which it should not."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.errors: list[str] = []
        self.asked: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    @classmethod
    async def open(cls, browser: Any, address: str, width: int = 1280) -> Watcher:
        """The page, live."""
        seen = cls(await browser.new_page(viewport={"width": width, "height": 900}), address)
        await seen.page.add_init_script(
            "window.refused = []; document.addEventListener('securitypolicyviolation',"
            " e => refused.push(e.effectiveDirective + ' ' + e.blockedURI));"
        )
        await seen.page.goto(address)
        await seen.until("document.getElementById('status').dataset.state === 'live'")
        return seen

    async def until(self, expression: str) -> None:
        """Wait until a JavaScript expression holds; asked from outside, since the page's policy lets none in."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.page.evaluate(expression):  # noqa: ASYNC110 # it can only be asked
                await asyncio.sleep(0.01)

    async def text(self, selector: str) -> str:
        """What is read there."""
        return str(await self.page.locator(selector).inner_text())

    async def count(self, selector: str) -> int:
        """How many elements there are of that kind."""
        return int(await self.page.locator(selector).count())

    async def picture(self, name: str, folder: Path) -> None:
        """A picture of all of the page, at a desk and at hand; nothing is wider than the screen."""
        to = Path(os.environ.get("STREAM_AGG_SCREENSHOTS", folder))
        for width in (1280, 390):
            await self.page.set_viewport_size({"width": width, "height": 900})
            await self.until("document.documentElement.scrollWidth <= innerWidth")
            await self.page.screenshot(path=to / f"{name}-{width}.png", full_page=True)
        await self.page.set_viewport_size({"width": 1280, "height": 900})

    async def check(self) -> None:
        """No error, nothing asked of anyone else, nothing refused but a style sheet that plotly would like to write."""
        assert self.errors == []
        assert {url for url in self.asked if not url.startswith((self.address, "data:", "blob:"))} == set()
        assert set(await self.page.evaluate("window.refused")) <= {"style-src-elem inline"}


@contextmanager
def serving(settings: Settings) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`stream-agg monitor --web` on a free port: its address and process."""
    env = {**os.environ, **{PREFIX + f.name.upper(): str(getattr(settings, f.name)) for f in fields(Settings)}}
    command = [sys.executable, "-P", "-m", "stream_agg", "monitor", "--web", "--port", "0"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().removeprefix("monitor page: ").strip(), process
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stdout.close()


async def feed(settings: Settings, session: str, rounds: range, off: float, spec: bool = False) -> None:
    """Forecasts of an hourly event, with their states. Expert gfs reports by `off` too much."""
    draw = random.Random(rounds.start)
    async with Tap(settings, lambda *record: None) as tap:
        if spec:
            await tap.send(settings.topic_sessions, session, {**SPEC, "session": session})
        for k in rounds:
            p = draw.choice((0.2, 0.4, 0.6))
            head = {"session": session, "event": f"{k:05}", "time": format_time(HOUR_US * k)}
            forecasts = {"ecmwf": p, "gfs": round(p + off, 1)}
            await tap.send_soon(settings.topic_forecasts, session, {**head, "forecasts": forecasts})
            await tap.send_soon(settings.topic_states, session, {**head, "state": int(draw.random() < p)})
        await tap.flush()


def ticking(settings: Settings, k: int, session: str = "s", name: str | None = None) -> Row:
    """An action record, of no worker."""
    name = name or f"go-{k}"
    stamp, time_ = RuleStamp(1, 1, 0.001), format_time(HOUR_US * k)
    action = Action(session, f"e{k}", time_, k + 1, {}, name, {name: 1.0}, "robust", stamp, 0, 1)
    return Encoder(settings).row(action, AT)


async def test_the_page_from_empty_over_a_live_feed_and_a_bad_expert_to_a_dead_worker(
    browser: Any, fresh: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = await asyncio.to_thread(fresh)
    rounds = "document.querySelector('#sessions-body tr td:nth-child(3)')?.textContent"
    with (tmp_path / "worker.log").open("wb") as log, serving(settings) as (address, _):
        worker = WorkerProcess(settings, log.fileno())
        try:
            seen = await Watcher.open(browser, address)
            await seen.until("document.getElementById('alarms-none').textContent.startsWith('None')")
            assert "No session yet" in await seen.text("#sessions-none")
            assert not await seen.page.locator("#detail").is_visible()
            await seen.picture("empty", tmp_path)

            await feed(settings, "paris-rain", range(400), 0.0, spec=True)
            await seen.until(f"{rounds} === '400'")
            await seen.until("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 4")
            assert await seen.text("#detail-title") == "Session paris-rain"
            assert await seen.count("#multiples figure") == 2
            assert await seen.count("#alarms li") == 0
            await seen.picture("live", tmp_path)

            await feed(settings, "paris-rain", range(400, 1000), 0.3)
            await seen.until("document.getElementById('alarms').textContent.includes('expert gfs is off by')")
            assert "expert ecmwf is off" not in await seen.text("#alarms")
            await seen.until(f"{rounds} === '1,000'")
            announced = await seen.page.locator("#announce").text_content()
            assert announced.startswith("New alarm: paris-rain: ")
            level = "document.querySelectorAll('#multiples figure')[1].querySelector('tbody').textContent"
            await seen.until(f"{level}.includes('0.9000')")  # the charts come a second after the numbers
            await seen.picture("bad-expert", tmp_path)
        finally:
            worker.stop()
        await feed(settings, "paris-rain", range(1000, 1020), 0.3)
        words = r"/no worker is running; .*input record|the worker is down or stuck: .*input record/"
        await seen.until(f"{words}.test(document.getElementById('alarms').textContent)")
        assert (await seen.page.title()).startswith("(")
        await seen.picture("worker-down", tmp_path)
        await seen.check()


async def test_an_action_is_on_the_page_within_a_second(
    browser: Any, fresh: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    settings, took = await asyncio.to_thread(fresh), []
    publisher = AtLeastOnce(settings)
    await publisher.start()
    with serving(settings) as (address, _):
        seen = await Watcher.open(browser, address)
        for k in range(12):
            started = time.monotonic()
            await publisher.publish(0, Outputs("", 0, [ticking(settings, k)]))
            await seen.until(f"document.querySelector('#sessions-body td')?.textContent === 'go-{k}'")
            took.append(time.monotonic() - started)
        await seen.check()
    await publisher.stop()
    with capsys.disabled():
        sys.stdout.write(f"\n  action to page: {statistics.median(took):.2f} s (median), {max(took):.2f} s (most)\n")
    assert max(took) < 1.0


async def test_names_are_text_and_the_keyboard_reaches_all(browser: Any, fresh: Callable[..., Settings]) -> None:
    settings = await asyncio.to_thread(fresh)
    publisher = AtLeastOnce(settings)
    await publisher.start()
    names = [EVIL, *(f"session {k:02}" for k in range(30))]
    await publisher.publish(0, Outputs("", 0, [ticking(settings, 1, name, EVIL) for name in names]))
    await publisher.stop()
    rows = "document.querySelectorAll('#sessions-body tr').length"
    title = "document.getElementById('detail-title').textContent"
    with serving(settings) as (address, _):
        seen = await Watcher.open(browser, address, width=390)
        await seen.until(f"{rows} === 25")
        assert await seen.page.locator("#sessions-body a").first.inner_text() == EVIL
        assert await seen.text("#page") == "1 of 2"
        await seen.page.locator("#after").focus()
        await seen.page.keyboard.press("Enter")
        await seen.until("document.getElementById('page').textContent === '2 of 2'")
        await seen.page.locator("#find").fill("session 07")
        await seen.until(f"{rows} === 1")
        await seen.page.locator("#sessions-body a").focus()
        await seen.page.keyboard.press("Enter")
        await seen.until(f"{title} === 'Session session 07' && document.activeElement.id === 'detail'")
        await seen.page.locator("#find").fill("onerror")
        await seen.until(f"{rows} === 1 && document.querySelector('#sessions-body a').textContent.includes('onerror')")
        await seen.page.locator("#sessions-body a").click()
        await seen.until(f"{title}.includes('onerror') && document.getElementById('facts').textContent.includes('img')")
        assert await seen.count("img") == 0
        assert "owned" not in await seen.page.title()
        await seen.check()


async def test_a_monitor_that_is_gone_is_told_of(browser: Any, fresh: Callable[..., Settings]) -> None:
    with serving(await asyncio.to_thread(fresh)) as (address, process):
        seen = await Watcher.open(browser, address)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 20) == 0  # or a second signal would meet one that is ending
        await seen.until("document.getElementById('status').dataset.state === 'lost'")
        assert "Connection to the monitor is lost" in await seen.text("#status")
