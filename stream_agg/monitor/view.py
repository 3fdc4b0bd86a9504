"""What the output topics say, folded record by record into bounded memory. No Kafka, no clock, no words for people.

Every record is trusted to be ours in meaning, not in shape: one that has another shape is counted and left out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stream_agg.monitor.calibration import Calibration, Off, off
from stream_agg.replay.charts import POINTS, Point, count, number, thinned

Kind = Literal["action", "regret", "rule"]

SESSIONS = 2000
"""Sessions that are kept: those heard of last. About 20 kB each with all their points, so 40 MB at most."""
DEAD_LETTERS = 20
"""Dead letters whose detail is kept: what a person reads; all of them count by reason."""
REASONS = 32
"""Different reasons that are counted: more than the closed list has."""
ARRIVALS = 64
"""Latest actions whose times are kept, to know the rhythm of the feed."""
MINUTES = 10
"""Minutes for which dead letters are counted one by one: the five that an alarm looks at, and five before."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The latest action of a session."""

    event: str
    time: str
    round: int
    action: str
    probability: float
    policy: str
    gap: float | None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Latest:
        """The part of an action record that is shown."""
        name, stamp = str(record["action"]), record["rule"]
        return cls(
            event=str(record["event"]),
            time=str(record["time"]),
            round=count(record["round"]),
            action=name,
            probability=float(record["strategy"].get(name, 0.0)),
            policy=str(record["policy"]),
            gap=number(stamp["gap"]),
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule in force of a session, and the levels its experts may report."""

    version: int
    round: int
    value: float
    upper_bound: float
    unsolved: str | None
    levels: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Rule:
        """The part of a rule record that is shown."""
        return cls(
            version=count(record["version"]),
            round=count(record["round"]),
            value=float(record["value"]),
            upper_bound=float(record["upper_bound"]),
            unsolved=None if record["unsolved"] is None else str(record["unsolved"]),
            levels={str(name): tuple(sorted(map(float, row))) for name, row in record["duals"].items()},
        )


@dataclass(frozen=True, slots=True)
class Drift:
    """The latest look at whether the rounds come from one distribution."""

    expert: str
    p_value: float
    distance: float
    alarm: bool
    round: int


@dataclass(frozen=True, slots=True)
class Report:
    """The latest report of a session, whole."""

    point: Point
    reason: str
    value: float
    epsilon_min: float
    open: int
    oldest_open: str | None
    drift: Drift | None
    calibration: Calibration

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Report:
        """The part of a regret record that is shown. Fields that older workers did not write may be missing."""
        robust, drift = record["robust"], record.get("drift")
        return cls(
            point=Point.of(record),
            reason=str(record["reason"]),
            value=float(robust["value"]),
            epsilon_min=float(robust["epsilon_min"]),
            open=count(record["open"]),
            oldest_open=None if record.get("oldest_open") is None else str(record["oldest_open"]),
            drift=drift and Drift(str(drift["expert"]), *_drift_numbers(drift)),
            calibration={str(name): _levels(part) for name, part in record["calibration"].items()},
        )


@dataclass(slots=True)
class Watched:
    """One session. `heard_s` is the time of its latest record, in seconds since 1970."""

    name: str
    heard_s: float = 0.0
    version: int = 0
    """Grows with every record."""
    latest: Latest | None = None
    rule: Rule | None = None
    report: Report | None = None
    points: list[Point] = field(default_factory=list)
    off: list[Off] = field(default_factory=list)
    """Experts that are off, by the latest report: it is asked far more often than it changes."""

    @property
    def closed(self) -> bool:
        """Whether its final report is here, and nothing after it."""
        return self.report is not None and self.report.reason == "close"

    def take(self, kind: Kind, record: Mapping[str, Any]) -> None:
        """Fold in one record; `KeyError`, `TypeError`, `ValueError` or `AttributeError` where it has no such shape."""
        if kind == "action":
            self.latest = Latest.of(record)
        elif kind == "rule":
            self.rule = Rule.of(record)
        else:
            report = Report.of(record)
            if self.closed and report.reason != "close":  # a new session of the same name
                self.points.clear()
            self.report = report
            self._add(report.point)
        if kind != "action" and self.report is not None:
            self.off = off(self.report.calibration, self.rule.levels if self.rule else {})

    def _add(self, point: Point) -> None:
        last = self.points[-1] if self.points else None
        if last is not None and (point.round, point.states) < (last.round, last.states):
            return  # published again after a crash
        if last is not None and (point.round, point.states) == (last.round, last.states):
            self.points.pop()
        self.points.append(point)
        if len(self.points) >= 2 * POINTS:
            self.points[:] = thinned(self.points)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be used: where it stood, and why."""

    time_s: float
    place: str
    reason: str
    detail: str


@dataclass(slots=True)
class Progress:
    """How far the workers are behind the inputs. Times in seconds since 1970; None: not known yet."""

    lag: int | None = None
    """Input records that are not applied yet."""
    workers: int | None = None
    """Members of the consumer group."""
    moved_s: float | None = None
    """When the group's offsets moved last, or nothing was left to do."""
    input_s: float | None = None
    """When an input was seen to grow last."""
    lags: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=600))
    """The lag over time."""
    away: str | None = None
    """Why Kafka gave no answer; None while it does."""
    away_s: float = 0.0
    """Since when."""
    _applied: int = -1
    _ends: int = -1

    def measured(self, now_s: float, ends: int, applied: int, lag: int, workers: int) -> None:
        """One look: sums of the end offsets and of the group's offsets over all inputs, and what lies between."""
        if applied != self._applied or lag == 0 or self.moved_s is None:
            self.moved_s = now_s
        if ends != self._ends:
            self.input_s = now_s if self._ends >= 0 else self.input_s
        self._applied, self._ends = applied, ends
        self.lag, self.workers, self.away = lag, workers, None
        self.lags.append((now_s, lag))

    def lost(self, now_s: float, why: str) -> None:
        """Kafka gives no answer."""
        self.away_s = self.away_s if self.away is not None else now_s
        self.away = why


