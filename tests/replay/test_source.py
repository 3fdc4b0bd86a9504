"""Files of forecasts: what is read, what is refused and in which words, and the order of the feed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_agg.errors import ConfigError, InputError
from stream_agg.events import format_time
from stream_agg.replay.source import Row, Source, Step, steps

CSV = """event_id,time,outcome,ecmwf,gfs
a,2026-11-21,1,0.3,
b,2026-11-21T06:00:00.5+01:00,,0.5,1

c,2026-11-22 00:00:00,0.0,,0
"""
LINES: list[dict[str, object]] = [
    {"event": "a", "time": "2026-11-21", "outcome": 1, "forecasts": {"ecmwf": 0.3, "gfs": None}},
    {"event_id": "b", "time": "2026-11-21T05:00:00.5Z", "outcome": None, "forecasts": {"ecmwf": 0.5, "gfs": 1}},
    {"event": "c", "time": "2026-11-22 00:00:00", "outcome": 0, "forecasts": {"ecmwf": None, "gfs": 0.0}},
]
JSONL = "\n".join(json.dumps(line) for line in LINES) + "\n"
DAY = 86_400_000_000
NOV_21 = 1_795_219_200_000_000
ROWS = [
    Row("a", "2026-11-21T00:00:00Z", NOV_21, 1, {"ecmwf": 0.3, "gfs": None}),
    Row("b", "2026-11-21T05:00:00.500000Z", NOV_21 + 18_000_500_000, None, {"ecmwf": 0.5, "gfs": 1.0}),
    Row("c", "2026-11-22T00:00:00Z", NOV_21 + DAY, 0, {"ecmwf": None, "gfs": 0.0}),
]


@pytest.mark.parametrize("text", [CSV, JSONL, "\ufeff" + CSV, "\ufeff" + JSONL, CSV.replace("\n", "\r\n")])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_every_form_of_a_file_gives_the_same_rows(tmp_path: Path, text: str, packed: bool, named: bool) -> None:
    kind = "jsonl" if "{" in text else "csv"
    path = tmp_path / (f"feed.{kind}" if named else "feed.txt")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    source = Source(path)
    assert source.experts == ("ecmwf", "gfs")
    assert list(source.rows()) == ROWS
    assert list(source.rows()) == ROWS
    assert source.count() == 3


def test_experts_of_jsonl_are_the_union_in_order_of_appearance(tmp_path: Path) -> None:
    path = tmp_path / "feed.jsonl.gz"
    lines = [{"event": str(i), "time": "2026-11-21", "forecasts": {name: 0.5}} for i, name in enumerate("bacb")]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert Source(path).experts == ("b", "a", "c")


def test_nothing_is_opened_before_it_is_asked_for(tmp_path: Path) -> None:
    source = Source(tmp_path / "later.csv")
    with pytest.raises(ConfigError, match=r"later\.csv: cannot be read: No such file"):
        source.count()
    (tmp_path / "later.csv").write_text(CSV)
    assert source.count() == 3


@pytest.mark.parametrize(
    "header",
    [
        "",
        "\n",
        "event_id,time,outcome",
        "event,time,outcome,a",
        "event_id,time,outcome,a,a",
        "event_id,time,outcome,a,",
    ],
)
def test_a_bad_header_is_refused(tmp_path: Path, header: str) -> None:
    path = tmp_path / "feed.csv"
    path.write_text(header + "\n")
    for ask in (lambda s: s.experts, lambda s: s.count(), lambda s: list(s.rows())):
        with pytest.raises(ConfigError, match=r"feed\.csv: expected the header event_id,time,outcome,<expert>"):
            ask(Source(path))


def test_a_truncated_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "feed.csv.gz"
    path.write_bytes(gzip.compress(CSV.encode())[:-12])
    with pytest.raises(ConfigError, match="cannot be read"):
        list(Source(path).rows())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,2026-11-21,1,nan,0", "line 2 column x: expected a probability in [0, 1] or nothing, got 'nan'"),
        ("a,2026-11-21,1,0,1.01", "line 2 column y: expected a probability in [0, 1] or nothing, got '1.01'"),
        ("a,2026-11-21,1,0,high", "line 2 column y: expected a probability in [0, 1] or nothing, got 'high'"),
        ("a,2026-11-21,1,0,0_1", "line 2 column y: expected a probability in [0, 1] or nothing, got '0_1'"),
        ("a,2026-11-21,1,-0.1,0", "line 2 column x: expected a probability in [0, 1] or nothing, got '-0.1'"),
        ("a,2026-11-21,2,0,0", "line 2 column outcome: expected 0, 1 or nothing, got '2'"),
        ("a,2026-11-21,nan,0,0", "line 2 column outcome: expected 0, 1 or nothing, got 'nan'"),
        ("a,soon,1,0,0", "line 2 column time: expected a date or an RFC 3339 time such as"),
        ("a,2026-02-30,1,0,0", "line 2 column time: expected a date or an RFC 3339 time such as"),
        ("a,0001-01-01T00:00:00+05:00,1,0,0", "line 2 column time: expected a date or an RFC 3339 time such as"),
        (",2026-11-21,1,0,0", "line 2 column event_id: expected text of 1 to 512 characters, got ''"),
        ("a,2026-11-21,1,0", "line 2 column 4: expected 5 cells, got 4"),
        (
            "a,2026-11-21,1,0,0\nb,2026-11-20,1,0,0",
            "line 3 column time: 2026-11-20T00:00:00Z comes after the later 2026-11-21T00:00:00Z: sort the rows",
        ),
    ],
)
def test_a_bad_csv_cell_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "feed.csv"
    path.write_text(f"event_id,time,outcome,x,y\n{row}\n")
    with pytest.raises(InputError) as caught:
        list(Source(path).rows())
    assert caught.value.reason == "bad_event"
    assert caught.value.detail.startswith(f"{path} {message}")
    assert "\n" not in caught.value.detail


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"event": "a"', "line 2 column 14: not JSON"),
        ("[]", "line 2 column 1: expected a JSON object, got []"),
        ({"forecasts": None}, "line 2 column forecasts: expected an object of probabilities, got None"),
        ({"forecasts": {"x": True}}, "line 2 column x: expected a probability in [0, 1] or null, got True"),
        ({"forecasts": {"x": "0.5"}}, "line 2 column x: expected a probability in [0, 1] or null, got '0.5'"),
        ({"forecasts": {"x": 2}}, "line 2 column x: expected a probability in [0, 1] or null, got 2"),
        ({"outcome": False}, "line 2 column outcome: expected 0, 1 or null, got False"),
        ({"outcome": 0.5}, "line 2 column outcome: expected 0, 1 or null, got 0.5"),
        ({"time": 5}, "line 2 column time: expected a date or an RFC 3339 time such as 2026-11-21T06:00:00Z, got 5"),
        ({"time": []}, "line 2 column time: expected a date or an RFC 3339 time such as 2026-11-21T06:00:00Z, got []"),
        ({"event": 5}, "line 2 column event: expected text of 1 to 512 characters, got 5"),
        ({"event": None}, "line 2 column event: expected text of 1 to 512 characters, got None"),
    ],
)
def test_a_bad_json_value_is_named(tmp_path: Path, line: str | dict[str, object], message: str) -> None:
    path = tmp_path / "feed.jsonl"
    path.write_text("\n" + (line if isinstance(line, str) else json.dumps(LINES[0] | line)))
    with pytest.raises(InputError) as caught:
        list(Source(path).rows())
    assert caught.value.reason == "bad_event"
    assert caught.value.detail.startswith(f"{path} {message}")


@pytest.mark.parametrize("name", ["feed.csv", "feed.jsonl"])
def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes((CSV if name.endswith("csv") else JSONL).encode().replace(b"gfs", b"\xff"))
    with pytest.raises(InputError, match=r"feed\.(csv|jsonl) (after )?line"):
        list(Source(path).rows())


def row(event: str, time_us: int, outcome: int | None = 1) -> Row:
    return Row(event, format_time(time_us), time_us, outcome, {})


def shape(feed: list[Step]) -> list[tuple[int, str]]:
    """(time, forecasts or states as letters): capitals are forecasts."""
    return [(s.time_us, "".join(r.event.upper() for r in s.forecasts) or "".join(e for e, _ in s.states)) for s in feed]


def test_without_delay_rows_of_equal_time_come_before_their_outcomes() -> None:
    feed = list(steps([row("a", 0), row("b", 0, 0), row("c", 5, None), row("d", 5)], 0))
    assert shape(feed) == [(0, "AB"), (0, "ab"), (5, "CD"), (5, "d")]
    assert feed[1].states == (("a", 1), ("b", 0))


def test_with_delay_known_states_come_before_the_forecasts_of_their_moment() -> None:
    feed = steps([row("a", 0), row("b", 2), row("c", 5), row("d", 9)], 5)
    assert shape(list(feed)) == [(0, "A"), (2, "B"), (5, "a"), (5, "C"), (7, "b"), (9, "D"), (10, "c"), (14, "d")]


def test_a_negative_delay_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="negative"):
        steps([], -1)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0, 1, None])), max_size=30).map(
        lambda x: sorted(x, key=str)
    ),
    st.integers(0, 8),
)
def test_the_feed_is_the_rows_and_their_outcomes_in_order(draws: list[tuple[int, int | None]], delay_us: int) -> None:
    rows = [row(str(i), t, o) for i, (t, o) in enumerate(sorted(draws, key=lambda x: x[0]))]
    feed = list(steps(rows, delay_us))
    assert [s.time_us for s in feed] == sorted(s.time_us for s in feed)
    assert all(bool(s.forecasts) != bool(s.states) and s.time == format_time(s.time_us) for s in feed)
    assert [r for s in feed for r in s.forecasts] == rows
    revealed = [(s.time_us, *known) for s in feed for known in s.states]
    assert revealed == [(r.time_us + delay_us, r.event, r.outcome) for r in rows if r.outcome is not None]
    # The rule of the moment, stated without the queue: what is known before a decision is what was revealed by then.
    known: set[str] = set()
    for step in feed:
        known |= {event for event, _ in step.states}
        for decided in step.forecasts:
            by_then = {
                r.event
                for r in rows
                if r.outcome is not None and r.time_us + delay_us <= decided.time_us and r.time_us < decided.time_us
            }
            assert known == by_then
