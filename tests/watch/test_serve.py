"""The web server beside a worker: it answers from its own thread, and its absence stops nothing."""

from __future__ import annotations

import json
import logging
import socket
import urllib.request

import pytest

from stream_agg.watch.observer import Observer
from stream_agg.watch.serve import Server


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())


def test_it_answers_from_a_thread_of_its_own_until_it_is_stopped() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = int(s.getsockname()[1])
    server = Server(Observer(), "127.0.0.1", port)
    server.start()
    try:
        assert json.loads(get(port, "/livez")) == {"ok": True, "why": []}
        assert "stream_agg_alive 1.0" in get(port, "/metrics")
    finally:
        server.stop()
    with pytest.raises(OSError, match="refused"):
        get(port, "/livez")


def test_a_port_that_is_taken_is_said_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        server = Server(Observer(), "127.0.0.1", int(s.getsockname()[1]))
        with caplog.at_level(logging.WARNING):
            server.start()
            server.tell()
            server.stop()
    assert len(caplog.records) == 1
    assert "STREAM_AGG_HTTP_PORT" in caplog.text
