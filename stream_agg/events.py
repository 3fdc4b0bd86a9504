"""Events in and out, as frozen values, and the texts of time. No I/O, no clock, no session here.

Times are integers of microseconds since 1970-01-01T00:00:00Z (`_us` in names); their text is RFC 3339 in UTC.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, TypeVar, dataclass_transform

from stream_agg.errors import EventError, Reason

ID_LENGTH = 512
"""Longest session or event id, in characters: ids are keys in Redis and Kafka and go into every output."""

LARGEST_PAYOFF = 1e9
"""Largest payoff in size, in a spec and fed back: sums over a session stay finite, so they have a JSON text."""

T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECONDS = tuple(f"{second:02}Z" for second in range(60))
_SECONDS_US = {text: second * 1_000_000 for second, text in enumerate(_SECONDS)}
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:[0-5]\d)", re.ASCII)
_DURATION = re.compile(
    r"P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)

_SHOWN = reprlib.Repr()  # a plain repr of a thousand lists within each other is an error of its own
_SHOWN.maxstring = _SHOWN.maxother = 80


def parse_time(text: str) -> int:
    """Microseconds since the epoch of an RFC 3339 time; `ValueError` says what is wrong.

    >>> parse_time("1970-01-01T01:00:00+00:30")
    1800000000
    """
    second_us = _SECONDS_US.get(text[17:])
    if second_us is not None:  # whole seconds in UTC: most of a stream's times share the rest with the time before
        try:
            return _parse(text[:17] + "00Z") + second_us
        except ValueError:
            pass  # it is said of the whole text
    return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> int:
    if not _RFC3339.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not an RFC 3339 time such as 2026-11-21T06:00:00Z")
    try:
        # In UTC, because an offset can carry a time out of the years that have a text.
        return (datetime.fromisoformat(text.upper()).astimezone(UTC) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError) as e:
        raise ValueError(f"{text[:40]!r} is not a time: {e}") from e


def format_time(time_us: int) -> str:
    """The RFC 3339 text, in UTC, with a fraction only where there is one.

    >>> format_time(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    minutes, rest = divmod(time_us, 60_000_000)
    second, fraction = divmod(rest, 1_000_000)
    if fraction:
        return f"{_minute(minutes)}{second:02}.{fraction:06}Z"
    return _minute(minutes) + _SECONDS[second]


@lru_cache(maxsize=4096)
def _minute(minutes: int) -> str:
    """A text up to its seconds; most of a stream's times share it with the time before."""
    return (_EPOCH + timedelta(minutes=minutes)).isoformat()[:17]


@lru_cache(maxsize=256)
def parse_duration(text: str) -> int:
    """Microseconds of an ISO 8601 duration in weeks, days, hours, minutes, seconds; `ValueError` otherwise.

    >>> parse_duration("P1DT12H") // 3_600_000_000
    36
    """
    found = _DURATION.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:40]!r} is not a duration such as P7D or PT12H (years and months: write days)")
    try:
        return timedelta(**{unit: float(n) for unit, n in found.groupdict().items() if n}) // _MICROSECOND
    except OverflowError as e:
        raise ValueError(f"{text[:40]!r} is too long a duration") from e


def check_id(value: Any, name: str) -> str:
    """The id if it is one: text of 1 to 512 characters that UTF-8 can hold; else `EventError`."""
    if type(value) is str and 0 < len(value) <= ID_LENGTH and value.isascii():
        return value
    if not is_text(value, ID_LENGTH):
        raise EventError("bad_event", f"{name}: expected text of 1 to {ID_LENGTH} characters, got {short(value)}")
    return str(value)


def is_text(value: Any, longest: int) -> bool:
    """Whether it is text of 1 to `longest` characters that UTF-8 can hold (half of a surrogate pair is not)."""
    return isinstance(value, str) and 0 < len(value) <= longest and (value.isascii() or not _SURROGATE.search(value))


