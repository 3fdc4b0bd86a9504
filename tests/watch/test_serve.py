"""The web server beside a worker: it answers from its own thread, and its absence stops nothing."""

from __future__ import annotations

import json
import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

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


@contextmanager
def served(token: str = "") -> Iterator[int]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = int(s.getsockname()[1])
    server = Server(Observer(), "127.0.0.1", port, token)
    server.start()
    try:
        yield port
    finally:
        server.stop()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Mapping[str, str]]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read().decode(), e.headers


def test_with_a_token_metrics_and_reasons_are_for_its_bearer() -> None:
    with served("hush") as port:
        for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}, {"Authorization": "hus"}):
            status, text, _ = ask(port, "/metrics", **given)
            assert (status, "hush" in text, "stream_agg_" in text) == (401, False, False)
        assert json.loads(ask(port, "/livez")[1]) == {"ok": True}
        assert ask(port, "/readyz")[0] == 503
        status, text, _ = ask(port, "/metrics", Authorization="Bearer hush")
        assert (status, "stream_agg_alive" in text) == (200, True)
        assert json.loads(ask(port, "/readyz", Authorization="Bearer hush")[1])["why"]


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/", "/nowhere"])
def test_every_answer_forbids_a_browser_all_and_nothing_can_be_written(path: str) -> None:
    with served() as port:
        for method in ("GET", "POST", "DELETE"):
            status, _, headers = ask(port, path, method)
            assert status == 200 if method == "GET" and path in ("/metrics", "/livez") else status in (404, 405)
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Server"] == "stream_agg"


def test_another_sites_name_for_this_machine_is_refused() -> None:
    with served() as port:
        assert ask(port, "/metrics", Host="evil.example")[0] == 403
        assert ask(port, "/metrics", Host="localhost:1")[0] == 200
