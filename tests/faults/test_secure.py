"""Kafka with SASL_SSL and access control, Redis with TLS and users: each side works with its least rights and not with
one of them less; whatever keeps it out is one line that says so."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from _faults.secure import PASSWORD, Certificates, SecureKafka, SecureRedis, grant, token
from redis import Redis

from stream_agg.embedded.servers import free_port
from stream_agg.errors import ConfigError, RefusedError, StreamAggError, UnavailableError
from stream_agg.replay.tap import Tap
from stream_agg.store.redis import RedisStore
from stream_agg.store.rights import COMMANDS, acl
from stream_agg.worker.broker import count_partitions, create_topics
from stream_agg.worker.publish import ExactlyOnce
from stream_agg.worker.rights import Right, Side, rights
from stream_agg.worker.settings import PREFIX, Settings

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

SPEC: dict[str, Any] = {
    "session": "rain",
    "experts": {"ecmwf": {"levels": 11}},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
    "feedback": "state",
}
TOKEN = "open-sesame"  # noqa: S105 # of a worker that lives as long as its test
USERS = ("worker", "feeder", "verifier", "watcher", "clerk", "probe", "nobody")


@dataclass
class Place:
    """Secured servers with the topics of one deployment."""

    kafka: SecureKafka
    redis: SecureRedis
    certificates: Certificates
    home: Path

    @property
    def settings(self) -> Settings:
        """Of whoever sets it up."""
        return Settings(brokers=self.kafka.address, app="rain", partitions=1)

    def of(self, user: str, **changes: Any) -> Settings:
        """Of a user who logs in."""
        return replace(
            self.settings,
            brokers=self.kafka.secure,
            kafka_tls=True,
            kafka_ca_file=str(self.certificates.ca),
            kafka_sasl="SCRAM-SHA-256",
            kafka_user=user,
            kafka_password=PASSWORD,
            redis_url=self.redis.secure(user),
            **changes,
        )

    def user(self, name: str, *rules: str) -> None:
        """Make a user of Redis."""
        with Redis.from_url(self.redis.secure("admin", "boss")) as admin:
            admin.execute_command("ACL", "SETUSER", name, "on", f">{PASSWORD}", *rules)

    def may(self, user: str, *sides: Side, take: bool = False) -> None:
        """Give a user what these sides need at Kafka, or take it."""
        asyncio.run(grant(self.kafka.address, user, [r for s in sides for r in rights(self.settings, s)], take))

    def change(self, user: str, right: Right, take: bool) -> None:
        """Give or take one right."""
        asyncio.run(grant(self.kafka.address, user, [right], take))


@pytest.fixture(scope="module")
def place(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("secure")
    certificates = Certificates(home / "certificates")
    with SecureKafka(home / "kafka", certificates, USERS) as kafka, SecureRedis(home / "redis", certificates) as redis:
        place = Place(kafka, redis, certificates, home)
        asyncio.run(create_topics(place.settings))
        for user in USERS:
            place.user(user, *acl("rain", "worker"))
        yield place


def env_of(settings: Settings, home: Path) -> dict[str, str]:
    """The environment of a command: secrets in files."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
    secrets = {"redis_url", "kafka_password", "http_token"}
    for name in Settings.__slots__:
        value = str(getattr(settings, name))
        if name in secrets and value:
            path = home / f"{settings.kafka_user}-{name}"
            path.write_text(value + "\n")
            env[f"{PREFIX}{name.upper()}_FILE"] = str(path)
        else:
            env[PREFIX + name.upper()] = value
    return env