class View:
    """All that is watched. `version` grows with every change."""

    def __init__(self) -> None:
        self.sessions: dict[str, Watched] = {}
        self.progress = Progress()
        self.dead_letters: deque[DeadLetter] = deque(maxlen=DEAD_LETTERS)
        self.reasons: Counter[str] = Counter()
        self.dead_by_minute: Counter[int] = Counter()
        self.arrivals: deque[float] = deque(maxlen=ARRIVALS)
        self.evicted = 0
        self.unreadable = 0
        self.version = 0

    def take(self, kind: Kind, session: str, record: Any, time_s: float) -> None:
        """Fold in the decoded record of an output topic; `time_s` is Kafka's time of it."""
        self.version += 1
        watched = self.sessions.get(session) or Watched(session)
        try:
            watched.take(kind, record)
        except (KeyError, TypeError, ValueError, AttributeError):
            self.unreadable += 1
            return
        watched.version += 1
        watched.heard_s = max(watched.heard_s, time_s)
        if kind == "action":
            self.arrivals.append(time_s)
        if session not in self.sessions:
            self._make_room()
            self.sessions[session] = watched

    def take_dead(self, place: str, reason: str, detail: str, time_s: float) -> None:
        """Fold in a dead letter."""
        self.version += 1
        self.dead_letters.append(DeadLetter(time_s, place, reason, detail))
        self.reasons[reason if reason in self.reasons or len(self.reasons) < REASONS else "other"] += 1
        minute = int(time_s // 60)
        self.dead_by_minute[minute] += 1
        for old in [m for m in self.dead_by_minute if m <= max(self.dead_by_minute) - MINUTES]:
            del self.dead_by_minute[old]

    def take_unreadable(self) -> None:
        """Count a record that is not even JSON."""
        self.version += 1
        self.unreadable += 1

    def _make_room(self) -> None:
        if len(self.sessions) >= SESSIONS:
            quiet = min(self.sessions.values(), key=lambda s: (not s.closed, s.heard_s))
            del self.sessions[quiet.name]
            self.evicted += 1


def _drift_numbers(drift: Mapping[str, Any]) -> tuple[float, float, bool, int]:
    return float(drift["p_value"]), float(drift["distance"]), bool(drift["alarm"]), count(drift["round"])


def _levels(part: Mapping[str, Any]) -> dict[float, tuple[int, int]]:
    rows = ((float(level), (count(zeros), count(ones))) for level, (zeros, ones) in part.get("levels", {}).items())
    return dict(sorted(rows))
