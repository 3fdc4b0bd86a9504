"""What settings must not do outside development, which of them are secrets, and how a URL is shown. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from stream_agg.watch.door import loopback, name_of

if TYPE_CHECKING:
    from stream_agg.worker.settings import Settings

SECRETS = frozenset({"kafka_password", "kafka_key_password", "http_token", "monitor_token"})
"""Masked wherever settings are shown; the Redis URL is masked in part."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ALPHABETS = ("printable", "ascii", "any")

_DEVELOPMENT = "or set STREAM_AGG_DEVELOPMENT=true where nobody listens"
_NO = ("0", "false", "no", "off", "none", "optional")


def faults(settings: Settings) -> Iterator[str]:
    """What is wrong, each beginning with the name of its setting."""
    yield from _of_kafka(settings)
    yield from _of_redis(settings)
    if settings.id_characters not in ALPHABETS:
        yield f"ID_CHARACTERS: expected one of {', '.join(ALPHABETS)}"
    if settings.max_sessions < 0:
        yield "MAX_SESSIONS: must not be negative"
    if settings.http_port and not loopback(settings.http_bind) and not (settings.http_token or settings.http_open):
        yield (
            f"HTTP_BIND: metrics on {settings.http_bind} would be open to a network: set STREAM_AGG_HTTP_TOKEN, or "
            "STREAM_AGG_HTTP_OPEN=true where something else decides who reaches them, or bind to 127.0.0.1"
        )


def shown_url(url: str) -> str:
    """A URL without what may be a secret, whatever is wrong with it.

    >>> shown_url("rediss://worker:hu/sh@redis:6379/0?ssl_password=more")
    'rediss://worker:***@redis:6379/0?ssl_password=***'
    """
    url = re.sub(r"([?&][^=&]*pass[^=&]*=)[^&]*", r"\1***", url)
    scheme, there, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    if at:
        user, colon, _ = login.partition(":")
        login = f"{user}:***" if colon else login
    return f"{scheme}{there}{login}{at}{place}"


def _of_kafka(to: Settings) -> Iterator[str]:
    if to.kafka_sasl and to.kafka_sasl not in MECHANISMS:
        yield f"KAFKA_SASL: expected one of {', '.join(MECHANISMS)}"
    elif to.kafka_sasl == "OAUTHBEARER":
        if not to.kafka_token_file:
            yield "KAFKA_TOKEN_FILE: OAUTHBEARER needs the file of a token"
    elif to.kafka_sasl and not (to.kafka_user and to.kafka_password):
        yield f"KAFKA_USER: {to.kafka_sasl} needs a user and STREAM_AGG_KAFKA_PASSWORD (or its _FILE)"
    elif not to.kafka_sasl and (to.kafka_user or to.kafka_password):
        yield f"KAFKA_SASL: a user without a way to log in: set it to one of {', '.join(MECHANISMS)}"
    if to.kafka_key_file and not to.kafka_cert_file:
        yield "KAFKA_CERT_FILE: a key without its certificate"
    if (to.kafka_ca_file or to.kafka_cert_file) and not to.kafka_tls:
        yield "KAFKA_TLS: certificates are given, but TLS is off: set it to true"
    if to.development:
        return
    if to.kafka_sasl and not to.kafka_tls:
        yield f"KAFKA_TLS: credentials would go to Kafka unencrypted: set it to true, {_DEVELOPMENT}"
    if not to.kafka_verify:
        yield f"KAFKA_VERIFY: whoever is in between could read and change everything: leave it on, {_DEVELOPMENT}"


def _of_redis(to: Settings) -> Iterator[str]:
    try:
        url = urlsplit(to.redis_url)
        options = {name: value.lower() for name, value in parse_qsl(url.query)}
    except ValueError:
        return  # said where it is used, without the password in it
    # Sentinels, clusters and Kafka say where to go on: only of one server is it known that nothing leaves the machine.
    inside = url.scheme == "unix" or (url.scheme == "redis" and loopback(name_of(url.netloc.rpartition("@")[2])))
    if to.development or inside:
        return
    secret = "@" in to.redis_url.partition("://")[2] or "password" in options
    if secret and not url.scheme.startswith("rediss"):
        yield f"REDIS_URL: credentials would go to Redis unencrypted: use rediss://, {_DEVELOPMENT}"
    if any(options.get(name) in _NO for name in ("ssl_cert_reqs", "ssl_check_hostname")):
        yield f"REDIS_URL: it turns off the check of the server's certificate: leave that on, {_DEVELOPMENT}"