def command(settings: Settings, home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "stream_agg", *args],
        env=env_of(settings, home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def whispered(text: str) -> bool:
    """Whether a secret is in it."""
    return PASSWORD in text or "boss" in text or TOKEN in text


class Worker:
    """`stream-agg worker` with these settings; what it says is kept."""

    def __init__(self, settings: Settings, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "stream_agg", "worker", "--until-stdin-closes"],
            env=env_of(settings, home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def until(self, words: str) -> None:
        """Wait until it says so."""
        with self._news:
            assert self._news.wait_for(lambda: any(words in line for line in self.lines), 60), "".join(self.lines)

    def ended(self) -> tuple[int, list[str]]:
        """Its exit code when it ends by itself, and what it says it ends for."""
        code = self.process.wait(60)
        self._reader.join()
        return code, [line for line in self.lines if line.startswith("stream-agg: ")]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


async def feed(settings: Settings, start: int, end: int) -> None:
    async with Tap(settings, lambda *_: None) as tap:
        partition = await tap.send(settings.topic_sessions, "rain", SPEC)
        for k in range(start, end):
            record = {"session": "rain", "event": f"e{k}", "time": f"2026-01-{1 + k // 24:02d}T{k % 24:02d}:00:00Z"}
            await tap.send_soon(settings.topic_forecasts, "rain", {**record, "forecasts": {"ecmwf": k % 11 / 10}})
            await tap.send_soon(settings.topic_states, "rain", {**record, "state": k % 2})
        await tap.send_soon(settings.topic_forecasts, "rain", {"session": "rain"})  # a dead letter
        await tap.flush()
        await tap.until_drained([settings.topic_forecasts, settings.topic_states], partition, lambda: None)


def test_every_side_works_with_its_least_rights_and_tells_no_secret(place: Place) -> None:
    port, home = free_port(), place.home
    settings = place.of(
        "worker", delivery="exactly_once", log="json", log_level="debug", http_port=port, http_token=TOKEN
    )
    place.may("worker", "worker", "exactly once")
    place.may("feeder", "replay")
    place.may("verifier", "verify", "doctor")
    place.may("watcher", "monitor")
    place.may("clerk", "redrive")
    place.user("verifier", *acl("rain", "doctor"))
    place.user("clerk", *acl("rain", "session"))
    worker = Worker(settings, home)
    try:
        worker.until("is ours")
        asyncio.run(feed(place.of("feeder"), 0, 40))
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
        request.add_header("Authorization", f"Bearer {TOKEN}")
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            metrics = answer.read().decode()
        told = [
            (command(place.of("verifier"), home, "verify", "--json"), '"actions":40'),
            (command(place.of("watcher"), home, "monitor", "--once"), "rain"),
            (command(place.of("clerk"), home, "dead-letters", "redrive", "--all"), "1 sent again"),
            (command(place.of("clerk"), home, "session", "show", "rain"), "counters"),
            (command(place.of("verifier"), home, "doctor"), "cleanup compact"),
            (command(settings, home, "worker", "--print-config"), '"kafka_password": "***"'),
        ]
    finally:
        worker.stop()
    assert worker.process.returncode == 0
    assert 'outcome="decided"} 40.0' in metrics
    for done, words in told:
        assert done.returncode == 0, (done.args, done.stdout, done.stderr)
        assert words in done.stdout, (done.args, done.stdout)
    everything = ["".join(worker.lines), metrics, repr(settings), *(done.stdout + done.stderr for done, _ in told)]
    assert not [text for text in everything if whispered(text)]


def test_every_right_that_is_missing_is_named(place: Place) -> None:
    sides: list[Side] = ["worker", "monitor", "verify", "dead letters", "redrive", "replay"]
    settings = place.of("probe")
    for side in sides:
        place.may("probe", side)
        asyncio.run(count_partitions(settings, side))
        for right in rights(settings, side):
            place.change("probe", right, take=True)
            with pytest.raises(RefusedError) as caught:
                asyncio.run(count_partitions(settings, side))
            assert f"gives user 'probe' no right to {right}: grant it" in str(caught.value)
            place.change("probe", right, take=False)
        place.may("probe", side, take=True)


def test_rights_that_cannot_be_asked_for_are_named_when_they_are_missed(place: Place) -> None:
    settings = place.of("nobody")
    with pytest.raises(RefusedError, match=r"no right to WRITE on transactional id rain\.\*"):
        asyncio.run(_start(settings))
    new = replace(settings, topic_rules="new-rules")
    place.may("nobody", "worker")
    with pytest.raises(RefusedError, match="no right to CREATE on topic new-rules"):
        asyncio.run(create_topics(new))
    done = command(settings, place.home, "doctor")
    assert "DESCRIBE_CONFIGS on topic forecasts" in done.stdout


async def _start(settings: Settings) -> None:
    publisher = ExactlyOnce(settings)
    try:
        await publisher.start()
    finally:
        await publisher.stop()


@pytest.mark.parametrize("name", ["actions", "forecasts"])
def test_a_right_that_is_taken_from_a_running_worker_stops_it_in_one_line(place: Place, name: str) -> None:
    operation: Any = "WRITE" if name == "actions" else "READ"
    right = Right("topic", name, operation)
    place.may("worker", "worker")
    place.may("feeder", "replay")
    worker = Worker(place.of("worker", http_port=0), place.home)
    try:
        worker.until("is ours")
        place.change("worker", right, take=True)
        asyncio.run(_send_one(place.of("feeder"), f"after-{name}"))
        code, said = worker.ended()
    finally:
        worker.stop()
        place.change("worker", right, take=False)
    # Where the right to read goes, a thread of Faust may add its own trace as it dies.
    assert (code, len(said)) == (1, 1), "".join(worker.lines)[-3000:]
    assert f"no right to {right}: grant it" in said[0]


async def _send_one(settings: Settings, event: str) -> None:
    async with Tap(settings, lambda *_: None) as tap:
        await tap.send(settings.topic_sessions, "rain", SPEC)
        record = {"session": "rain", "event": event, "time": "2026-02-01T00:00:00Z", "forecasts": {"ecmwf": 0.5}}
        await tap.send(settings.topic_forecasts, "rain", record)


def logins(place: Place) -> Mapping[str, Settings]:
    """Every way in."""
    good, ours = place.of("worker"), str(place.certificates.ours)
    (place.home / "token").write_text(token("worker"))
    return {
        "PLAIN": replace(good, kafka_sasl="PLAIN"),
        "SCRAM": good,
        "OAUTHBEARER": replace(good, kafka_sasl="OAUTHBEARER", kafka_token_file=str(place.home / "token")),
        "mutual TLS": replace(
            good, brokers=place.kafka.mutual, kafka_sasl="", kafka_user="", kafka_password="", kafka_cert_file=ours
        ),
    }


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM", "OAUTHBEARER", "mutual TLS"])
def test_there_are_four_ways_in(place: Place, way: str) -> None:
    place.may("worker", "worker")
    assert asyncio.run(count_partitions(logins(place)[way], "worker"))["forecasts"] == 1


@pytest.mark.parametrize(
    ("way", "changes", "kind", "words"),
    [
        ("SCRAM", {"kafka_password": "wrong"}, ConfigError, "STREAM_AGG_KAFKA_PASSWORD"),
        ("SCRAM", {"kafka_user": "stranger"}, ConfigError, "does not let user 'stranger' in by SCRAM-SHA-256"),
        ("PLAIN", {"kafka_password": "wrong"}, ConfigError, "STREAM_AGG_KAFKA_PASSWORD"),
        ("SCRAM", {"kafka_sasl": "SCRAM-SHA-512"}, ConfigError, "does not take SCRAM-SHA-512"),
        ("OAUTHBEARER", {"kafka_token_file": "OURS"}, ConfigError, "the token in STREAM_AGG_KAFKA_TOKEN_FILE"),
        ("OAUTHBEARER", {"kafka_token_file": "/nowhere"}, ConfigError, "the token in STREAM_AGG_KAFKA_TOKEN_FILE"),
        ("SCRAM", {"kafka_ca_file": "OTHER"}, ConfigError, "STREAM_AGG_KAFKA_CA_FILE"),
        ("SCRAM", {"kafka_ca_file": ""}, ConfigError, "is not to be trusted"),
        ("SCRAM", {"kafka_ca_file": "/nowhere"}, ConfigError, "KAFKA_CA_FILE: /nowhere: No such file"),
        ("SCRAM", {"kafka_sasl": ""}, UnavailableError, "credentials (STREAM_AGG_KAFKA_SASL)"),
        ("SCRAM", {"kafka_tls": False}, UnavailableError, "want TLS (STREAM_AGG_KAFKA_TLS)"),
        ("mutual TLS", {"kafka_cert_file": ""}, UnavailableError, "our certificate (STREAM_AGG_KAFKA_CERT_FILE)"),
        ("mutual TLS", {"kafka_cert_file": "OTHERS"}, UnavailableError, "STREAM_AGG_KAFKA_CERT_FILE"),
    ],
)
def test_what_is_wrong_with_a_login_is_one_line(
    place: Place, way: str, changes: dict[str, Any], kind: type[StreamAggError], words: str
) -> None:
    files = {"OTHER": place.certificates.other_ca, "OTHERS": place.certificates.others, "OURS": place.certificates.ours}
    named = {name: str(files.get(value, value)) if isinstance(value, str) else value for name, value in changes.items()}
    with pytest.raises(kind) as caught:
        asyncio.run(count_partitions(replace(logins(place)[way], **named), "worker"))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not whispered(str(caught.value))


def test_a_name_that_the_certificate_does_not_have_is_no_way_in(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"is not to be trusted .*name the broker"):
        asyncio.run(
            count_partitions(
                replace(place.of("worker"), brokers=place.kafka.secure.replace("127.0.0.1", "localhost")), "worker"
            )
        )


async def _use(url: str) -> None:
    store = RedisStore(url, "rain")
    try:
        await store.peek(0)
    finally:
        await store.close()


def test_what_is_wrong_with_redis_is_one_line(place: Place) -> None:
    redis, ca = place.redis, str(place.certificates.other_ca)
    wrong = {
        redis.secure("worker", "wrong"): "does not let us in",
        redis.secure("stranger"): "does not let us in",
        redis.secure("worker", ca=ca): r"no TLS with Redis.*ssl_ca_certs",
        redis.secure("worker").partition("?")[0]: r"no TLS with Redis.*ssl_ca_certs",
        redis.url.replace(str(redis.port), str(redis.tls_port)): r"whether it wants rediss://",
    }
    for url, words in wrong.items():
        with pytest.raises(StreamAggError, match=words) as caught:
            asyncio.run(_use(url))
        assert "\n" not in str(caught.value)
        assert not whispered(str(caught.value))


def test_every_command_that_a_worker_may_not_call_is_named_before_it_works(place: Place) -> None:
    url = place.redis.secure("probe")
    for lacking in COMMANDS["worker"]:
        if lacking == "eval":  # only for a server that has not met the script
            with Redis.from_url(place.redis.secure("admin", "boss")) as admin:
                admin.script_flush()
        place.user("probe", *acl("rain", "worker"), f"-{lacking}")
        with pytest.raises(ConfigError, match=rf"no right to .*\b{lacking}\b.*: grant it"):
            asyncio.run(_check(url))
    place.user("probe", *acl("rain", "worker"))
    asyncio.run(_check(url))
    place.user("probe", *acl("other", "worker"))
    with pytest.raises(ConfigError, match=r"no right to .*: grant it"):
        asyncio.run(_check(url))


async def _check(url: str) -> None:
    store = RedisStore(url, "rain")
    try:
        await store.check()
        await store.peek(0)
    finally:
        await store.close()
