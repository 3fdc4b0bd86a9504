"""What is wrong, in words, with the reason of every limit beside it. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from stream_agg.monitor.view import Progress, View, Watched

STUCK_S = 15.0
"""Input waits and nothing is done for so long: the longest solve (10 s by default) and the seconds between commits."""
BEHIND = 1000
"""Records that may wait without a word: what one commit holds by default."""
BEHIND_S = 60.0
"""How long more may wait before it is said: a backlog at the start of a worker is worked off in less."""
SILENT_S = 60.0
"""A pause of the feed below this is none: people's feeds come by the hour, machines' by the second."""
SILENT_TIMES = 3.0
"""A feed is silent when it pauses three times as long as it ever did among the latest actions."""
LARGE_GAP = 0.05
"""Share of the payoff per round that the rule in force may be short of: `{"growth": 0.05}`, the coarsest usual
schedule, lets as many rounds be new before it solves."""
LARGE_GAP_ROUND = 64
"""Rounds before which a gap is no alarm: drift is not looked at earlier either, nothing has settled."""
DEAD_MINUTES = 5
DEAD_LETTERS = 10
"""Dead letters within five minutes that are an alarm: fewer are a slip, which the list shows."""

Severity = Literal["alarm", "note"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something to look at. `key` stays the same while the numbers in `text` change."""

    key: str
    severity: Severity
    text: str
    session: str | None = None


def alarms(view: View, now_s: float) -> list[Alarm]:
    """All that holds now: the deployment's first, then the sessions' by name, notes last."""
    found = [*_stream(view.progress, now_s), *_dead_letters(view, now_s), *_unreadable(view)]
    for name in sorted(view.sessions):
        found += _session(view.sessions[name])
    found += _silent(view, now_s)
    return sorted(found, key=lambda alarm: alarm.severity == "note")


def ago(seconds: float) -> str:
    """A duration in words, by its largest unit of which there are two.

    >>> ago(75), ago(7200)
    ('75 s', '2 h')
    """
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


def _stream(progress: Progress, now_s: float) -> Iterator[Alarm]:
    if progress.away is not None:
        since = ago(now_s - progress.away_s)
        yield Alarm("kafka", "alarm", f"Kafka gives no answer since {since}: {progress.away}")
        return
    if progress.lag is None or progress.moved_s is None:
        return
    waiting = f"{progress.lag:,} input record{'s wait' if progress.lag > 1 else ' waits'}" if progress.lag else ""
    still = now_s - progress.moved_s
    if progress.workers == 0:
        more = f"; {waiting}" if waiting else "; no input waits"
        yield Alarm("worker", "alarm", f"no worker is running{more}")
    elif progress.lag and still >= STUCK_S:
        yield Alarm("worker", "alarm", f"the worker is down or stuck: {waiting}, and none was done for {ago(still)}")
    elif _behind(progress, now_s):
        text = f"the worker does not keep up: {waiting}, more than {BEHIND:,} for over {ago(BEHIND_S)} and not fewer"
        yield Alarm("lag", "alarm", text)


def _behind(progress: Progress, now_s: float) -> bool:
    """Whether more than a commit's worth has waited all the time, and not less now than then."""
    lags = [(at, lag) for at, lag in progress.lags if at >= now_s - BEHIND_S]
    whole = bool(progress.lags) and progress.lags[0][0] <= now_s - BEHIND_S
    return whole and bool(lags) and min(lag for _, lag in lags) > BEHIND and lags[-1][1] >= lags[0][1]


def _silent(view: View, now_s: float) -> Iterator[Alarm]:
    times = sorted(view.arrivals)
    if len(times) < 2 or view.progress.away is not None or view.progress.lag:
        return
    longest = max(b - a for a, b in pairwise(times))
    quiet = now_s - times[-1]
    if quiet > max(SILENT_S, SILENT_TIMES * longest):
        text = f"the feed is silent: no new action for {ago(quiet)}; the longest pause before was {ago(longest)}"
        yield Alarm("silent", "note", text)


def _dead_letters(view: View, now_s: float) -> Iterator[Alarm]:
    minute = int(now_s // 60)
    count = sum(n for m, n in view.dead_by_minute.items() if m > minute - DEAD_MINUTES)
    if count >= DEAD_LETTERS:
        latest = view.dead_letters[-1]
        text = f"{count:,} dead letters within {DEAD_MINUTES} min; the latest, {latest.reason}: {latest.detail}"
        yield Alarm("dead-letters", "alarm", text)


def _unreadable(view: View) -> Iterator[Alarm]:
    if view.unreadable:
        text = f"output records of a shape not known here: {view.unreadable:,}; who else writes to the topics?"
        yield Alarm("unreadable", "alarm", text)


def _session(session: Watched) -> Iterator[Alarm]:
    name, rule, report, latest = session.name, session.rule, session.report, session.latest
    if session.closed:
        return
    if rule is not None and rule.unsolved is not None:
        text = f"no new rule since round {rule.round:,}: {rule.unsolved}"
        yield Alarm(f"unsolved/{name}", "alarm", text, name)
    if latest is not None and latest.gap is not None and latest.round >= LARGE_GAP_ROUND:
        size = payoff_size(session)
        if latest.gap > LARGE_GAP * size:
            text = f"the rule's gap is large: it may be short of {latest.gap:.3g} a round, where {size:.3g} is at stake"
            yield Alarm(f"gap/{name}", "alarm", text, name)
    if report is None:
        return
    yield from _report(session)


def _report(session: Watched) -> Iterator[Alarm]:
    name, report = session.name, session.report
    if report is None:
        return
    point = report.point
    if point.bound is not None and point.regret > point.bound:
        text = f"robust regret {point.regret:.4g} is above the theorem's bound {point.bound:.4g}"
        yield Alarm(f"bound/{name}", "alarm", text, name)
    if report.drift is not None and report.drift.alarm:
        drift = report.drift
        text = (
            f"the feed drifts: expert {drift.expert} reported otherwise in rounds {drift.round // 2 + 1:,} to "
            f"{drift.round:,} than before (distance {drift.distance:.2g}, p {drift.p_value:.1g})"
        )
        yield Alarm(f"drift/{name}", "alarm", text, name)
    for found in session.off:
        size = abs(found.frequency - found.level)
        text = f"expert {found.expert} is off by {size:.2g} at level {found.level:.3g} over {found.rounds:,} outcomes"
        yield Alarm(f"calibration/{name}/{found.expert}", "alarm", text, name)


def payoff_size(session: Watched) -> float:
    """The largest payoff per round, in size, that the records of a session tell of."""
    sizes = []
    if session.rule is not None:
        sizes += [session.rule.value, session.rule.upper_bound]
    if session.report is not None:
        point = session.report.point
        sums = (point.payoff, point.expected_payoff, point.single, point.contextual)
        sizes += [total / point.states for total in sums if total is not None and point.states]
    return max(map(abs, sizes), default=0.0)
