"""What settings refuse outside development, and that no secret is shown by anything they are shown by."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stream_agg
from stream_agg.cli import run
from stream_agg.errors import ConfigError
from stream_agg.worker import kafka
from stream_agg.worker.safe import SECRETS, shown_url
from stream_agg.worker.settings import PREFIX, Settings

PACKAGE = Path(stream_agg.__file__).parent
LOGIN = {"KAFKA_SASL": "PLAIN", "KAFKA_USER": "me", "KAFKA_PASSWORD": "hush", "KAFKA_TLS": "true"}
DEVELOPMENT = {"DEVELOPMENT": "true"}


def settings(**env: str) -> Settings:
    return Settings.from_env({PREFIX + name: value for name, value in env.items()})


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({**LOGIN, "KAFKA_TLS": "false"}, "KAFKA_TLS: credentials would go to Kafka unencrypted"),
        ({"KAFKA_TLS": "true", "KAFKA_VERIFY": "false"}, "KAFKA_VERIFY"),
        ({"REDIS_URL": "redis://me:hush@redis:6379/0"}, "REDIS_URL: credentials would go to Redis unencrypted"),
        ({"REDIS_URL": "redis://redis:6379/0?password=hush"}, "REDIS_URL: credentials"),
        ({"REDIS_URL": "redis+cluster://me:hush@127.0.0.1:6379"}, "REDIS_URL: credentials"),
        ({"REDIS_URL": "rediss://me:hush@redis:6379/0?ssl_cert_reqs=none"}, "REDIS_URL: it turns off the check"),
        ({"REDIS_URL": "rediss://me:hush@redis:6379/0?ssl_check_hostname=False"}, "REDIS_URL: it turns off the check"),
    ],
)
def test_only_development_may(env: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        settings(**env)
    assert "hush" not in str(caught.value)
    assert "STREAM_AGG_DEVELOPMENT" in str(caught.value)
    settings(**env, **DEVELOPMENT)


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"KAFKA_SASL": "GSSAPI"}, "KAFKA_SASL: expected one of"),
        ({"KAFKA_SASL": "PLAIN", "KAFKA_TLS": "true", "KAFKA_USER": "me"}, "KAFKA_PASSWORD"),
        ({"KAFKA_SASL": "OAUTHBEARER", "KAFKA_TLS": "true"}, "KAFKA_TOKEN_FILE"),
        ({"KAFKA_USER": "me"}, "KAFKA_SASL"),
        ({"KAFKA_KEY_FILE": "/k", "KAFKA_TLS": "true"}, "KAFKA_CERT_FILE"),
        ({"KAFKA_CA_FILE": "/ca"}, "KAFKA_TLS"),
        ({"HTTP_BIND": "0.0.0.0"}, "HTTP_BIND: metrics on 0.0.0.0 would be open"),  # noqa: S104
        ({"ID_CHARACTERS": "emoji"}, "ID_CHARACTERS"),
        ({"MAX_EVENT_BYTES": "0"}, "MAX_EVENT_BYTES: must be positive"),
        ({"MAX_SESSIONS": "-1"}, "MAX_SESSIONS"),
    ],
)
def test_what_cannot_go_together_is_named(env: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        settings(**env)


@pytest.mark.parametrize("name", ["HTTP_TOKEN", "HTTP_OPEN"])
def test_an_open_bind_needs_a_token_or_a_word(name: str) -> None:
    assert settings(HTTP_BIND="0.0.0.0", **{name: "true"}).http_bind == "0.0.0.0"  # noqa: S104


@pytest.mark.parametrize("url", ["redis://me:hush@127.0.0.1:6379/0", "unix://me:hush@/run/redis.sock"])
def test_what_does_not_leave_the_machine_may_be_plain(url: str) -> None:
    assert settings(REDIS_URL=url).redis_url == url


def test_a_file_may_hold_the_secret_and_a_path_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hush\n")
    found = settings(**{**LOGIN, "KAFKA_PASSWORD": ""}, KAFKA_PASSWORD_FILE=str(tmp_path / "password"))
    assert found.kafka_password == "hush"  # noqa: S105
    assert settings(KAFKA_TLS="1", KAFKA_CA_FILE="/etc/ca.pem").kafka_ca_file == "/etc/ca.pem"
    with pytest.raises(ConfigError, match="KAFKA_PASSWORD_FILE: /nowhere: No such file"):
        settings(**LOGIN, KAFKA_PASSWORD_FILE="/nowhere")  # noqa: S106 # a path


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hush@h:6379/0",
        "redis://:hush@h:6379/0",
        "redis://:hu/sh-hush@h/0",
        "redis://:hush?hush#hush@h/0",
        "redis://:hush@hush@h/0",
        "rediss://h/0?password=hush&ssl_password=hush",
        "redis+cluster://me:hush@h:1,h:2",
        "redis://:hush@[h/0",
    ],
)
def test_no_url_shows_its_password(url: str) -> None:
    assert "hush" not in shown_url(url)
    assert "hush" not in repr(replace(Settings(), redis_url=url))


def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    env = {**LOGIN, "KAFKA_KEY_PASSWORD": "hush", "HTTP_TOKEN": "hush", "MONITOR_TOKEN": "hush"}
    assert {name.lower() for name, value in env.items() if value == "hush"} == SECRETS
    env["REDIS_URL"] = "rediss://me:hush@redis:6379/0?ssl_password=hush"
    for name, value in env.items():
        monkeypatch.setenv(PREFIX + name, value)
    assert run(["worker", "--print-config"]) == 0
    shown = capsys.readouterr().out + repr(settings(**env)) + str(settings(**env).masked())
    assert "hush" not in shown
    assert shown.count("***") >= 3 * len(SECRETS)


@pytest.mark.parametrize("name", ["KAFKA_TLS", "BATCH"])
def test_a_secret_in_the_wrong_place_is_not_repeated(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush")
    with pytest.raises(ConfigError, match=f"{name}_FILE: cannot be used") as caught:
        settings(**{f"{name}_FILE": str(tmp_path / "secret")})
    assert "hush" not in str(caught.value)


def made(tree: ast.AST) -> set[str]:
    """Names that are called, and classes that are derived from."""
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return {f.id if isinstance(f, ast.Name) else f.attr for f in called if isinstance(f, (ast.Name, ast.Attribute))}


def test_every_client_of_kafka_is_made_in_one_place() -> None:
    clients = {"AIOKafkaConsumer", "AIOKafkaProducer", "AIOKafkaAdminClient", "AIOKafkaClient", "create_conn"}
    found = {
        path.relative_to(PACKAGE).as_posix(): clients & made(ast.parse(path.read_text()))
        for path in PACKAGE.rglob("*.py")
    }
    assert {path for path, names in found.items() if names} == {"worker/kafka.py"}


@pytest.mark.parametrize(
    ("changes", "protocol"),
    [
        ({}, None),
        ({"kafka_tls": True}, "SSL"),
        ({"kafka_tls": True, "kafka_sasl": "SCRAM-SHA-512", "kafka_user": "me", "kafka_password": "x"}, "SASL_SSL"),
        ({"kafka_sasl": "PLAIN", "kafka_user": "me", "kafka_password": "x"}, "SASL_PLAINTEXT"),
        ({"kafka_tls": True, "kafka_sasl": "OAUTHBEARER", "kafka_token_file": "/t"}, "SASL_SSL"),
    ],
)
def test_faust_is_told_what_the_other_clients_are(changes: dict[str, Any], protocol: str | None) -> None:
    from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

    from stream_agg.worker.app import _credentials

    told = kafka.security(replace(Settings(), **changes))
    assert told.get("security_protocol") == protocol
    theirs = dict(credentials_to_aiokafka_auth(_credentials(told)))
    assert {k: v for k, v in theirs.items() if v is not None} == (told or {"security_protocol": "PLAINTEXT"})


def test_tls_checks_names_and_speaks_no_old_version() -> None:
    import ssl

    context = kafka.security(replace(Settings(), kafka_tls=True))["ssl_context"]
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
