"""Traces of batches by OpenTelemetry (the extra `otel`), the only room that knows it; nothing of it is imported where
tracing is off.

A batch is a span, linked to whatever sent its records; its steps are spans below it; its outputs carry its context.
Where spans go is said by OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stream_agg.errors import ConfigError

Headers = Sequence[tuple[str, bytes]]

MOST_LINKS = 64
"""Links of one span: a batch may hold a thousand records, and a link is as large as a small span."""


class Tracing:
    """Spans of one worker. `exporter`: where they go, in place of what the environment says."""

    def __init__(self, app: str, exporter: Any = None) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as e:
            raise ConfigError("STREAM_AGG_TRACING needs OpenTelemetry: pip install 'stream-agg[otel]'") from e
        resource = Resource.create({"service.name": "stream_agg", "service.namespace": app})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("stream_agg")
        self._text = TraceContextTextMapPropagator()

    @contextmanager
    def batch(self, topic: str, partition: int, size: int, headers: Iterable[Headers]) -> Iterator[None]:
        """The span of `size` records; `headers` of each."""
        from opentelemetry.trace import SpanKind

        attributes: dict[str, Any] = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
            "messaging.batch.message_count": size,
        }
        with self._tracer.start_as_current_span(
            f"process {topic}", kind=SpanKind.CONSUMER, attributes=attributes, links=self._links(headers)
        ):
            yield

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A part of the batch."""
        with self._tracer.start_as_current_span(name):
            yield

    def context(self) -> tuple[tuple[str, str], ...]:
        """Headers that carry the batch's context to who reads its outputs; none outside of a batch."""
        carrier: dict[str, str] = {}
        self._text.inject(carrier)
        return tuple(carrier.items())

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _links(self, headers: Iterable[Headers]) -> list[Any]:
        from opentelemetry.trace import Link, get_current_span

        senders: dict[str, dict[str, str]] = {}
        for record in headers:
            carrier = {name: text.decode(errors="replace") for name, text in record if name.startswith("trace")}
            if "traceparent" in carrier and len(senders) < MOST_LINKS:
                senders.setdefault(carrier["traceparent"], carrier)
        contexts = (get_current_span(self._text.extract(c)).get_span_context() for c in senders.values())
        return [Link(context) for context in contexts if context.is_valid]
