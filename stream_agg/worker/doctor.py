"""A check-up of what a worker needs, before it runs or when it does not. Every finding names its remedy; nothing is
changed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from stream_agg.errors import ConfigError, StreamAggError
from stream_agg.store import redis
from stream_agg.store.redis import RedisStore
from stream_agg.worker import broker
from stream_agg.worker.broker import COMPACTED
from stream_agg.worker.kafka import who
from stream_agg.worker.settings import Settings

SKEW_S = 5.0
"""Clocks further apart than that make watermarks and log times hard to read; no state or output depends on them."""
OLDEST_REDIS = (5, 0)
"""Version whose scripts replicate their effects, as ours need."""
FULL = 0.9
"""Share of maxmemory from which on there is little time left."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `bad`: a worker cannot keep its promises; `warn`: it can, until something fails."""

    check: str
    state: Literal["ok", "warn", "bad"]
    found: str
    remedy: str = ""
    """Empty where all is well, and where `found` says it."""


async def examine(settings: Settings) -> list[Finding]:
    """Look at the broker, the topics and Redis of these settings. A server that is away is a finding, not an error."""
    findings: list[Finding] = []
    try:
        topics = await broker.about(settings)
    except StreamAggError as e:
        findings.append(Finding("broker", "bad", str(e)))
    else:
        findings.append(Finding("broker", "ok", f"answers at {settings.brokers}"))
        findings += of_topics(settings, topics)
    try:
        findings += await _redis(settings)
    except StreamAggError as e:
        findings.append(Finding("redis", "bad", str(e)))
    return findings


def of_topics(settings: Settings, topics: Mapping[str, broker.About]) -> Iterator[Finding]:
    """Judge the topics that were found."""
    named = {name: value for name, value in settings.masked().items() if name.startswith("topic_")}
    for name, topic in named.items():
        about = topics.get(topic)
        if about is None:
            yield Finding(f"topic {topic}", "bad", "is not there", "create it: deploy/create-topics.sh")
            continue
        found = f"{about.partitions} partitions, {about.replicas} replicas, cleanup {about.cleanup or 'unknown'}"
        wanted = "compact" if name in COMPACTED else "delete"
        if about.cleanup is not None and wanted not in about.cleanup.split(","):
            what = "keeps one record a session" if wanted == "delete" else "forgets sessions by age"
            yield Finding(f"topic {topic}", "bad", f"{found}: {what}", f"set its cleanup.policy to {wanted}")
        elif about.hidden:
            yield Finding(
                f"topic {topic}", "warn", found, f"grant {who(settings)} DESCRIBE_CONFIGS on topic {topic}, to be told"
            )
        elif about.replicas < 2:
            yield Finding(
                f"topic {topic}", "warn", found, "one broker's disk holds all of it: 3 replicas in production"
            )
        else:
            yield Finding(f"topic {topic}", "ok", found)
    counts = {topic: topics[topic].partitions for topic in settings.inputs if topic in topics}
    shown = ", ".join(f"{topic} {count}" for topic, count in counts.items())
    if len(set(counts.values())) > 1:
        yield Finding("partitions", "bad", f"inputs differ: {shown}", "create the input topics with equal counts")
    elif counts:
        yield Finding(
            "partitions", "ok", f"{next(iter(counts.values()))} of each input: as many workers share the work"
        )


async def _redis(settings: Settings) -> list[Finding]:
    store = RedisStore(settings.redis_url, settings.app, settings.redis_timeout_s)
    try:
        about = await store.about()
        findings = list(of_redis(about, time.time()))
        try:
            await store.peek(0)
        except ConfigError:
            raise
        except StreamAggError as e:
            findings.append(Finding("schema", "bad", str(e), "run the version that wrote it, or use another app name"))
        return findings
    finally:
        await store.close()


def of_redis(about: redis.About, now_s: float) -> Iterator[Finding]:
    """Judge the server; `now_s` is this machine's clock."""
    version = tuple(int(part) for part in about.version.split(".")[:2])
    old = version < OLDEST_REDIS
    yield Finding("redis", "bad" if old else "ok", f"version {about.version}", "Redis 5 or later" if old else "")
    if about.policy != "noeviction":
        yield Finding(
            "eviction", "bad", f"maxmemory-policy {about.policy}: state may be thrown away",
            "redis-cli config set maxmemory-policy noeviction, and in its configuration",
        )  # fmt: skip
    else:
        yield Finding("eviction", "ok", "maxmemory-policy noeviction")
    if not about.appendonly:
        yield Finding(
            "persistence", "warn", "appendonly is off: a crash loses commits, and their records are read again",
            "redis-cli config set appendonly yes, and in its configuration",
        )  # fmt: skip
    else:
        yield Finding("persistence", "ok", "appendonly is on")
    if not about.writable:
        yield Finding("writes", "bad", "a replica, or its last write to disk failed", "point the URL to the primary, "
                      "and see its log and its disk")  # fmt: skip
    if about.maxmemory and about.used > FULL * about.maxmemory:
        yield Finding("memory", "warn", f"{about.used / about.maxmemory:.0%} of maxmemory is used", "raise maxmemory")
    skew_s = abs(about.time_s - now_s)
    remedy = "synchronise the clocks (NTP)"
    state: Literal["ok", "warn"] = "warn" if skew_s > SKEW_S else "ok"
    yield Finding("clock", state, f"{skew_s:.1f} s from Redis' clock", remedy if state == "warn" else "")
