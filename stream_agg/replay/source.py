"""Forecast files as rows, and rows as steps of event time. Reads one file; knows no session and no clock.

A CSV file has the header `event_id,time,outcome,<expert>...`; an empty cell is an unknown outcome or a silent expert.
A JSONL file has lines `{"event": ..., "time": ..., "outcome": 0|1|null, "forecasts": {expert: probability|null}}`.
Either may be gzipped. Rows are sorted by time.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from stream_agg.errors import ConfigError, EventError, InputError
from stream_agg.events import check_id, format_time, parse_time

_HEADER = ["event_id", "time", "outcome"]
_EXTENSIONS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
# Tables with gaps are often written with whole numbers as floats.
_OUTCOMES = {"": None, "0": 0, "1": 1, "0.0": 0, "1.0": 1}
_BOM = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One event of a file: its forecasts (None: silent) and its outcome (None: no state known)."""

    event: str
    time: str
    """RFC 3339 in UTC, ending in Z."""
    time_us: int
    outcome: int | None
    forecasts: dict[str, float | None]


class Step(NamedTuple):
    """What happens at one moment of event time: either forecasts to decide on, or states (event, outcome) to learn."""

    time: str
    time_us: int
    forecasts: tuple[Row, ...]
    states: tuple[tuple[str, int], ...]


