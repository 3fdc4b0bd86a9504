"""The page is whole, safe and says the numbers it was given."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from plotly.offline import get_plotlyjs
from scipy.stats import norm

from stream_agg.replay.charts import POINTS
from stream_agg.replay.report import drift_doubt, render, script_json

EVIL = '</script><b onclick="x">&'
SPEC = {"session": "s", "experts": {"ecmwf": {"levels": [0.25, 0.75]}}, "actions": {"stay": [1.0, 0.0]}}
TIME = "2026-11-01T00:00:00Z"
CALIBRATION = {"ecmwf": [(0.25, 30, 10), (0.5, 0, 0), (0.75, 0, 8)]}


def record(round_: int, states: int, **robust: Any) -> dict[str, Any]:
    known = states > 0
    return {
        "time": TIME,
        "round": round_,
        "reason": "solve",
        "robust": {
            "round": round_,
            "value": 1.75,
            "worst_case": 1.5,
            "regret": 0.25 * round_,
            "bound": 60.0 * round_,
            "penalty": 0.125,
            "value_penalty": 0.125,
            "exact": True,
            "gamma": 3.0,
            "epsilon_min": 0.0,
        }
        | robust,
        "realized": {
            "states": states,
            "payoff": 1.5 * states,
            "expected_payoff": 1.25 * states if known else None,
            "optimal_in_hindsight": 1.625 * states if known else None,
            "contextual": 2.0 * states if known else None,
            "contextual_regret": 0.5 * states if known else None,
            "bound": None,
        },
        "calibration": {},
        "open": round_ - states,
        "counts": {},
        "drift": None,
    }


class Page(HTMLParser):
    """What a browser would see: tags with their attributes, the text of each tag, the tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.tables: list[list[list[str]]] = []
        self._in = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.texts[self._in][-1] += data
        if self._in in ("td", "th"):
            self.tables[-1][-1].append(data)

    @property
    def charts(self) -> list[dict[str, Any]]:
        (data,) = (
            t for t, (_, a) in zip(self.texts["script"], self.of("script"), strict=True) if a.get("id") == "charts"
        )
        charts: list[dict[str, Any]] = json.loads(data)
        return charts

    def of(self, tag: str) -> list[tuple[str, dict[str, str | None]]]:
        return [(name, attributes) for name, attributes in self.tags if name == tag]


def page(regrets: list[dict[str, Any]], **changes: Any) -> Page:
    arguments: dict[str, Any] = {
        "title": "Replay",
        "spec": SPEC,
        "rounds": 40,
        "regrets": regrets,
        "calibration": CALIBRATION,
    } | changes
    return Page(render(**arguments))


def test_text_of_users_stays_text() -> None:
    spec = SPEC | {"session": EVIL}
    seen = page([record(4, 2)], title=EVIL, spec=spec, calibration={EVIL: [(0.5, 1, 1)]})
    assert seen.texts["title"] == seen.texts["h1"] == [EVIL]
    assert seen.texts["h3"] == [EVIL]
    assert json.loads(seen.texts["pre"][0]) == spec
    assert seen.of("script") == [
        ("script", {"type": "application/json", "id": "charts"}),
        ("script", {}),
        ("script", {}),
    ]
    assert not any("onclick" in attributes for _, attributes in seen.tags)
    assert EVIL not in json.dumps(seen.charts)  # plotly would read its markup


def test_json_cannot_end_its_script() -> None:
    text = script_json([EVIL, "<!--"])
    assert "<" not in text
    assert json.loads(text) == [EVIL, "<!--"]


