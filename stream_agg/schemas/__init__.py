"""JSON Schemas of the records in the topics, as files of the package; written by `docs/generate` from the types."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Literal

Name = Literal["session", "forecast", "state", "action", "regret", "rule"]


def schema(name: Name) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a record's value.

    >>> schema("state")["required"]
    ['session', 'event', 'time']
    """
    loaded: dict[str, Any] = json.loads((files(__name__) / f"{name}.json").read_bytes())
    return loaded
