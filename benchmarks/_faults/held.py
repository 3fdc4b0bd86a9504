"""What is claimed of a case, and whether it is so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CLEAN_STOP_S = 10.0
"""What containers get between SIGTERM and SIGKILL."""


@dataclass
class Held:
    """The outcome of a case: invariant -> what breaks it (nothing: it holds), and figures."""

    invariants: dict[str, list[str]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    def claim(self, name: str, true: bool, otherwise: str) -> None:
        """One more thing that must hold."""
        found = self.invariants.setdefault(name, [])
        if not true:
            found.append(otherwise)

    @property
    def failing(self) -> dict[str, list[str]]:
        """What does not hold."""
        return {name: found for name, found in self.invariants.items() if found}
