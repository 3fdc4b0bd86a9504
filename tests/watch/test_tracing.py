"""Traces: a span a batch, linked to the senders, carried on by the outputs, and sent from a real worker."""

from __future__ import annotations

import asyncio
import gzip
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stream_agg.cli.local import WorkerProcess
from stream_agg.errors import ConfigError
from stream_agg.replay.tap import Tap
from stream_agg.watch import names
from stream_agg.watch.observer import Observer
from stream_agg.watch.tracing import MOST_LINKS, Tracing
from stream_agg.worker.settings import Settings

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SENDER = ("traceparent", f"00-{TRACE}-{SPAN}-01".encode())


def test_a_batch_is_a_span_linked_to_its_senders_with_its_steps_below() -> None:
    kept = InMemorySpanExporter()
    tracing = Tracing("app", kept)
    observer = Observer(tracing=tracing)
    assert observer.context() == ()
    with observer.batch("forecasts", 3, [[SENDER], [], [SENDER], [("traceparent", b"\xff rubbish")]]):
        with observer.timed(names.COMMIT):
            pass
        carried = dict(observer.context())
    tracing.close()
    step, batch = kept.get_finished_spans()
    assert (step.name, batch.name) == ("stream_agg_commit", "process forecasts")
    assert step.parent is not None
    assert step.parent.span_id == batch.context.span_id
    assert [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in batch.links] == [f"{TRACE}-{SPAN}"]
    assert batch.attributes is not None
    assert batch.attributes["messaging.batch.message_count"] == 4
    assert carried["traceparent"].startswith(f"00-{batch.context.trace_id:032x}-{batch.context.span_id:016x}-0")


def test_links_are_bounded() -> None:
    kept = InMemorySpanExporter()
    tracing = Tracing("app", kept)
    senders = [[("traceparent", f"00-{TRACE}-{i:016x}-01".encode())] for i in range(1, 1000)]
    with tracing.batch("f", 0, 999, senders):
        pass
    tracing.close()
    assert len(kept.get_finished_spans()[0].links) == MOST_LINKS


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'stream-agg\[otel\]'"):
        Tracing("app")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ExportTraceServiceRequest]]:
    """What an OpenTelemetry collector on this machine would get."""
    got: list[ExportTraceServiceRequest] = []

    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            raw = gzip.decompress(raw) if self.headers.get("Content-Encoding") == "gzip" else raw
            got.append(ExportTraceServiceRequest.FromString(raw))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Take) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield got
        server.shutdown()
        thread.join()


async def through(settings: Settings) -> dict[str, str]:
    """The headers of the action on a forecast sent with a trace."""
    actions: list[dict[str, str]] = []
    spec = {"session": "s", "experts": {"a": {"levels": 3}}, "actions": {"x": [1, 0]}}
    forecast = {"session": "s", "event": "e", "time": "2026-11-01T00:00:00Z", "forecasts": {"a": 0.5}}
    producer = AIOKafkaProducer(bootstrap_servers=settings.broker_list)

    def see(topic: str, key: str, value: bytes, headers: dict[str, str]) -> None:
        if topic == settings.topic_actions:
            actions.append(headers)

    async with Tap(settings, see) as tap:
        await producer.start()
        try:
            await producer.send_and_wait(settings.topic_sessions, orjson.dumps(spec), key=b"s")
            await producer.send_and_wait(settings.topic_forecasts, orjson.dumps(forecast), key=b"s", headers=[SENDER])
        finally:
            await producer.stop()
        await tap.until(lambda: bool(actions), "waiting for the action")
    return actions[0]


def test_a_trace_goes_from_a_sender_through_a_worker_to_the_action(
    fresh: Callable[..., Settings], collector: list[ExportTraceServiceRequest], tmp_path: Path
) -> None:
    settings = fresh(tracing=True, http_port=0)
    with (tmp_path / "log").open("wb") as log:
        worker = WorkerProcess(settings, log.fileno())
        try:
            headers = asyncio.run(through(settings))
        finally:
            assert worker.stop() == 0, (tmp_path / "log").read_text()
    spans = [s for request in collector for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
    batch = next(span for span in spans if span.name == f"process {settings.topic_forecasts}")
    assert {link.span_id.hex() for link in batch.links} == {SPAN}
    assert headers["traceparent"].startswith(f"00-{batch.trace_id.hex()}-{batch.span_id.hex()}-0")
    below = {span.name for span in spans if span.parent_span_id == batch.span_id}
    assert below == {"stream_agg_decide", "stream_agg_commit", "stream_agg_publish"}
