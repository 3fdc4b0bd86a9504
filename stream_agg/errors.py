"""Every error the package raises. The class says what its receiver does.

StreamAggError
+- InputError            the input is wrong: dead-letter it, tell the sender, go on
|  +- SpecError            a session spec, with every fault at once
|  +- EventError           a forecast or state event
+- InfeasibleError       no state sequence is calibrated within epsilon: ask with a larger one
+- SolveError           the solver did not finish: the rule in force stays, its gap says how stale it is
+- UnavailableError      a server does not answer: wait and try again, nothing is lost
+- RefusedError          going on would break a promise: stop and tell the operator
   +- ConfigError          the command or its settings are wrong (exit code 2)
   +- FencedError          another worker owns the partition now
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Reason = Literal[
    "bad_json",
    "bad_event",
    "bad_spec",
    "spec_change",
    "unknown_session",
    "unknown_expert",
    "missing_expert",
    "off_level",
    "duplicate",
    "late",
    "unknown",
    "conflict",
    "limit",
]
"""The closed list of reasons a dead letter can carry."""


class StreamAggError(Exception):
    """Base of every error of this package."""


class InputError(StreamAggError):
    """An input that cannot be used. `reason` is a word of the closed list, `detail` one line for people."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason
        self.detail = detail


class SpecError(InputError):
    """A session spec with faults; `faults` lists every one of them."""

    def __init__(self, faults: Sequence[str], reason: Reason = "bad_spec") -> None:
        super().__init__(reason, "; ".join(faults))
        self.faults = tuple(faults)


class EventError(InputError):
    """A forecast or state event that cannot be applied. The session is as it was before."""


class InfeasibleError(StreamAggError):
    """No assignment of states is calibrated within `epsilon` for every expert at once.

    `epsilon_min` is the smallest epsilon for which one exists.
    """

    def __init__(self, epsilon: float, epsilon_min: float) -> None:
        super().__init__(
            f"the forecasts cannot all be calibrated within epsilon={epsilon:g}; "
            f"the smallest feasible epsilon is {epsilon_min:.9g}"
        )
        self.epsilon = epsilon
        self.epsilon_min = epsilon_min


class SolveError(StreamAggError):
    """The solver stopped without an optimum; the message carries its status."""


class UnavailableError(StreamAggError):
    """A server does not answer. Nothing was lost; try again."""


class RefusedError(StreamAggError):
    """Going on would break a promise. The message names the remedy."""


class ConfigError(RefusedError):
    """Settings or arguments that cannot work; the message names the one to change."""


class FencedError(RefusedError):
    """Another worker has claimed the partition since: stop working on it, drop its caches."""
