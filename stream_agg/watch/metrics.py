"""The metrics of `names.py` in a registry of prometheus_client: the only room that knows that library."""

from __future__ import annotations

from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from stream_agg.watch.names import METRICS, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Child = Counter | Gauge | Histogram


class Metrics:
    """One worker's metrics. Every series is there from the start, at 0: a rate over a first occurrence is not lost.

    Any thread may call; nothing is shared with another registry.
    """

    def __init__(self, version: str) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._children: dict[tuple[str, tuple[str, ...]], _Child] = {}
        for metric in METRICS:
            self._register(metric, version)

    def add(self, metric: Metric, amount: float = 1.0, *labels: str) -> None:
        """Count: `amount` more of a counter."""
        child = self._children[metric.name, labels]
        if isinstance(child, Histogram):
            raise TypeError(f"{metric.name} is observed, not counted")
        child.inc(amount)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """The value of a gauge now."""
        child = self._children[metric.name, labels]
        if not isinstance(child, Gauge):
            raise TypeError(f"{metric.name} is no gauge")
        child.set(value)

    def observe(self, metric: Metric, value: float) -> None:
        """One more value of a histogram."""
        child = self._children[metric.name, ()]
        if not isinstance(child, Histogram):
            raise TypeError(f"{metric.name} is no histogram")
        child.observe(value)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def _register(self, metric: Metric, version: str) -> None:
        names = tuple(metric.labels)
        made: _Child
        if metric.kind == "histogram":
            made = Histogram(metric.name, metric.help, names, registry=self._registry, buckets=metric.buckets)
        else:
            made = (Counter if metric.kind == "counter" else Gauge)(
                metric.name, metric.help, names, registry=self._registry
            )
        if not names:
            self._children[metric.name, ()] = made
        for words in product(*(words or (version,) for words in metric.labels.values())) if names else ():
            self._children[metric.name, words] = made.labels(*words)
