from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from stream_agg.embedded import RedisServer


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def app() -> str:
    """Every test has keys of its own."""
    return f"test-{uuid4().hex}"


@pytest.fixture
async def raw(server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url) as client:
        yield client
