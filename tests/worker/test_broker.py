"""The topics of a deployment, on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stream_agg.worker.broker import count_partitions, create_topics
from stream_agg.worker.settings import Settings


@pytest.fixture
def settings(fresh: Callable[..., Settings]) -> Settings:
    return fresh()


async def test_creating_topics_twice_changes_nothing(settings: Settings) -> None:
    before = await count_partitions(settings)
    await create_topics(settings)
    assert await count_partitions(settings) == before
    assert set(before.values()) == {2}