def short(value: Any) -> str:
    """A value for a message: at most 60 characters, however large or deep it is."""
    text = _SHOWN.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _time(record: Mapping[str, Any]) -> int:
    value = record.get("time")
    if not isinstance(value, str):
        raise EventError("bad_event", f"time: expected an RFC 3339 text, got {short(value)}")
    try:
        return parse_time(value)
    except ValueError as e:
        raise EventError("bad_event", f"time: {e}") from None


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass_transform(frozen_default=True)
def _value(cls: type[T]) -> type[T]:
    """A dataclass whose frozenness is the type checker's business: made for every event, and at run time a frozen one
    takes five times as long to make."""
    return dataclass(slots=True)(cls)


@_value
class Forecast:
    """A forecast profile as it was reported: expert -> probability of state 1, or None (silent)."""

    session: str
    event: str
    time_us: int
    forecasts: Mapping[str, float | None]

    @classmethod
    def from_record(cls, record: Any) -> Forecast:
        """The checked event of a decoded JSON value; `EventError` names the first fault."""
        if not isinstance(record, dict):
            raise EventError("bad_event", f"expected a JSON object, got {short(record)}")
        reports = record.get("forecasts")
        if not isinstance(reports, dict):
            raise EventError("bad_event", f"forecasts: expected an object of probabilities, got {short(reports)}")
        for expert, p in reports.items():
            if type(p) is float and 0.0 <= p <= 1.0:
                continue
            if p is not None and not (_number(p) and 0 <= p <= 1):
                raise EventError(
                    "bad_event",
                    f"forecasts[{short(expert)}]: expected a probability in [0, 1] or null, got {short(p)}",
                )
        return cls(
            check_id(record.get("session"), "session"), check_id(record.get("event"), "event"), _time(record), reports
        )


@_value
class State:
    """What became of an event: its state (0 or 1), or the payoff of the action that was played."""

    session: str
    event: str
    time_us: int
    state: int | None
    payoff: float | None = None

    @classmethod
    def from_record(cls, record: Any) -> State:
        """The checked event of a decoded JSON value; `EventError` names the first fault."""
        if not isinstance(record, dict):
            raise EventError("bad_event", f"expected a JSON object, got {short(record)}")
        state, payoff = record.get("state"), record.get("payoff")
        if (state is None) == (payoff is None):
            raise EventError("bad_event", "expected either a state (0 or 1) or a payoff (a number)")
        if state is not None and (not _number(state) or state not in (0, 1)):
            raise EventError("bad_event", f"state: expected 0 or 1, got {short(state)}")
        if payoff is not None and not (_number(payoff) and abs(payoff) <= LARGEST_PAYOFF):
            raise EventError("bad_event", f"payoff: expected a number of at most 1e9, got {short(payoff)}")
        return cls(
            check_id(record.get("session"), "session"),
            check_id(record.get("event"), "event"),
            _time(record),
            None if state is None else int(state),
            None if payoff is None else float(payoff),
        )


@_value
class RuleStamp:
    """The robust rule in force at a decision, and what it was decided by if the action's policy is `robust`.

    `gap` per round: no rule is better by more. None where there is no finite proof, and for every other policy: the
    action is not this rule's.
    """

    version: int
    round: int
    gap: float | None


@_value
class Action:
    """A decision. `strategy` is the mixed action, `action` the one drawn from it, `round` counts from 1, `policy` is
    what acted: for `hybrid` the rule, `robust`, until a state is known."""

    session: str
    event: str
    time: str
    round: int
    profile: Mapping[str, float | None]
    action: str
    strategy: Mapping[str, float]
    policy: str
    rule: RuleStamp
    states_seen: int
    """State events of the session that were applied before this decision, whatever became of them."""
    spec_version: int
    """How many specs the session had accepted before this decision."""

    def to_record(self) -> dict[str, Any]:
        """The JSON object of the `actions` topic. Its parts are those of the action, not copies."""
        return {
            "session": self.session,
            "event": self.event,
            "time": self.time,
            "round": self.round,
            "profile": self.profile,
            "action": self.action,
            "strategy": self.strategy,
            "policy": self.policy,
            "rule": {"version": self.rule.version, "round": self.rule.round, "gap": self.rule.gap},
            "states_seen": self.states_seen,
            "spec_version": self.spec_version,
        }


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """The rule in force after a solve on `round` rounds. `duals`: expert -> level (as text) -> price lambda.

    `value` and `upper_bound` are per round and contain `penalty`, which is no payoff.
    """

    session: str
    time: str
    version: int
    round: int
    duals: Mapping[str, Mapping[str, float]]
    value: float
    upper_bound: float
    gap: float
    penalty: float
    exact: bool
    gamma: float | None
    """None where calibration is a hard constraint (gamma = inf)."""
    epsilon: float
    epsilon_min: float
    """Of the rounds at the last report."""
    unsolved: str | None
    """Why this rule stays in force although a solve was due; None after a solve."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A state event that was not learned from. `origin` is what its bringer attached to it, to find it again."""

    session: str
    event: str
    reason: Reason
    detail: str
    origin: Any


