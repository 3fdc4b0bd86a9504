"""What a session keeps, and its way into tables of fields and back. No decision is made here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Self

import orjson

from stream_agg.errors import SpecError
from stream_agg.events import RobustPart
from stream_agg.rule.certificate import Certificate
from stream_agg.rule.rule import Rule, unseen_rule
from stream_agg.rule.support import Profile
from stream_agg.session import codec
from stream_agg.session.codec import Counters, Decision, Parked, ProfileText
from stream_agg.session.drift import Drift
from stream_agg.session.due import Due
from stream_agg.session.policies import policy_of
from stream_agg.session.pool import dump_recalibrated, dump_sums, load_recalibrated, load_sums
from stream_agg.session.scores import Tally, no_rounds
from stream_agg.spec import SessionSpec

STATE = ("spec", "counters", "rule", "certificate", "robust", "drift")
HYBRID = ("pool", "recalibrated")


class Stored:
    """The state of one session. Whoever changes a field says so with `touch`, so that a commit writes only that."""

    def __init__(self, spec: SessionSpec) -> None:
        self.spec = spec
        self.deadline_us = spec.state_deadline_us
        self.policy = policy_of(spec)
        self.counters = Counters()
        self.tallies: dict[Profile, Tally] = {}
        # Ordered ones, because a plain dict looks for its first key past all that went before.
        self.events: OrderedDict[str, Decision] = OrderedDict()
        self.parked: OrderedDict[str, Parked] = OrderedDict()
        self.rule: Rule = unseen_rule(spec)
        self.certificate: Certificate | None = Certificate.empty(self.rule)
        self.robust: RobustPart = no_rounds(self.rule)
        self.drift = Drift()
        self.open = 0
        """Decisions whose state is not known yet; follows from `events`."""
        self.due_events, self.due_parked = Due({}), Due({})
        self.names = ProfileText(spec)
        self._state = STATE if self.policy.pool is None else (*STATE, *HYBRID)
        self._dirty: dict[str, set[str]] = {"state": set(self._state), "events": set(), "parked": set()}
        self._dirty_profiles: set[Profile] = set()

    def touch(self, table: str, key: str) -> None:
        """Mark a field as changed."""
        self._dirty[table].add(key)

    def touch_profile(self, profile: Profile) -> None:
        """Mark the tally of a profile as changed."""
        self._dirty_profiles.add(profile)

    def tables(self) -> dict[str, dict[str, bytes]]:
        """The whole state as tables of fields."""
        every = {name: {key: self._field(name, key) for key in self._keys(name)} for name in self._dirty}
        every["profiles"] = self._profiles(self.tallies)
        return {name: {k: v for k, v in rows.items() if v is not None} for name, rows in every.items()}

    def changes(self) -> dict[str, dict[str, bytes | None]]:
        """The fields touched since the last call, with their new values (None: gone); starts anew."""
        changed = {
            name: {key: self._field(name, key) for key in sorted(keys)} for name, keys in self._dirty.items() if keys
        }
        if self._dirty_profiles:
            changed["profiles"] = self._profiles(sorted(self._dirty_profiles))
        self._clean()
        return changed

    @classmethod
    def from_tables(cls, tables: Mapping[str, Mapping[str, bytes]]) -> Self:
        """The session that wrote those tables, to the bit. `KeyError` or `ValueError` where they are not whole."""
        try:
            return cls._from_tables(tables)
        except (TypeError, SpecError) as e:  # a field of another shape; a stored spec is no input to dead-letter
            raise ValueError(f"not the tables of a session: {e}") from e

    @classmethod
    def _from_tables(cls, tables: Mapping[str, Mapping[str, bytes]]) -> Self:
        state = tables["state"]
        session = cls(SessionSpec.from_dict(orjson.loads(state["spec"])))
        names = session.names
        session.counters = Counters(**orjson.loads(state["counters"]))
        session.rule = codec.load_rule(state["rule"], session.spec)
        session.certificate = codec.load_certificate(state["certificate"])
        session.robust = codec.load_robust(state["robust"])
        session.drift = codec.load_drift(state["drift"], session.spec)
        if (pool := session.policy.pool) is not None:
            load_sums(state["pool"], pool.names, pool.learned)
            load_recalibrated(state["recalibrated"], pool.learned)
        session.tallies = {names.profile(k): codec.load_tally(v) for k, v in tables.get("profiles", {}).items()}
        decisions = [(k, codec.load_decision(v)) for k, v in tables.get("events", {}).items()]
        session.events = OrderedDict(sorted(decisions, key=lambda item: item[1].round))
        parked = [(k, codec.load_parked(v)) for k, v in tables.get("parked", {}).items()]
        session.parked = OrderedDict(sorted(parked, key=lambda item: item[1].number))
        session.due_events, session.due_parked = Due(session.events), Due(session.parked)
        session.open = sum(d.state is None for d in session.events.values())
        session._clean()
        return session

    def to_bytes(self) -> bytes:
        """The whole state; `from_bytes` gives back a session that goes on to the same bytes."""
        return codec.pack(self.tables())

    @classmethod
    def from_bytes(cls, packed: bytes) -> Self:
        """The session that `to_bytes` packed; `KeyError` or `ValueError` where the bytes are no session."""
        return cls.from_tables(codec.unpack(packed))

    def _keys(self, table: str) -> list[str]:
        if table == "state":
            return list(self._state)
        return list(self.events if table == "events" else self.parked)

    def _profiles(self, profiles: Iterable[Profile]) -> dict[str, bytes | None]:
        found = ((e, self.tallies.get(e)) for e in profiles)
        return {self.names.text(e): codec.dump_tally(tally) if tally else None for e, tally in found}

    def _clean(self) -> None:
        self._dirty_profiles.clear()
        for keys in self._dirty.values():
            keys.clear()

    def _field(self, table: str, key: str) -> bytes | None:
        if table == "events":
            return codec.dump_decision(self.events[key]) if key in self.events else None
        if table == "parked":
            return codec.dump(self.parked[key]) if key in self.parked else None
        if key == "spec":
            return codec.dump(self.spec.to_dict())
        if key == "rule":
            return codec.dump_rule(self.rule)
        if key == "certificate":
            return codec.dump_certificate(self.certificate)
        if key == "drift":
            return codec.dump_drift(self.drift, self.spec)
        if key in HYBRID and (pool := self.policy.pool) is not None:
            return dump_sums(pool.learned, pool.names) if key == "pool" else dump_recalibrated(pool.learned)
        return codec.dump(self.counters if key == "counters" else self.robust)