def test_nothing_is_fetched() -> None:
    text = render("Replay", SPEC, 40, [record(4, 2)], CALIBRATION)
    (policy,) = (a for _, a in Page(text).of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"] == (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    )
    # The policy holds for what plotly might do; the page itself does not even ask.
    assert text.count(get_plotlyjs()) == 1
    ours = text.replace(get_plotlyjs(), "")
    assert not re.search(r"(src|href|action)\s*=|https?:|@import|url\(|fetch\(|import\(", ours)


def test_every_chart_has_its_table_with_its_numbers() -> None:
    seen = page([record(4, 2), record(10, 8)])
    regret, realized, value, expert = seen.tables
    assert regret == [["Round", "Event time", "Regret", "Bound"], ["4", TIME, "1", "240"], ["10", TIME, "2.5", "600"]]
    assert realized[1:] == [["2", TIME, "1.5", "1.625", "2"], ["8", TIME, "1.5", "1.625", "2"]]
    assert value[1:] == [["4", "1.625", "1.375", "0.125", "0.125"], ["10", "1.625", "1.375", "0.125", "0.125"]]
    assert [row[:3] for row in expert[1:]] == [["0.25", "40", "0.25"], ["0.75", "8", "1"]]
    drawn = [a["id"] for _, a in seen.of("div") if (a.get("id") or "").startswith("chart-")]
    assert drawn == ["chart-0", "chart-1", "chart-2", "chart-3"]
    assert len(seen.charts) == len(seen.of("details")) - 1 == 4
    lines = [[(line["x"], line["y"]) for line in chart["data"]] for chart in seen.charts]
    assert lines[0] == [([4, 10], [1.0, 2.5]), ([4, 10], [240.0, 600.0])]
    assert lines[1] == [([2, 8], [1.5, 1.5]), ([2, 8], [1.625, 1.625]), ([2, 8], [2.0, 2.0])]
    assert lines[2] == [([4, 10], [1.625, 1.625]), ([4, 10], [1.375, 1.375])]
    assert lines[3][1] == ([0.25, 0.75], [0.25, 1.0])


def test_a_comparison_is_a_table_of_all_and_a_chart_of_policies() -> None:
    def part(mean: float, reach: float | None = 0.125) -> dict[str, float | None]:
        ends = (None, None) if reach is None else (mean - reach, mean + reach)
        return {"mean": mean, "low": ends[0], "high": ends[1], "error": reach}

    lines = [
        {"name": "robust", "kind": "policy", "payoff": part(0.75), "over_mean": part(-0.25)},
        {"name": "hedge", "kind": "policy", "payoff": part(0.5, None), "over_mean": part(-0.5, None)},
        {"name": f"expert:{EVIL}", "kind": "baseline", "payoff": part(0.5), "over_mean": part(-0.5)},
    ]
    seen = page([record(4, 2)], comparison={"events": 1200, "times": 125, "block": 5, "lines": lines})
    head, *rows = seen.tables[0]
    assert head[0] == "Decided by"
    assert rows == [
        ["robust", "0.75", "0.625", "0.875", "-0.25", "-0.375", "-0.125"],
        ["hedge", "0.5", "unknown", "unknown", "-0.5", "unknown", "unknown"],
        [f"expert:{EVIL}", "0.5", "0.375", "0.625", "-0.5", "-0.625", "-0.375"],
    ]
    (drawn,) = seen.charts[0]["data"]
    assert (drawn["x"], drawn["y"]) == ([-0.25], ["robust"])
    assert (drawn["error_x"]["array"], drawn["error_x"]["arrayminus"]) == ([0.125], [0.125])
    assert EVIL not in json.dumps(seen.charts)
    assert any("1,200 events" in text and "blocks of 5 of the 125 times" in text for text in seen.texts["p"])
    assert not any("onclick" in attributes for _, attributes in seen.tags)


def test_a_value_with_its_penalty_is_nowhere_on_the_page() -> None:
    seen = page([record(4, 2, value=7.7531, worst_case=6.6421, penalty=2.0, value_penalty=2.0)])
    shown = str(seen.tables) + str(seen.texts["dd"]) + str(seen.texts["b"]) + str(seen.charts)
    assert "5.753" in shown
    assert "4.642" in shown
    assert "7.75" not in shown
    assert "6.64" not in shown


def test_intervals_are_wilsons() -> None:
    n, p, z = 40, 0.25, norm.ppf(0.975)
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    error = page([record(4, 2)]).charts[3]["data"][1]["error_y"]
    assert p - error["arrayminus"][0] == pytest.approx(middle - half)
    assert p + error["array"][0] == pytest.approx(middle + half)
    assert 1.0 + error["array"][1] == pytest.approx(1.0)


def test_without_states_the_realised_section_says_so() -> None:
    seen = page([record(4, 0)], calibration={"ecmwf": [(0.25, 0, 0)]})
    assert len(seen.tables[1]) == len(seen.tables[3]) == 1
    assert "Nothing to show yet." in seen.texts["p"]
    assert seen.texts["b"][1] == "unknown"
    assert len(seen.tables[0]) == 2


def test_payoff_feedback_has_a_payoff_and_no_benchmarks() -> None:
    paid = record(4, 2)
    paid["realized"] |= dict.fromkeys(("expected_payoff", "optimal_in_hindsight", "contextual", "contextual_regret"))
    seen = page([paid])
    assert seen.tables[1][1] == ["2", TIME, "1.5", "unknown", "unknown"]
    assert seen.texts["b"][1] == "3"
    assert "hindsight the" not in " ".join(seen.texts["dd"])


def test_without_reports_there_is_still_a_page() -> None:
    assert page([], rounds=0).texts["b"] == ["0"]
    assert [len(table) for table in page([record(0, 0)]).tables[:3]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("epsilon_min", "words"), [(0.0, "consistent"), (0.03, "cannot all be calibrated within less")]
)
def test_the_key_figures_are_in_words(epsilon_min: float, words: str) -> None:
    text = render("Replay", SPEC, 1234, [record(1234, 1000, epsilon_min=epsilon_min)], CALIBRATION)
    figures = re.findall(r"<dd><b>(.*?)</b> (.*?)</dd>", text)
    assert [figure for figure, _ in figures] == ["1,234", "1,500.0", "308.5", f"{epsilon_min:g}", "not looked at"]
    assert "1,000 have a known state, 234 wait" in figures[0][1]
    assert "1.5 a round" in figures[1][1]
    assert "0.25 a round. The theorem allows 74,040.0." in figures[2][1]
    assert words in figures[3][1]


DRIFT = {"round": 8192, "expert": EVIL, "p_value": 3.2e-9, "distance": 0.2134, "alarm": True, "first_alarm": 448}


@pytest.mark.parametrize(
    ("changes", "figure", "words"),
    [
        (
            {},
            "in doubt",
            f"The rounds do not look like independent draws from one distribution, as the bound assumes. Expert {EVIL} "
            "reported otherwise in rounds 4,097 to 8,192 than before (distance 0.21, p = 3e-09; first alarm at round "
            "448).",
        ),
        ({"p_value": 0.0}, "in doubt", "p < 1e-300"),
        ({"alarm": False, "p_value": 0.4}, "in doubt", "There was an alarm at round 448, but none at round 8,192"),
        (
            {"alarm": False, "first_alarm": None},
            "not refuted",
            "by round 8,192: later reports are distributed as earlier, up to chance.",
        ),
    ],
)
def test_what_the_looks_for_drift_found_is_in_words(changes: dict[str, Any], figure: str, words: str) -> None:
    drift = DRIFT | changes
    text = render("Replay", SPEC, 9000, [record(9000, 0) | {"drift": drift}], CALIBRATION)
    last = re.findall(r"<dd><b>(.*?)</b> (.*?)</dd>", text)[-1]
    assert last[0] == figure
    assert words in unescape(last[1])
    assert "<" not in last[1]
    assert drift_doubt(drift) == (unescape(last[1]) if figure == "in doubt" else None)


def test_many_reports_are_thinned_and_the_last_of_each_round_counts() -> None:
    regrets = [record(i, i // 2, regret=r) for i in range(1, 3 * POINTS) for r in (1.0, 2.0)]
    table = page(regrets).tables[0][1:]
    assert POINTS // 2 <= len(table) <= POINTS
    assert [table[0][0], table[-1][0]] == ["1", f"{3 * POINTS - 1:,}"]
    assert {row[2] for row in table} == {"2"}
