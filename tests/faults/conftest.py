"""Real servers for the tests marked `real`; without them these are skipped with a word of what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _servers import Kafka, missing


@pytest.fixture(scope="session")
def real() -> None:
    """Skips where the servers are not installed."""
    if problem := missing():
        pytest.skip(problem)


@pytest.fixture(scope="session")
def kafka(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Apache Kafka, for all tests that do not break it."""
    with Kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka
