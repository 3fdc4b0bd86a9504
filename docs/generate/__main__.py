"""Writes what is derived from the code: `python docs/generate`. With `--check` it writes nothing, names every file that
would change, and fails if there is one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from asyncapi import document
from records import records
from reference import commands, metrics, python, rights, settings, topics

ROOT = Path(__file__).resolve().parent.parent.parent


def generated() -> dict[Path, str]:
    """Every generated file and its text."""
    schemas = records()
    found = {ROOT / "stream_agg" / "schemas" / f"{name}.json": _json(schema) for name, schema in schemas.items()}
    found[ROOT / "docs" / "asyncapi.json"] = _json(document(schemas))
    pages = {
        "settings": settings(),
        "metrics": metrics(),
        "topics": topics(schemas),
        "cli": commands(),
        "api": python(),
        "rights": rights(),
    }
    return found | {ROOT / "docs" / "reference" / f"{name}.md": text for name, text in pages.items()}


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Exit code."""
    other = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    for path, text in other.items():
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return int("--check" in sys.argv and bool(other))


if __name__ == "__main__":
    sys.exit(main())
