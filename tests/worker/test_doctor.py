"""The check-up: on servers that are well, on servers that are not, and every judgement on facts alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from redis import Redis

from stream_agg.embedded import RedisServer
from stream_agg.store import redis
from stream_agg.worker import broker
from stream_agg.worker.doctor import Finding, examine, of_redis, of_topics
from stream_agg.worker.settings import Settings

WELL = redis.About("7.2.4", "noeviction", appendonly=True, writable=True, maxmemory=0, used=10, time_s=1000.0)


def topics(**changes: broker.About | None) -> Mapping[str, broker.About]:
    settings = Settings()
    found: dict[str, broker.About | None] = {}
    for name in (name for name in Settings.__slots__ if name.startswith("topic_")):
        cleanup = "compact" if name in broker.COMPACTED else "delete"
        found[getattr(settings, name)] = broker.About(12, 3, cleanup)
    return {topic: about for topic, about in (found | changes).items() if about is not None}


def judged(*findings: Finding) -> list[tuple[str, str]]:
    """Check and state of what is not well; what is well needs no remedy, the rest names one."""
    for finding in findings:
        assert (finding.state == "ok") == (not finding.remedy), finding
    return [(f.check, f.state) for f in findings if f.state != "ok"]


def test_nothing_is_found_where_all_is_well() -> None:
    assert judged(*of_topics(Settings(), topics())) == []
    assert judged(*of_redis(WELL, 1003.0)) == []


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"states": None}, [("topic states", "bad")]),
        ({"states": broker.About(6, 3, "delete")}, [("partitions", "bad")]),
        ({"actions": broker.About(6, 3, "delete")}, []),
        ({"sessions": broker.About(12, 3, "delete")}, [("topic sessions", "bad")]),
        ({"forecasts": broker.About(12, 3, "compact")}, [("topic forecasts", "bad")]),
        ({"rules": broker.About(12, 3, "compact,delete")}, []),
        ({"rules": broker.About(12, 3, None)}, []),
        ({"regret": broker.About(12, 1, "delete")}, [("topic regret", "warn")]),
    ],
)
def test_topics_that_would_break_a_promise(
    changes: dict[str, broker.About | None], found: list[tuple[str, str]]
) -> None:
    assert judged(*of_topics(Settings(), topics(**changes))) == found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"version": "4.0.9"}, [("redis", "bad")]),
        ({"policy": "allkeys-lru"}, [("eviction", "bad")]),
        ({"appendonly": False}, [("persistence", "warn")]),
        ({"writable": False}, [("writes", "bad")]),
        ({"maxmemory": 100, "used": 95}, [("memory", "warn")]),
        ({"maxmemory": 100, "used": 80}, []),
        ({"time_s": 990.0}, [("clock", "warn")]),
    ],
)
def test_a_redis_that_would_break_a_promise(change: dict[str, object], found: list[tuple[str, str]]) -> None:
    assert judged(*of_redis(replace(WELL, **change), 1000.0)) == found  # type: ignore[arg-type]


async def test_real_servers_are_looked_at(
    fresh: Callable[..., Settings], tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = await asyncio.to_thread(fresh)
    with RedisServer(tmp_path_factory.mktemp("redis"), appendonly=True) as server:
        well = replace(settings, redis_url=server.url)
        findings = await examine(well)
        assert {f.state for f in findings if not f.check.startswith("topic ")} == {"ok"}
        assert {(f.check, f.state) for f in findings if f.check.startswith("topic ")} == {
            (f"topic {getattr(settings, name)}", "warn") for name in Settings.__slots__ if name.startswith("topic_")
        }, "one replica each"
        with Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.config_set("appendonly", "no")
            client.hset(f"{{{settings.app}:0}}:meta", "schema", "999")
        assert {("eviction", "bad"), ("persistence", "warn"), ("schema", "bad")} <= {
            (f.check, f.state) for f in await examine(well)
        }


async def test_topics_that_differ_in_truth(fresh: Callable[..., Settings]) -> None:
    settings = await asyncio.to_thread(fresh)
    settings = replace(settings, topic_states=f"other-{settings.app}", topic_rules=f"nowhere-{settings.app}")
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.broker_list)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(settings.topic_states, 3, 1)])
    finally:
        await admin.close()
    found = {f.check: f for f in await examine(settings)}
    assert found["partitions"].state == found[f"topic {settings.topic_rules}"].state == "bad"
    assert f"{settings.topic_states} 3" in found["partitions"].found


async def test_servers_that_are_away_are_findings() -> None:
    findings = await examine(Settings(brokers="127.0.0.1:1", redis_url="redis://:secret@127.0.0.1:1/0"))
    assert [(f.check, f.state) for f in findings] == [("broker", "bad"), ("redis", "bad")]
    assert "secret" not in str(findings)
