"""What a page or a terminal shows of a view, as plain JSON values: one place says it, so all show the same numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stream_agg.events import parse_time
from stream_agg.monitor.alarms import alarms
from stream_agg.monitor.charts import charts
from stream_agg.monitor.view import View, Watched

PAGE = 25
"""Sessions on one page of the table: what fits a screen or two."""
ALARMS = 50
"""Alarms that are listed; the rest is counted."""


def overview(view: View, now_s: float, find: str = "", page: int = 0, size: int = PAGE) -> dict[str, Any]:
    """Alarms, totals, one page of the sessions whose name contains `find`, dead letters. JSON values."""
    wanted = find.casefold()
    names = sorted(name for name in view.sessions if wanted in name.casefold())
    pages = max(-(-len(names) // size), 1)
    page = min(max(page, 0), pages - 1)
    found = alarms(view, now_s)
    sessions = [row(view.sessions[name], now_s) for name in names[page * size : (page + 1) * size]]
    marked = {alarm.session for alarm in found}
    return {
        "now": now_s,
        "alarms": [asdict(alarm) for alarm in found[:ALARMS]],
        "more_alarms": max(len(found) - ALARMS, 0),
        "totals": totals(view, now_s),
        "sessions": [{**shown, "alarm": shown["session"] in marked} for shown in sessions],
        "page": page,
        "pages": pages,
        "found": len(names),
        "dead_letters": {
            "by_reason": dict(view.reasons.most_common()),
            "latest": [{**asdict(d), "ago_s": now_s - d.time_s} for d in reversed(view.dead_letters)],
        },
    }


def totals(view: View, now_s: float) -> dict[str, Any]:
    """Figures of the whole deployment. Counts of sessions are of those that are kept."""
    progress, every = view.progress, view.sessions.values()
    reports = [s.report for s in every if s.report is not None and not s.closed]
    return {
        "sessions": sum(not s.closed for s in every),
        "closed": sum(s.closed for s in every),
        "evicted": view.evicted,
        "rounds": sum(s.latest.round for s in every if s.latest is not None),
        "open": sum(r.open for r in reports),
        "lag": progress.lag,
        "workers": progress.workers,
        "dead_letters": view.reasons.total(),
        "action_ago_s": now_s - max(view.arrivals) if view.arrivals else None,
        "input_ago_s": None if progress.input_s is None else now_s - progress.input_s,
    }


def row(session: Watched, now_s: float) -> dict[str, Any]:
    """One line of the sessions table; None for what no record has told yet."""
    latest, report = session.latest, session.report
    point = report.point if report else None
    return {
        "session": session.name,
        "closed": session.closed,
        "round": latest.round if latest else point.round if point else None,
        "event": latest and latest.event,
        "time": latest and latest.time,
        "action": latest and latest.action,
        "probability": latest and latest.probability,
        "policy": latest and latest.policy,
        "gap": latest and latest.gap,
        "regret": point and point.regret,
        "bound": point and point.bound,
        "states": point and point.states,
        "payoff": point and point.payoff,
        "single": point and point.single,
        "contextual": point and point.contextual,
        "open": report and report.open,
        "oldest_open_s": oldest_open_s(session),
        "heard_ago_s": now_s - session.heard_s,
    }


def oldest_open_s(session: Watched) -> float | None:
    """Age of the oldest open decision in the latest report, in seconds of event time."""
    if session.report is None or session.report.oldest_open is None:
        return None
    try:
        return (parse_time(session.report.point.time) - parse_time(session.report.oldest_open)) / 1e6
    except ValueError:
        return None


def detail(session: Watched, now_s: float) -> dict[str, Any]:
    """One session with its charts. JSON values."""
    rule, report = session.rule, session.report
    return {
        **row(session, now_s),
        "rule_version": rule and rule.version,
        "rule_round": rule and rule.round,
        "value": report.value if report else rule and rule.value,
        "epsilon_min": report and report.epsilon_min,
        "report_time": report and report.point.time,
        "charts": charts(session),
    }
