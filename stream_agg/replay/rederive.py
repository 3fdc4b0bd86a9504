"""Sessions made again from input records, each output compared with what was published of it. No I/O beyond `Kept`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from stream_agg.errors import InputError
from stream_agg.events import Action, Forecast, Regret, RuleRecord, State
from stream_agg.replay.kept import Kept
from stream_agg.replay.log import At, Record
from stream_agg.replay.published import DivergenceError, Item, Published
from stream_agg.session.engine import Output, Session
from stream_agg.spec import SessionSpec

SHOWN = 60
"""Characters of two records that are shown from where they differ."""


@dataclass
class Rederived:
    """The sessions of one partition; every method is one record of the inputs.

    `under_way` is the place of the record that they are told of, and whether it is known to have been applied: an
    output of it that is not there is then a divergence, and otherwise `pending`.
    """

    kept: Kept
    regrets: Published
    rules: Published
    under_way: Callable[[], tuple[At, int, bool]] = lambda: (At("", 0), 0, False)
    pending: int = 0
    _duplicates: dict[str, int] = field(default_factory=dict)
    """Forecasts that came again. A report tells when they were counted, among the states of their time."""

    def open(self, name: str, spec: SessionSpec) -> None:
        """A first spec."""
        self.kept.put(name, Session(spec))

    def change(self, name: str, spec: SessionSpec) -> None:
        """Another spec."""
        self._session(name).change(spec)

    def skip(self, name: str) -> None:
        """Leave out what was published of it."""
        self.regrets.ignore(name)
        self.rules.ignore(name)

    def closes(self, name: str) -> bool:
        """Whether its closing report is ahead, and not that of a former life once more."""
        known = self._session(name).counters
        return any(
            item.get("reason") == "close"
            and item.get("round") >= known.round
            and (not self.regrets.is_repeat(item) or item.number("states_seen") >= known.states_seen)
            for item in self.regrets.all_of(name)
        )

    def closable(self, name: str) -> bool:
        """Whether the next report is the closing one, and the session has taken as much as that."""
        known = self._session(name).counters
        while (item := self.regrets.peek(name)) is not None:
            if item.get("reason") == "close" and item.get("round") == known.round:
                return item.number("states_seen") == known.states_seen
            if not self.regrets.is_repeat(item):
                return False
            self.regrets.drop_repeat(name)
        return False

    def close(self, name: str) -> None:
        """The null that closes it."""
        self._count(name, self._duplicates.get(name, 0))
        self._regret(name, self._session(name).close())
        self.kept.drop(name)

    def remembers(self, name: str, event: str) -> bool:
        """Whether a forecast of that id is a duplicate."""
        return event in self._session(name).events

    def duplicate(self, name: str) -> None:
        """A forecast that is one."""
        self._duplicates[name] = self._duplicates.get(name, 0) + 1

    def forecast(self, forecast: Forecast, published: Item) -> None:
        """A forecast, and the action that was published of it."""
        name = forecast.session
        self._count(name, self._duplicates.get(name, 0))
        try:
            outputs = self._session(name).forecast(forecast)
        except InputError as e:
            raise published.wrong(f"event {forecast.event!r} of session {name!r} cannot be used: {e}") from None
        for output in outputs:
            if isinstance(output, Action):
                self._action(output, published)
            else:
                self._meet(name, output)

    def state(self, state: State, record: Record | None) -> None:
        """A state that the session took, and the record it came in, where there is one."""
        try:
            _, outputs = self._session(state.session).state(state, self._origin(record))
        except InputError:
            return  # it was a dead letter that is not kept any more
        for output in outputs:
            self._meet(state.session, output)

    def _origin(self, record: Record | None) -> Any:
        """What a state is parked with: nothing, where none becomes a dead letter."""
        return None

    def _session(self, name: str) -> Session:
        session = self.kept.get(name)
        if session is None:
            raise AssertionError(f"session {name!r} was not opened")
        return session

    def _count(self, name: str, duplicates: int) -> None:
        if duplicates:
            session = self._session(name)
            session.counters.counts["duplicate"] += duplicates
            session.touch("state", "counters")
            left = self._duplicates.pop(name) - duplicates
            if left:
                self._duplicates[name] = left

    def _action(self, action: Action, published: Item) -> None:
        derived = orjson.dumps(action.to_record())
        if derived != published.value:
            raise _differs(published, derived)

    def _meet(self, name: str, output: Output) -> None:
        if isinstance(output, Regret):
            self._regret(name, output)
        elif isinstance(output, RuleRecord):
            self._rule(name, output)

    def _regret(self, name: str, report: Regret) -> None:
        derived = orjson.dumps(report)
        while (item := self.regrets.peek(name)) is not None:
            if item.value == derived:
                return self.regrets.take(name)
            if self.regrets.is_repeat(item):
                self.regrets.drop_repeat(name)
                continue
            missed = item.get("counts").get("duplicate", 0) - report.counts["duplicate"]
            if not 0 < missed <= self._duplicates.get(name, 0):
                raise _differs(item, derived)
            self._count(name, missed)
            report = replace(report, counts={**report.counts, "duplicate": report.counts["duplicate"] + missed})
            derived = orjson.dumps(report)
        return self._absent(f"report ({report.reason}, round {report.round}) of session {name!r}")

    def _rule(self, name: str, rule: RuleRecord) -> None:
        derived = orjson.dumps(rule)
        while (item := self.rules.peek(name)) is not None:
            if item.value == derived:
                self.rules.take(name)
                return
            if not self.rules.is_repeat(item):
                return  # a later one: the topic keeps the last of a session, and what came before may be gone
            self.rules.drop_repeat(name)

    def _absent(self, what: str) -> None:
        at, offset, applied = self.under_way()
        if applied:
            raise DivergenceError(at, offset, f"{what} was not published")
        self.pending += 1


def _differs(item: Item, derived: bytes) -> DivergenceError:
    """The two records, from a little before the byte where they part."""
    same = next((i for i, (a, b) in enumerate(zip(item.value, derived, strict=False)) if a != b), None)
    at = min(len(item.value), len(derived)) if same is None else same
    shown = [text[max(at - 20, 0) : at + SHOWN].decode("utf-8", "replace") for text in (item.value, derived)]
    return item.wrong(f"differs from byte {at} on: published ...{shown[0]}..., the inputs give ...{shown[1]}...")