@dataclass(frozen=True, slots=True)
class RobustPart:
    """Robust regret of what was played in rounds 1..`round` (Definition "Robust Regret" on the empirical counts).

    `value`, `worst_case` and their penalties are per round, `regret` and `bound` are sums. `value` contains
    `value_penalty` and `worst_case` contains `penalty`, gamma times the calibration violation of its worst rho: what
    is left without it is a payoff. `bound` is None where the theorem is not about the policy: for learners.
    """

    round: int
    value: float
    worst_case: float
    regret: float
    bound: float | None
    penalty: float
    value_penalty: float
    exact: bool
    gamma: float | None
    epsilon_min: float


@dataclass(frozen=True, slots=True)
class MemberPart:
    """A member of the pool of policy `hybrid`: the expected `payoff` it would have had alone, summed over the known
    rounds; its `weight` now; and `bound`, what its payoff less the session's `expected_payoff` cannot exceed."""

    payoff: float
    weight: float
    bound: float


@dataclass(frozen=True, slots=True)
class RealizedPart:
    """What came back so far. Payoffs and regrets are sums over the `states` known rounds.

    `payoff` is that of the drawn actions, `expected_payoff` that of the mixed ones; `contextual_regret` is `contextual`
    - `payoff`. Where only payoffs are fed back, the benchmarks that need states are None.
    """

    states: int
    payoff: float
    expected_payoff: float | None
    optimal_in_hindsight: float | None
    contextual: float | None
    contextual_regret: float | None
    bound: float | None
    """What `contextual` - `expected_payoff` cannot exceed, whatever the states and their delays; None where the policy
    proves nothing. `contextual_regret`, of the drawn actions, differs from that by the luck of the draws: by more than
    R sqrt(states * log(1/p) / 2) with a chance of p at most, for payoffs that span R within a state."""
    members: Mapping[str, MemberPart] | None = None
    """Of policy `hybrid`, from the first known state on."""


@dataclass(frozen=True, slots=True)
class ExpertCalibration:
    """`error`: mean |observed frequency - level| over the expert's `n` known rounds; `worst_level` adds most to it, and
    `interval` is Wilson's 95 % interval of the frequency there.

    `levels`: level (as text) -> known rounds with state 0 and 1, of the levels that have any.
    """

    error: float
    worst_level: float
    n: int
    interval: tuple[float, float]
    levels: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DriftPart:
    """The latest look at whether profiles come from one distribution (`session.drift`), after `round` rounds.

    `expert` is the one whose reports in the later half of the rounds differ most clearly from those in the earlier
    half: by the total variation `distance` in [0, 1], and with a `p_value` corrected for all experts and looks.
    """

    round: int
    expert: str
    p_value: float
    distance: float
    alarm: bool
    first_alarm: int | None
    """Round of the first look that raised an alarm; None if none did."""


@dataclass(frozen=True, slots=True)
class Regret:
    """A running report of a session."""

    session: str
    time: str
    round: int
    reason: Literal["solve", "states", "close"]
    robust: RobustPart
    realized: RealizedPart
    calibration: Mapping[str, ExpertCalibration]
    open: int
    """Decisions that wait for their state."""
    oldest_open: str | None
    """Time of the earliest of them; None where none waits."""
    counts: Mapping[str, int]
    drift: DriftPart | None
    """None before the first look."""

    def to_record(self) -> dict[str, Any]:
        """The JSON object of the `regret` topic."""
        return asdict(self)
