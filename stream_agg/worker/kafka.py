"""The one place where settings become clients of Kafka, and where it is said in words what kept one out.

Nobody else makes such a client: what is said here of TLS and credentials holds for all of them. No record is read or
written here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import create_conn
from aiokafka.partitioner import murmur2
from aiokafka.protocol.metadata import MetadataRequest

from stream_agg.errors import ConfigError, RefusedError, StreamAggError, UnavailableError
from stream_agg.worker.settings import PREFIX, Settings

KNOCK_S = 5.0
"""How long one server may take to say why it lets nobody in."""

ASIDE = "docs/reference/rights.md lists those of each side"


def admin(settings: Settings, **more: Any) -> AIOKafkaAdminClient:
    """A client that asks about topics and groups."""
    return AIOKafkaAdminClient(bootstrap_servers=settings.broker_list, **security(settings), **more)


def consumer(settings: Settings, **more: Any) -> AIOKafkaConsumer:
    """A client that reads."""
    return AIOKafkaConsumer(bootstrap_servers=settings.broker_list, **security(settings), **more)


def producer(settings: Settings, **more: Any) -> AIOKafkaProducer:
    """A client that writes."""
    return AIOKafkaProducer(bootstrap_servers=settings.broker_list, **security(settings), **more)


@lru_cache(maxsize=1 << 16)
def partition_of(key: bytes, count: int) -> int:
    """Where the producers of this package, and those of Java, send a key. Remembered: it is computed byte by byte."""
    return int((murmur2(key) & 0x7FFFFFFF) % count)


def security(settings: Settings) -> dict[str, Any]:
    """What aiokafka is told about TLS and credentials; nothing where neither is set. `ConfigError` for a file that
    cannot be used."""
    told: dict[str, Any] = {}
    if settings.kafka_tls:
        told["ssl_context"] = _context(settings)
    if settings.kafka_sasl:
        told["sasl_mechanism"] = settings.kafka_sasl
        if settings.kafka_sasl == "OAUTHBEARER":
            told["sasl_oauth_token_provider"] = _Token(settings.kafka_token_file)
        else:
            told["sasl_plain_username"] = settings.kafka_user
            told["sasl_plain_password"] = settings.kafka_password
    if told:
        told["security_protocol"] = ("SASL_" if settings.kafka_sasl else "") + (
            "SSL" if settings.kafka_tls else "PLAINTEXT"
        )
    return told


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is not typed
    """The token of a file, read for every connection anew: whoever puts it there renews it before it expires."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def token(self) -> str:
        try:
            return (await asyncio.to_thread(self._path.read_text)).strip()
        except (OSError, ValueError) as e:
            raise errors.AuthenticationFailedError(f"the token cannot be read: {_words(e)}") from e


def _context(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not settings.kafka_verify:  # of development alone: the settings refuse it elsewhere
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if settings.kafka_ca_file:
        with _reading("KAFKA_CA_FILE", settings.kafka_ca_file):
            context.load_verify_locations(cafile=settings.kafka_ca_file)
    if settings.kafka_cert_file:
        with _reading("KAFKA_CERT_FILE and its key", settings.kafka_cert_file):
            # A key that asks for a password must not ask a terminal.
            context.load_cert_chain(
                settings.kafka_cert_file, settings.kafka_key_file or None, lambda: settings.kafka_key_password
            )
    return context


class _reading:  # noqa: N801 # a context manager, used like a function
    """Say which setting a file that cannot be used belongs to."""

    def __init__(self, name: str, path: str) -> None:
        self._where = f"{PREFIX}{name}: {path}"

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ssl.SSLError):
            raise ConfigError(f"{self._where} is no PEM file that fits ({error.reason or 'unreadable'})") from None
        if isinstance(error, OSError):
            raise ConfigError(f"{self._where}: {error.strerror}") from None


async def start(settings: Settings, client: Any) -> None:
    """Start a client of these settings. `ConfigError` where the broker does not let us in, and why; `RefusedError`
    where a right is missing; `UnavailableError` where nobody answers."""
    try:
        await client.start()
    except (errors.KafkaError, OSError, TimeoutError, ValueError) as e:
        raise denied(settings, e) or await knock(settings) from e


def denied(settings: Settings, e: BaseException, operation: str = "READ") -> StreamAggError | None:
    """What is wrong where an error says that credentials or a right are: `operation` on what it names. None where it
    says something else, and asking again may help."""
    named = _name(e)
    if isinstance(e, errors.TopicAuthorizationFailedError):
        return lacking(settings, [f"{operation} on topic {named}"])
    if isinstance(e, errors.GroupAuthorizationFailedError):
        return lacking(settings, [f"READ on group {named or settings.app}"])
    if isinstance(e, errors.TransactionalIdAuthorizationFailed):
        return lacking(settings, [f"WRITE on transactional id {settings.app}.*"])
    if isinstance(e, errors.ClusterAuthorizationFailedError):
        return lacking(settings, [f"{operation} on the cluster"])
    if isinstance(e, (errors.SaslAuthenticationFailed, errors.AuthenticationFailedError)):
        return ConfigError(_refused_login(settings, e))
    return None


