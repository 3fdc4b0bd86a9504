"""The cases by name, in the order of the table, each with what is done and what it is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from _faults import inputs, kills, network, simulation, soak, stores, versions
from _faults.held import Held
from _faults.lab import Lab


@dataclass(frozen=True)
class Case:
    """`fault` and `how` are the words of the table."""

    fault: str
    how: str
    run: Callable[[Lab], Awaitable[Held]]


CASES = {
    "1": Case(
        "kill -9 in a loop",
        "SIGKILL at a random named fail point, at a random count",
        kills.killed_in_a_loop,
    ),
    "2": Case(
        "SIGTERM loop, rolling restart",
        "two workers under load, stopped and replaced in turn",
        kills.stopped_in_a_loop,
    ),
    "3": Case(
        "zombie",
        "stopped right before a commit or publish, past its session timeout; a second worker takes over; SIGCONT",
        kills.frozen,
    ),
    "22": Case(
        "seeded simulation",
        "the worker's loop and sessions with a made-up log, store and clock: schedules of deliveries, crashes, claims",
        simulation.simulated,
    ),
    "4": Case("rebalance storm", "workers join and leave every 2 s, some killed in a claim", kills.storm),
    "5": Case("network to Kafka", "a proxy cuts, resets, delays and holds what passes", network.kafka_cut),
    "6": Case("network to Redis", "the same, and every seventh answer lost after its script ran", network.redis_cut),
    "7": Case("broker kill -9 and restart", "SIGKILL under load, same data directory", network.kafka_killed),
    "8": Case(
        "Redis kill -9 and restart",
        "appendfsync always; everysec, with the tail of the file cut off; no file at all",
        network.redis_killed,
    ),
    "9": Case("Redis failover to a stale replica", "a replica that missed 400 records is promoted", network.failover),
    "10": Case(
        "Redis empty, other schema version, other topics",
        "FLUSHALL under a running worker; the version set to 99; a worker told of another states topic",
        stores.emptied,
    ),
    "11": Case("stored offset out of retention", "delete-records past what was applied", stores.out_of_retention),
    "12": Case("every record sent twice", "by the producer", inputs.twice),
    "13": Case("states early, late, never, out of order, conflicting", "five times as many as usual", inputs.untimely),
    "14": Case(
        "poison",
        "bad JSON and UTF-8, NaN, 1e308, 100,000 levels deep, 10 MB, wrong types, unknown experts, empty, huge ids",
        inputs.poisoned,
    ),
    "15": Case("input with aborted transactions", "a transactional producer, every third aborted", inputs.aborted),
    "16": Case(
        "slow event at the head, fast followers, kill",
        "stopped before the commit of one record with others fetched, then SIGKILL",
        inputs.slow_head,
    ),
    "17": Case("clock jumps", "libfaketime: an hour on, an hour back, a day back, eleven days on", inputs.clocks),
    "18": Case(
        "Redis at maxmemory; disk full for its append-only file",
        "CONFIG SET maxmemory; a file system of 4 MB, filled",
        stores.full,
    ),
    "19": Case(
        "a solve slower than the session timeout", "experts and levels by the dozen, solved often", inputs.slow_solve
    ),
    "20": Case("backlog at start", "records sent before the worker starts", inputs.backlog),
    "21": Case(
        "state of version N read by N+1 and back",
        "two workers upgraded and downgraded in turn under load; a version that stores otherwise starts beside them, "
        "after them, and before them; a backup given to it",
        versions.upgraded,
    ),
    "23": Case("soak", "all of this at once", soak.soak),
    "24": Case(
        "backup, wipe, restore, replay of the tail",
        "an RDB file; `session export` and `import --catch-up`",
        stores.restored,
    ),
}
