"""The metrics: their names by Prometheus' conventions, all series there from the start, counts that are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stream_agg.watch import names
from stream_agg.watch.metrics import Metrics
from stream_agg.watch.names import METRICS, Metric
from stream_agg.watch.observer import Observer

PACKAGE = Path(names.__file__).parent.parent
FORBIDDEN = {"session", "partition", "event", "expert", "topic"}


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (s.name, tuple(sorted(v for k, v in s.labels.items() if k != "le"))): s.value
        for family in families
        for s in family.samples
    }


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"stream_agg_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert metric.help[0].isupper() or metric.help[0].isdigit()
    assert metric.help.endswith(".")
    assert not FORBIDDEN & set(metric.labels), "labels must not grow with the data"
    if "_seconds" in metric.name or "ratio" in metric.name:
        assert re.search(r"_(seconds|ratio|records_per_second)$", metric.name), "the unit stands last"


def test_every_metric_is_exported_before_anything_happens() -> None:
    there = {name for name, _ in samples(Observer().metrics)}
    assert {series for metric in METRICS for series in metric.series} <= there
    assert "process_resident_memory_bytes" in there


def test_every_metric_is_told_somewhere() -> None:
    code = "".join(p.read_text() for p in PACKAGE.rglob("*.py") if p.name not in ("names.py", "metrics.py"))
    constants = {k for k, v in vars(names).items() if isinstance(v, Metric)}
    assert {c for c in constants if f"names.{c}" not in code} == set()
    assert len(constants) == len(METRICS) == len({m.name for m in METRICS})


def test_facts_become_counts() -> None:
    observer = Observer()
    facts = observer.facts()
    facts.outcomes.update(decided=3, rejected=1)
    facts.dead["bad_json"] += 1
    facts.solved(0.02)
    facts.unsolved = 1
    observer.applied("forecasts", facts, {"actions": 3, "dead_letters": 1})
    got = samples(observer.metrics)
    assert got["stream_agg_events_total", ("decided", "forecasts")] == 3
    assert got["stream_agg_events_total", ("forecasts", "rejected")] == 1
    assert got["stream_agg_dead_letters_total", ("bad_json",)] == 1
    assert got["stream_agg_outputs_total", ("actions",)] == 3
    assert got["stream_agg_solve_seconds_count", ()] == 1
    assert got["stream_agg_solve_seconds_sum", ()] == 0.02
    assert got["stream_agg_solves_failed_total", ()] == 1
    assert got["stream_agg_batch_records_sum", ()] == 4


def test_a_rewind_is_a_batch_below_the_committed_offset_and_counts_once() -> None:
    observer = Observer()
    observer.rebalanced({("f", 0): 10, ("f", 1): 10, ("s", 0): None})
    for topic, partition, offset in (("f", 0, 7), ("f", 0, 9), ("f", 1, 10), ("s", 0, 0)):
        observer.taking(topic, partition, offset)
    assert samples(observer.metrics)["stream_agg_rewinds_total", ()] == 1


def test_a_step_that_fails_is_not_timed() -> None:
    observer = Observer()
    with pytest.raises(ValueError, match="x"), observer.timed(names.COMMIT):
        raise ValueError("x")
    with observer.timed(names.COMMIT):
        pass
    assert samples(observer.metrics)["stream_agg_commit_seconds_count", ()] == 1


def test_a_metric_is_used_by_its_kind() -> None:
    metrics = Metrics("0")
    with pytest.raises(TypeError, match="no histogram"):
        metrics.observe(names.FENCED, 1)
    with pytest.raises(TypeError, match="no gauge"):
        metrics.set(names.FENCED, 1)
    with pytest.raises(TypeError, match="not counted"):
        metrics.add(names.COMMIT)