class Source:
    """A file of forecasts with outcomes; nothing is opened before it is asked for.

    Every method raises `ConfigError` for a file that cannot be read or has no usable header, and `InputError`
    naming file, line and column for a cell that cannot be used.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @cached_property
    def experts(self) -> tuple[str, ...]:
        """Names of the experts: the CSV columns, or all names of a JSONL file in order of appearance (a full pass)."""
        if self._format == "jsonl":
            return tuple(dict.fromkeys(name for row in self.rows() for name in row.forecasts))
        with self._open() as file:
            return self._header(self._cells(file))

    def rows(self) -> Iterator[Row]:
        """The rows in file order, read as they are asked for. A JSONL row has the experts that its line names."""
        with self._open() as file:
            last_us, last = -(1 << 63), ""
            for line, row in self._csv_rows(file) if self._format == "csv" else self._jsonl_rows(file):
                if row.time_us < last_us:
                    fault = f"{row.time} comes after the later {last}: sort the rows by time, earliest first"
                    raise self._bad(line, "time", fault)
                last_us, last = row.time_us, row.time
                yield row

    def count(self) -> int:
        """Number of rows, without reading their cells."""
        with self._open() as file:
            if self._format == "csv":
                cells = self._cells(file)
                self._header(cells)
                return sum(1 for _ in cells)
            return sum(1 for line in file if line.strip())

    @cached_property
    def _format(self) -> str:
        name = self.path.name.lower().removesuffix(".gz")
        known = _EXTENSIONS.get(Path(name).suffix)
        if known:
            return known
        with self._open() as file:
            first = next((line for line in file if line.strip()), b"")
        return "jsonl" if first.lstrip().startswith(b"{") else "csv"

    @contextmanager
    def _open(self) -> Iterator[io.BufferedReader[Any]]:
        try:
            with self.path.open("rb") as raw:
                packed = raw.read(2) == b"\x1f\x8b"
                raw.seek(0)
                with io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 16) if packed else raw as file:
                    if file.peek(3).startswith(_BOM):
                        file.read(3)
                    yield file
        except (OSError, EOFError, zlib.error) as e:
            detail = (e.strerror if isinstance(e, OSError) else None) or e
            raise ConfigError(f"{self.path}: cannot be read: {detail}") from e

    def _bad(self, line: int, column: str, fault: str) -> InputError:
        return InputError("bad_event", f"{self.path} line {line} column {column}: {fault}")

    def _cells(self, file: io.BufferedReader[Any]) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(map(bytes.decode, file))
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except (csv.Error, UnicodeDecodeError) as e:
            raise InputError("bad_event", f"{self.path} after line {reader.line_num}: not CSV in UTF-8: {e}") from e

    def _header(self, lines: Iterator[tuple[int, list[str]]]) -> tuple[str, ...]:
        names = [cell.strip() for cell in next(lines, (0, []))[1]]
        experts = names[3:]
        if names[:3] != _HEADER or not experts or "" in experts or len({*names}) < len(names):
            raise ConfigError(
                f"{self.path}: expected the header event_id,time,outcome,<expert>... with distinct names, "
                f"got {_short(','.join(names))}"
            )
        return tuple(experts)

    def _csv_rows(self, file: io.BufferedReader[Any]) -> Iterator[tuple[int, Row]]:
        lines = self._cells(file)
        experts = self._header(lines)
        width = len(experts) + 3
        for line, cells in lines:
            if len(cells) != width:
                raise self._bad(line, str(len(cells)), f"expected {width} cells, got {len(cells)}")
            event, time, outcome = cells[:3]
            forecasts = {}
            for expert, cell in zip(experts, cells[3:], strict=True):
                try:
                    forecasts[expert] = _probability(cell)
                except ValueError:
                    raise self._bad(
                        line, expert, f"expected a probability in [0, 1] or nothing, got {_short(cell)}"
                    ) from None
            try:
                known = _OUTCOMES[outcome.strip()]
            except KeyError:
                raise self._bad(line, "outcome", f"expected 0, 1 or nothing, got {_short(outcome)}") from None
            yield line, self._row(line, "event_id", event, time, known, forecasts)

    def _jsonl_rows(self, file: io.BufferedReader[Any]) -> Iterator[tuple[int, Row]]:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                record = orjson.loads(text)
            except orjson.JSONDecodeError as e:
                raise self._bad(number, str(e.colno), f"not JSON: {e.msg}") from e
            if not isinstance(record, dict):
                raise self._bad(number, "1", f"expected a JSON object, got {_short(record)}")
            reports, outcome = record.get("forecasts"), record.get("outcome")
            if not isinstance(reports, dict):
                raise self._bad(number, "forecasts", f"expected an object of probabilities, got {_short(reports)}")
            for expert, p in reports.items():
                if p is not None and not (_number(p) and 0 <= p <= 1):
                    raise self._bad(number, expert, f"expected a probability in [0, 1] or null, got {_short(p)}")
            if outcome is not None and not (_number(outcome) and outcome in (0, 1)):
                raise self._bad(number, "outcome", f"expected 0, 1 or null, got {_short(outcome)}")
            key = "event" if "event" in record else "event_id"
            known = None if outcome is None else int(outcome)
            forecasts = {expert: None if p is None else float(p) for expert, p in reports.items()}
            yield number, self._row(number, key, record.get(key), record.get("time"), known, forecasts)

    def _row(
        self, line: int, key: str, event: Any, time: Any, outcome: int | None, forecasts: dict[str, float | None]
    ) -> Row:
        try:
            name = check_id(event, key)
        except EventError as e:
            raise self._bad(line, key, e.detail.removeprefix(f"{key}: ")) from None
        try:
            time_us, text = _moment(time)
        except (ValueError, TypeError):
            fault = f"expected a date or an RFC 3339 time such as 2026-11-21T06:00:00Z, got {_short(time)}"
            raise self._bad(line, "time", fault) from None
        return Row(name, text, time_us, outcome, forecasts)


def steps(rows: Iterable[Row], delay_us: int) -> Iterator[Step]:
    """The feed of sorted rows in event time, each outcome revealed `delay_us` microseconds after its row's time.

    Rows of equal time are decided together, before any of their own outcomes. States that are known at a moment come
    before the forecasts of that moment. States left after the last row follow at their own times.
    `ValueError` for a negative delay.
    """
    if delay_us < 0:
        raise ValueError(f"a delay cannot be negative, got {delay_us} microseconds")
    return _steps(rows, delay_us)


def _steps(rows: Iterable[Row], delay_us: int) -> Iterator[Step]:
    # One delay for all keeps the waiting outcomes in the order of their rows: a queue, no heap.
    waiting: deque[tuple[int, str, int]] = deque()
    for time_us, group in groupby(rows, key=attrgetter("time_us")):
        together = tuple(group)
        yield from _reveal(waiting, time_us)
        yield Step(together[0].time, time_us, together, ())
        waiting.extend((time_us + delay_us, row.event, row.outcome) for row in together if row.outcome is not None)
        if not delay_us:
            yield from _reveal(waiting, time_us)
    if waiting:
        yield from _reveal(waiting, waiting[-1][0])


def _reveal(waiting: deque[tuple[int, str, int]], until_us: int) -> Iterator[Step]:
    while waiting and waiting[0][0] <= until_us:
        time_us = waiting[0][0]
        known = []
        while waiting and waiting[0][0] == time_us:
            _, event, outcome = waiting.popleft()
            known.append((event, outcome))
        yield Step(format_time(time_us), time_us, (), tuple(known))


def _probability(cell: str) -> float | None:
    if not cell or cell.isspace():
        return None
    p = float(cell)
    # float() reads 0_1 as 1, which is never what a table means.
    if not 0.0 <= p <= 1.0 or "_" in cell:
        raise ValueError
    return p


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@lru_cache(maxsize=4096)
def _moment(text: Any) -> tuple[int, str]:
    """Microseconds and text of a time, a bare date or a naive time (both UTC)."""
    if not isinstance(text, str):
        raise TypeError
    full = text.strip()
    if len(full) == 10:
        full += "T00:00:00Z"
    elif full[-1:] not in ("Z", "z") and full[-6:-5] not in ("+", "-"):
        full += "Z"
    time_us = parse_time(full)
    try:
        return time_us, format_time(time_us)
    except OverflowError as e:  # an offset can push the first or last day out of the calendar
        raise ValueError(str(e)) from e


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