def lacking(settings: Settings, rights: Iterable[str]) -> RefusedError:
    """The error of rights that are missing."""
    return RefusedError(f"Kafka gives {who(settings)} no right to {', '.join(rights)}: grant it; {ASIDE}")


def who(settings: Settings) -> str:
    """Who we are to Kafka, without secrets."""
    if settings.kafka_user:
        return f"user {settings.kafka_user!r}"
    if settings.kafka_sasl:
        return "the bearer of the token"
    return "the bearer of the certificate" if settings.kafka_cert_file else "the anonymous user"


async def knock(settings: Settings) -> StreamAggError:
    """Why no server lets us in: the first that says more than that nobody is there."""
    heard: list[StreamAggError] = []
    for broker in settings.broker_list:
        host, _, port = broker.rpartition(":")
        try:
            async with asyncio.timeout(KNOCK_S):
                connection = await create_conn(
                    host.strip("[]"), int(port), request_timeout_ms=int(KNOCK_S * 1000), **security(settings)
                )
                try:
                    answer = await connection.send(MetadataRequest([]))
                    if not answer.brokers:  # a token that is not taken comes back as a word, which aiokafka passes over
                        raise errors.AuthenticationFailedError("it was not taken")
                finally:
                    connection.close()
        except (errors.KafkaError, OSError, TimeoutError, ValueError) as e:
            heard.append(_said(settings, broker, e))
    refused = [error for error in heard if isinstance(error, ConfigError)]
    return next(
        iter(refused or heard), UnavailableError(f"Kafka at {settings.brokers} did not answer in time: ask again")
    )


def _said(settings: Settings, broker: str, e: Exception) -> StreamAggError:
    """One server's refusal in words."""
    if isinstance(e, ssl.SSLCertVerificationError):
        return ConfigError(
            f"the certificate of Kafka at {broker} is not to be trusted ({e.verify_message}): set "
            f"{PREFIX}KAFKA_CA_FILE to the authority that signed it, and name the broker in {PREFIX}BROKERS as its "
            "certificate does"
        )
    if isinstance(e, ssl.SSLError):
        return ConfigError(
            f"no TLS with Kafka at {broker} ({_words(e)}): check that this port speaks TLS ({PREFIX}KAFKA_TLS), and "
            f"our certificate ({PREFIX}KAFKA_CERT_FILE)"
        )
    if isinstance(e, errors.UnsupportedSaslMechanismError):
        return ConfigError(
            f"Kafka at {broker} does not take {settings.kafka_sasl}: set {PREFIX}KAFKA_SASL to what it takes"
        )
    if isinstance(e, ConnectionRefusedError) or not isinstance(e, (errors.KafkaConnectionError, ConnectionError)):
        return denied(settings, e) or UnavailableError(
            f"no Kafka broker answers at {broker} ({_words(e)}); check {PREFIX}BROKERS and that the broker runs"
        )
    return UnavailableError(  # it may also just be starting
        f"Kafka at {broker} closes the connection; it may want TLS ({PREFIX}KAFKA_TLS), our certificate "
        f"({PREFIX}KAFKA_CERT_FILE) or credentials ({PREFIX}KAFKA_SASL): set what it asks for, and that the broker runs"
    )


def _refused_login(settings: Settings, e: BaseException) -> str:
    secret = f"the token in {PREFIX}KAFKA_TOKEN_FILE"
    if settings.kafka_sasl != "OAUTHBEARER":
        secret = f"{PREFIX}KAFKA_USER and {PREFIX}KAFKA_PASSWORD"
    return (
        f"Kafka at {settings.brokers} does not let {who(settings)} in by {settings.kafka_sasl} ({_words(e)}): "
        f"check {secret}"
    )


def _name(e: BaseException) -> str:
    """What an authorisation error is about: aiokafka gives a name or a partition, or a set of them."""
    found = e.args[0] if e.args else ""
    named = found if isinstance(found, (set, frozenset)) else [found]
    return ", ".join(sorted({str(getattr(one, "topic", one)) for one in named}))


def _words(e: BaseException) -> str:
    """A foreign error in one line, short."""
    text = e.strerror if isinstance(e, OSError) and e.strerror else str(e).partition("Error: ")[2] or str(e)
    return " ".join(text.split())[:200] or type(e).__name__
