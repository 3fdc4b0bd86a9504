"""Fixtures of several rooms: embedded servers, a deployment of one's own on them, the real data if it is there."""

from __future__ import annotations

import asyncio
import csv
import os
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from stream_agg.cli.local import servers
from stream_agg.worker.broker import create_topics
from stream_agg.worker.settings import Settings

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def local() -> Iterator[Settings]:
    """Settings of one embedded broker and Redis for the whole run."""
    with servers(Settings()) as settings:
        yield settings


@pytest.fixture
def fresh(local: Settings) -> Callable[..., Settings]:
    """Makes a deployment nobody else uses on the shared servers: its own app name and topics, created."""

    def make(**changes: object) -> Settings:
        name = uuid.uuid4().hex[:8]
        topics = {f: f"{getattr(local, f)}-{name}" for f in Settings.__slots__ if f.startswith("topic_")}
        settings = replace(local, app=f"test-{name}", partitions=2, **topics, **changes)  # type: ignore[arg-type]
        asyncio.run(create_topics(settings))
        return settings

    return make


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """The path of a real data set, from STREAM_AGG_DATA or a `data` folder beside the project; skips without it."""
    places = [Path(os.environ["STREAM_AGG_DATA"])] if "STREAM_AGG_DATA" in os.environ else []
    places += sorted(ROOT.parent.glob("*/data"))

    def find(name: str) -> Path:
        for place in places:
            path = place / f"{name}.csv.gz"
            if path.exists():
                return path
        pytest.skip(f"the real forecasts {name}.csv.gz are not here: set STREAM_AGG_DATA to their folder")

    return find


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 1,500 rows: three experts, gaps, 12 rows a day, some outcomes never known."""
    rng = random.Random(5)
    path = tmp_path_factory.mktemp("made-up") / "rain.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["event_id", "time", "outcome", "ecmwf", "gfs", "icon"])
        for i in range(1500):
            day, p = i // 12, rng.random()
            reports = ["" if rng.random() < 0.1 else f"{min(max(rng.gauss(p, 0.2), 0), 1):.3f}" for _ in range(3)]
            outcome = "" if rng.random() < 0.05 else int(rng.random() < p)
            out.writerow([f"e{i}", date(2024, 1, 1) + timedelta(day), outcome, *reports])
    return path
