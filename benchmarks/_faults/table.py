"""docs/failures.md from results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(results: Sequence[dict[str, Any]], versions: str) -> str:
    """The page."""
    return str(len(results)) + versions
