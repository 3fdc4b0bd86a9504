"""Takes docs/monitor.png: the page of `stream-agg demo` in headless Chromium, a minute after the first action.

Run from anywhere with the extra `test` and a Chromium: `python docs/screenshot.py [FILE]`. STREAM_AGG_CHROMIUM says
where the browser is if it is not on the path.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from PIL import Image  # of matplotlib, in the extra `test`
from playwright.sync_api import sync_playwright

FEED_MS = 60_000
LARGEST = 200_000  # bytes: a README loads it every time


def main(to: Path) -> None:
    """Start the demo, look at its page, stop it."""
    found = os.environ.get("STREAM_AGG_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        sys.exit("no Chromium is installed: install one, or set STREAM_AGG_CHROMIUM to its path")
    flags = ["--disable-gpu", "--disable-background-networking", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    command = [sys.executable, "-P", "-m", "stream_agg", "demo", "--no-browser"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = next(line for line in demo.stdout or () if line.startswith("monitor page: ")).split()[-1]
        with sync_playwright() as driver:
            chromium = driver.chromium.launch(executable_path=found, args=flags)
            page = chromium.new_page(viewport={"width": 1280, "height": 1380})
            page.goto(address)
            page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=FEED_MS)
            page.wait_for_timeout(FEED_MS)
            page.screenshot(path=to)
            Image.open(to).quantize(256).save(to, optimize=True)  # flat colours: half the size
            chromium.close()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate()
    size = to.stat().st_size
    if size > LARGEST:
        sys.exit(f"{to} has {size:,} bytes, more than {LARGEST:,}")
    sys.stdout.write(f"{to}: {size:,} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("monitor.png"))
