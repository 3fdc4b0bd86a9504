"""Every metric that a worker exports, named once: dashboards, alerts and the reference are held against this list.

No label carries a session, a partition or an event: the words of each label are a closed list, shown here. What is of
one session stands in its records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from stream_agg.errors import Reason

Input = Literal["sessions", "forecasts", "states"]
Outcome = Literal[
    "decided",
    "learned",
    "parked",
    "duplicate",
    "late",
    "conflict",
    "opened",
    "changed",
    "closed",
    "ignored",
    "rejected",
]
"""What became of an input record. `rejected`: a dead letter at once; `ignored`: a null for a session that is none."""
Output = Literal["actions", "regret", "rules", "dead_letters"]
Server = Literal["broker", "redis"]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""From a commit on an idle machine to a solve that is given up and an outage that was sat out."""
RECORDS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its full name, what it says, and every word that each of its labels can have."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query can ask for."""
        return tuple(self.name + end for end in ("_bucket", "_count", "_sum")) if self.buckets else (self.name,)


EVENTS = Metric(
    "stream_agg_events_total",
    "counter",
    "Input records that were committed, by what became of them.",
    {"input": get_args(Input), "outcome": get_args(Outcome)},
)
OUTPUTS = Metric(
    "stream_agg_outputs_total", "counter", "Output records that were committed.", {"output": get_args(Output)}
)
DEAD_LETTERS = Metric(
    "stream_agg_dead_letters_total", "counter", "Records that could not be used.", {"reason": get_args(Reason)}
)
SOLVES_FAILED = Metric(
    "stream_agg_solves_failed_total", "counter", "Solves that were given up; the rule of before stays in force."
)
REBALANCES = Metric("stream_agg_rebalances_total", "counter", "Claims of partitions: one at start, one a rebalance.")
FENCED = Metric(
    "stream_agg_fenced_writes_total", "counter", "Writes that the store refused because another worker had claimed."
)
REWINDS = Metric(
    "stream_agg_rewinds_total",
    "counter",
    "Topic-partitions read again from before the group's committed offset, because Redis was behind it.",
)
RETRIES = Metric("stream_agg_retries_total", "counter", "Calls that a server did not answer and that are tried again.")
STALLS = Metric("stream_agg_stalls_total", "counter", "Times the worker stood still for longer than `stuck_s`.")

BATCH_RECORDS = Metric(
    "stream_agg_batch_records", "histogram", "Records of a committed batch.", buckets=RECORDS
)  # fmt: skip
DECIDE = Metric(
    "stream_agg_decide_seconds", "histogram", "Computing one batch: decisions, learning, solves.", buckets=SECONDS
)
SOLVE = Metric(
    "stream_agg_solve_seconds", "histogram", "One decision that brought a solve, nearly all of it solving.",
    buckets=SECONDS,
)  # fmt: skip
COMMIT = Metric(
    "stream_agg_commit_seconds", "histogram", "One commit to Redis, waiting for a server that was away included.",
    buckets=SECONDS,
)  # fmt: skip
PUBLISH = Metric(
    "stream_agg_publish_seconds", "histogram", "Delivering a batch's outputs to Kafka, waiting included.",
    buckets=SECONDS,
)  # fmt: skip

GAP = Metric(
    "stream_agg_rule_gap_ratio",
    "gauge",
    "Largest gap at the latest decision of any session in memory, in units of that session's largest payoff.",
)
SESSIONS = Metric(
    "stream_agg_sessions",
    "gauge",
    "Sessions in memory: those with a record since the claim, as far as `memory_decisions` holds them.",
)
PARTITIONS = Metric("stream_agg_partitions", "gauge", "Partitions claimed by this worker.")
LAG = Metric("stream_agg_lag_records", "gauge", "Forecasts and states in the topics that are not worked yet.")
LAG_SLOPE = Metric(
    "stream_agg_lag_slope_records_per_second", "gauge", "How fast the lag grew over the last minute; negative: shrinks."
)
OPEN = Metric("stream_agg_open_decisions", "gauge", "Decisions whose state is not known, of the sessions in memory.")
OLDEST = Metric(
    "stream_agg_open_decision_oldest_seconds",
    "gauge",
    "Age of the oldest such decision, in event time: its session's watermark less its own time.",
)
PARKED = Metric("stream_agg_parked_states", "gauge", "States that came before their forecast, of sessions in memory.")
WATERMARK = Metric(
    "stream_agg_watermark_timestamp_seconds",
    "gauge",
    "Newest event time among forecasts of sessions in memory; its age is time() less this. NaN before the first.",
)
WAITING = Metric("stream_agg_waiting", "gauge", "1 while work is paused because a server does not answer.")
SERVER_UP = Metric("stream_agg_server_up", "gauge", "1 if it answered the last look.", {"server": get_args(Server)})
READY = Metric("stream_agg_ready", "gauge", "1 if /readyz says yes.")
ALIVE = Metric("stream_agg_alive", "gauge", "1 if /livez says yes.")
BUILD = Metric("stream_agg_build_info", "gauge", "Always 1; the version is in the label.", {"version": ()})

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
