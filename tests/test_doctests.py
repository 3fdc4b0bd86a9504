"""The examples in docstrings run, in the package that is installed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import stream_agg

MODULES = sorted(m.name for m in pkgutil.walk_packages(stream_agg.__path__, "stream_agg.") if "__main__" not in m.name)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [t for name in MODULES for t in finder.find(importlib.import_module(name)) if t.examples]
    assert len(found) >= 4
