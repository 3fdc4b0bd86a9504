"""A running worker as its operators see it: real broker, real Redis, faults, and what the probes say of them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from _servers import Kafka, missing
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from stream_agg.cli.local import EMBEDDED_SESSION_S, WorkerProcess
from stream_agg.embedded import Broker, RedisServer
from stream_agg.watch.names import METRICS
from stream_agg.worker.broker import create_topics
from stream_agg.worker.settings import PREFIX, Settings

ALERTS = Path(__file__).parent.parent.parent / "deploy" / "prometheus" / "alerts.yml"

READY_S = 10.0
"""What /readyz may take to notice that a server is gone."""


class Probed:
    """The HTTP side of a worker."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError as e:
            return 0, str(e)

    def why(self, path: str) -> str:
        return " ".join(json.loads(self.get(path)[1])["why"])

    def until(self, path: str, status: int, within_s: float = 30.0) -> float:
        """Seconds until `path` answers with that status."""
        since = time.monotonic()
        while self.get(path)[0] != status:
            assert time.monotonic() - since < within_s, f"{path} still says {self.get(path)}"
            time.sleep(0.1)
        return time.monotonic() - since

    def metrics(self) -> dict[str, float]:
        """Series with their labels' words -> value."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {" ".join([s.name, *s.labels.values()]): s.value for family in families for s in family.samples}

    def until_metric(self, name: str, wanted: Callable[[float], bool]) -> dict[str, float]:
        deadline = time.monotonic() + 30
        while not wanted((found := self.metrics())[name]):
            assert time.monotonic() < deadline, f"{name} is {found[name]}"
            time.sleep(0.1)
        return found


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def working(settings: Settings, log: Path) -> Iterator[Probed]:
    with log.open("wb") as file:
        worker = WorkerProcess(replace(settings, http_port=free_port()), file.fileno())
        probed = Probed(worker.settings.http_port)
        try:
            probed.until("/readyz", 200)
            yield probed
        finally:
            assert worker.stop() == 0, log.read_text()


async def send(settings: Settings, *records: tuple[str, Any]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=settings.broker_list)
    await producer.start()
    try:
        for topic, value in records:
            raw = value if isinstance(value, bytes) else orjson.dumps(value)
            await producer.send_and_wait(getattr(settings, f"topic_{topic}"), raw, key=b"paris")
    finally:
        await producer.stop()


SPEC = {
    "session": "paris",
    "experts": {"gfs": {"levels": 11}},
    "actions": {"stay": [1, 0], "go": [0, 3]},
    "schedule": {"every": 1},
}


def forecast(event: str, day: int, p: float = 0.3) -> tuple[str, Any]:
    time_ = f"2026-11-{day:02d}T00:00:00Z"
    return "forecasts", {"session": "paris", "event": event, "time": time_, "forecasts": {"gfs": p}}


def state(event: str, value: int) -> tuple[str, Any]:
    return "states", {"session": "paris", "event": event, "time": "2026-11-05T00:00:00Z", "state": value}


def test_what_a_worker_did_is_in_its_metrics(fresh: Callable[..., Settings], tmp_path: Path) -> None:
    settings = fresh(log="json", instance="only")
    with working(settings, tmp_path / "log") as worker:
        asyncio.run(send(settings, ("sessions", SPEC)))
        worker.until_metric("stream_agg_events_total sessions opened", lambda n: n == 1)
        asyncio.run(
            send(
                settings,
                *(forecast(f"e{i}", 1 + i) for i in range(4)),
                forecast("e0", 1),
                ("forecasts", b"{"),
            )
        )
        worker.until_metric("stream_agg_events_total forecasts rejected", lambda n: n == 1)
        asyncio.run(send(settings, state("e0", 1), state("e0", 0), state("e1", 1), state("later", 0)))
        worker.until_metric("stream_agg_events_total states parked", lambda n: n == 1)
        got = worker.until_metric("stream_agg_open_decisions", lambda n: n == 2)
        assert {series for metric in METRICS for series in metric.series} <= {name.split()[0] for name in got}
        assert got["stream_agg_events_total forecasts decided"] == 4
        assert got["stream_agg_events_total forecasts duplicate"] == 1
        assert got["stream_agg_events_total states learned"] == 2
        assert got["stream_agg_events_total states conflict"] == 1
        assert got["stream_agg_dead_letters_total bad_json"] == got["stream_agg_dead_letters_total conflict"] == 1
        assert got["stream_agg_outputs_total actions"] == 4
        assert got["stream_agg_solve_seconds_count"] == 3  # none before the first round
        assert got["stream_agg_decide_seconds_sum"] >= got["stream_agg_solve_seconds_sum"] > 0
        assert got["stream_agg_commit_seconds_count"] == got["stream_agg_batch_records_count"] > 0
        assert got["stream_agg_publish_seconds_count"] > 0
        assert got["stream_agg_batch_records_sum"] == 1 + 6 + 4
        assert got["stream_agg_open_decision_oldest_seconds"] == 86400.0
        assert got["stream_agg_watermark_timestamp_seconds"] == 1793750400.0  # 2026-11-04
        assert got["stream_agg_parked_states"] == got["stream_agg_sessions"] == 1
        assert got["stream_agg_partitions"] == 2
        assert got["stream_agg_lag_records"] == 0
        assert got["stream_agg_rebalances_total"] >= 1
        assert got["stream_agg_ready"] == got["stream_agg_alive"] == 1
        assert got["stream_agg_server_up broker"] == got["stream_agg_server_up redis"] == 1
        assert worker.get("/livez")[0] == worker.get("/startupz")[0] == 200
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert any("ready to take 2 partitions" in line["message"] for line in lines)
    assert "gfs" not in (tmp_path / "log").read_text(), "no payload in the log"


@pytest.mark.timeout(180)
def test_a_worker_for_which_no_partition_is_left_is_ready_to_step_in(
    fresh: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = fresh()
    with ExitStack() as stack:
        workers = [stack.enter_context(working(settings, tmp_path / f"log{i}")) for i in range(3)]
        deadline = time.monotonic() + 60
        while sorted(w.metrics()["stream_agg_partitions"] for w in workers) != [0, 1, 1]:
            assert time.monotonic() < deadline, [w.metrics()["stream_agg_partitions"] for w in workers]
            time.sleep(0.2)
        for worker in workers:
            worker.until("/readyz", 200)
            assert worker.get("/startupz")[0] == worker.get("/livez")[0] == 200


@pytest.mark.timeout(180)
def test_a_server_that_is_stopped_makes_a_worker_unready_but_not_dead(tmp_path: Path) -> None:
    with Broker() as broker, RedisServer(tmp_path / "redis", appendonly=True) as redis:
        settings = Settings(
            brokers=broker.address, redis_url=redis.url, partitions=2, session_timeout_s=EMBEDDED_SESSION_S, stuck_s=60
        )
        asyncio.run(create_topics(settings))
        with working(settings, tmp_path / "log") as worker:
            redis.stop()
            assert worker.until("/readyz", 503) < READY_S
            assert "Redis" in worker.why("/readyz")
            assert worker.get("/livez")[0] == 200
            redis.start()
            worker.until("/readyz", 200)
            broker.kill()
            assert worker.until("/readyz", 503) < READY_S
            assert "broker" in worker.why("/readyz")
            assert worker.get("/livez")[0] == worker.get("/startupz")[0] == 200
            assert worker.metrics()["stream_agg_server_up broker"] == 0
            broker.stop()
            broker.start()
            asyncio.run(create_topics(settings))
            worker.until("/readyz", 200, within_s=60)
            assert worker.get("/livez")[0] == 200
            broker.kill()
            worker.until("/readyz", 503)  # and it stops cleanly, though nobody answers


def doctor(settings: Settings) -> subprocess.CompletedProcess[str]:
    """`stream-agg doctor` with the settings of a worker."""
    env = {**os.environ, **{PREFIX + f.name.upper(): str(getattr(settings, f.name)) for f in fields(Settings)}}
    command = [sys.executable, "-P", "-m", "stream_agg", "doctor"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def alert_fires(promtool: str, down: dict[str, float], tmp_path: Path) -> None:
    """promtool, given what the worker exported while the broker was away, fires the alert for the broker alone."""
    servers = {name.split()[1]: value for name, value in down.items() if name.startswith("stream_agg_server_up ")}
    series = [
        {"series": f'stream_agg_server_up{{instance="w1", server="{server}"}}', "values": f"{value:g}x10"}
        for server, value in servers.items()
    ]
    fired = {
        "exp_labels": {"severity": "critical", "instance": "w1", "server": "broker"},
        "exp_annotations": {
            "summary": "The broker does not answer worker w1",
            "runbook_url": "docs/runbooks.md#streamaggserverdown",
        },
    }
    case = {"alertname": "StreamAggServerDown", "eval_time": "5m", "exp_alerts": [fired]}
    test = {"rule_files": [str(ALERTS)], "tests": [{"input_series": series, "alert_rule_test": [case]}]}
    (tmp_path / "drill.yml").write_text(yaml.safe_dump(test))
    done = subprocess.run([promtool, "test", "rules", tmp_path / "drill.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
@pytest.mark.timeout(240)
def test_the_drill_of_a_stopped_broker_goes_as_its_runbook_says(tmp_path: Path) -> None:
    if problem := missing():
        pytest.skip(problem)
    with Kafka(tmp_path / "kafka") as kafka, RedisServer(tmp_path / "redis", appendonly=True) as redis:
        settings = Settings(brokers=kafka.address, redis_url=redis.url, partitions=2)
        asyncio.run(create_topics(settings))
        with working(settings, tmp_path / "log") as worker:
            asyncio.run(send(settings, ("sessions", SPEC), *(forecast(f"e{i}", 1 + i) for i in range(3))))
            worker.until_metric("stream_agg_events_total forecasts decided", lambda n: n == 3)
            kafka.stop()
            assert worker.until("/readyz", 503) < READY_S
            assert "broker" in worker.why("/readyz"), "it says in words what is missing"
            assert worker.get("/livez")[0] == 200, "nothing restarts a worker that waits"
            down = worker.until_metric("stream_agg_server_up broker", lambda up: up == 0)
            looked = doctor(settings)
            assert looked.returncode == 1
            assert kafka.address in looked.stdout
            assert "check STREAM_AGG_BROKERS" in looked.stdout, "it names the remedy"
            kafka.start()  # step 1, and nothing else: the worker resumes by itself
            worker.until("/readyz", 200, within_s=60)
            assert worker.get("/livez")[0] == 200
            asyncio.run(send(settings, *(forecast(f"e{i}", 1 + i) for i in range(3, 8))))
            back = worker.until_metric("stream_agg_events_total forecasts decided", lambda n: n == 8)
            worker.until_metric("stream_agg_lag_records", lambda lag: lag == 0)  # step 3
            assert back["stream_agg_rewinds_total"] == 0, "the broker kept what it had"
            assert back["stream_agg_server_up broker"] == 1
            assert doctor(settings).returncode == 0
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("the drill went well; that the alert fires needs promtool (Debian: apt-get install prometheus)")
    alert_fires(promtool, down, tmp_path)
