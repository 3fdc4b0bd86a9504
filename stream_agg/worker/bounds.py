"""How much one record may ask for: checked before it is parsed, before it is loaded, before it is kept. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from stream_agg.errors import EventError, SpecError
from stream_agg.events import Forecast, State
from stream_agg.spec import SessionSpec
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import decode

_ASCII = re.compile(r"[\w.:/@+-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a deployment's settings. Every method raises an `InputError` that names the setting."""

    settings: Settings

    def event(self, value: bytes) -> Any:
        """The JSON value of a forecast or state; reason "limit" where it is too large or too deep."""
        most = self.settings.max_event_bytes
        if len(value) > most:
            raise EventError("limit", f"{len(value):,} bytes: at most {most:,} (STREAM_AGG_MAX_EVENT_BYTES)")
        return self._shallow(value)

    def spec(self, value: bytes) -> SessionSpec:
        """The spec of a record; every limit it passes is a fault of it."""
        most = self.settings.max_spec_bytes
        if len(value) > most:
            raise SpecError([f"{len(value):,} bytes: at most {most:,} (STREAM_AGG_MAX_SPEC_BYTES)"], "limit")
        spec = SessionSpec.from_dict(self._shallow(value))
        to = self.settings
        counted = (
            ("experts", len(spec.experts), to.max_experts),
            ("levels", max(len(alphabet.levels) for alphabet in spec.experts.values()), to.max_levels),
            ("actions", len(spec.actions), to.max_actions),
            ("window", spec.window, to.max_window),
        )
        faults = [
            f"{name}: {count:,} are more than {most:,}, which is set here (STREAM_AGG_MAX_{name.upper()})"
            for name, count, most in counted
            if count > most
        ]
        faults += filter(None, [self._id(spec.session, "session")])
        if faults:
            raise SpecError(faults, "limit")
        return spec

    def ids(self, event: Forecast | State) -> None:
        """Check the ids of an event against length and alphabet."""
        fault = self._id(event.session, "session") or self._id(event.event, "event")
        if fault:
            raise EventError("limit", fault)

    def room(self, held: int) -> None:
        """Check that a partition which holds so many sessions may open one more."""
        most = self.settings.max_sessions
        if most and held >= most:
            raise SpecError(
                [f"the partition holds {held:,} sessions, and may not have more (STREAM_AGG_MAX_SESSIONS): close some"],
                "limit",
            )

    def _id(self, name: str, what: str) -> str | None:
        if len(name) > self.settings.max_id:
            return f"{what}: an id of {len(name)} characters, at most {self.settings.max_id} here (STREAM_AGG_MAX_ID)"
        kind = self.settings.id_characters
        if (kind == "printable" and not name.isprintable()) or (kind == "ascii" and not _ASCII.fullmatch(name)):
            return f"{what}: {name[:40]!a} has a character that is not {kind} (STREAM_AGG_ID_CHARACTERS)"
        return None

    def _shallow(self, value: bytes) -> Any:
        decoded, most = decode(value), self.settings.max_nesting
        if value.count(b"{") + value.count(b"[") > most:  # it might be deeper
            level: list[Any] = [decoded]
            for _ in range(most):
                inner = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, (dict, list))]
                level = [one for part in inner for one in part if isinstance(one, (dict, list))]
                if not level:
                    return decoded
            raise EventError("limit", f"nested more than {most} deep (STREAM_AGG_MAX_NESTING)")
        return decoded


DEFAULT = Bounds(Settings())
"""The limits that nobody has changed."""
