"""A report of a replay and the live page draw the same charts of the same records."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import orjson

import stream_agg as sa
from stream_agg.events import Regret
from stream_agg.monitor.charts import charts
from stream_agg.monitor.view import Watched
from stream_agg.replay.report import render

SPEC: dict[str, Any] = {
    "session": "s",
    "experts": {"a": {"levels": 5}, "b": {"levels": 5}},
    "actions": {"stay": [1, 0], "go": [0, 3]},
    "feedback": "state",
}


def test_the_report_shows_what_the_page_shows() -> None:
    draw, session = random.Random(2), sa.Session(sa.SessionSpec.from_dict(SPEC))
    found: list[Regret] = []
    for k in range(120):
        p = draw.random()
        session.decide(str(k), {"a": p, "b": min(p + 0.2, 1)}, f"2026-11-01T00:{k // 60:02}:{k % 60:02}Z")
        session.learn(str(k), int(draw.random() < p), f"2026-11-01T00:{k // 60:02}:{k % 60:02}Z")
        if k % 5 == 4:
            found.append(session.report())
    records = [orjson.loads(orjson.dumps(report)) for report in found]
    watched = Watched("s")
    for record in records:
        watched.take("regret", record)
    page = render("Replay", SPEC, 120, records, session.calibration())
    text = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page)
    assert text
    drawn = json.loads(text[1])
    del drawn[2]  # what the rule guarantees: of the report alone
    shown = json.loads(json.dumps(charts(watched)))
    assert drawn == [{"data": chart["data"], "layout": chart["layout"]} for chart in shown]
    assert [chart["title"] for chart in shown[2:]] == ["a", "b"]
