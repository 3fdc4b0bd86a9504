"""Apache Kafka with SASL_SSL, mutual TLS and access control, Redis with TLS and users; certificates for both.

The plain port of each stays for whoever sets it up: at Kafka its anonymous user may do everything, at Redis the default
user nothing but say that it lives.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trustme
from _servers import Kafka, Redis
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Schema, String
from cryptography.hazmat.primitives import serialization

from stream_agg.embedded.servers import free_port
from stream_agg.worker.rights import CODES, Right

PASSWORD = "its-own-secret"  # noqa: S105 # of servers that live as long as a test
ADMIN = "rediss://admin:boss@"


class Certificates:
    """An authority of our own, the certificate of the servers on this machine, and one for us."""

    def __init__(self, directory: Path, names: Iterable[str] = ("127.0.0.1",)) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        authority, stranger = trustme.CA(), trustme.CA()
        self.ca, self.other_ca = directory / "ca.pem", directory / "other-ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        stranger.cert_pem.write_to_path(str(self.other_ca))
        self.server = self._pair("server", authority.issue_cert(*names))
        self.ours = self._pair("ours", authority.issue_cert("worker@example.org", common_name="worker"))
        self.others = self._pair("others", stranger.issue_cert("worker@example.org", common_name="worker"))
        self.elsewhere = self._pair("elsewhere", authority.issue_cert("kafka.example.org"))

    def _pair(self, name: str, leaf: trustme.LeafCert) -> Path:
        """Key and certificate in one file, the key as Java reads it."""
        key: Any = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.directory / f"{name}.pem"
        path.write_bytes(text + b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        return path


class SecureKafka(Kafka):
    """Kafka that asks for a login over TLS at `secure`, for a certificate at `mutual`, and for rights everywhere."""

    def __init__(self, directory: Path, certificates: Certificates, users: Iterable[str], **settings: str) -> None:
        self._ports = {"SECURE": free_port(), "MUTUAL": free_port()}
        self._certificates, self._users = certificates, tuple(users)
        super().__init__(directory, **settings)

    @property
    def secure(self) -> str:
        """`127.0.0.1:PORT` of SASL_SSL."""
        return f"127.0.0.1:{self._ports['SECURE']}"

    @property
    def mutual(self) -> str:
        """`127.0.0.1:PORT` of TLS with a certificate on both sides."""
        return f"127.0.0.1:{self._ports['MUTUAL']}"

    def _format_options(self) -> list[str]:
        kinds = ("SCRAM-SHA-256", "SCRAM-SHA-512")
        pairs = [(kind, user) for user in self._users for kind in kinds]
        return [word for kind, user in pairs for word in ("-S", f"{kind}=[name={user},password={PASSWORD}]")]

    def _properties(self, port: int) -> dict[str, str]:
        plain = super()._properties(port)
        logins = " ".join(f'user_{user}="{PASSWORD}"' for user in self._users)
        modules, listener = "org.apache.kafka.common.security", "listener.name.secure"
        files = {"keystore": self._certificates.server, "truststore": self._certificates.ca}
        here = "".join(f",{name}://127.0.0.1:{at}" for name, at in self._ports.items())
        return {
            **plain,
            "listeners": plain["listeners"] + here,
            "advertised.listeners": plain["advertised.listeners"] + here,
            "listener.security.protocol.map": plain["listener.security.protocol.map"] + ",SECURE:SASL_SSL,MUTUAL:SSL",
            **{f"ssl.{store}.type": "PEM" for store in files},
            **{f"ssl.{store}.location": str(path) for store, path in files.items()},
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([a-z]*).*$/$1/",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            f"{listener}.plain.sasl.jaas.config": f"{modules}.plain.PlainLoginModule required {logins};",
            f"{listener}.scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
            f"{listener}.oauthbearer.sasl.jaas.config": (
                f'{modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "early.start.listeners": "CONTROLLER",
        }


def token(user: str) -> str:
    """A token without a signature, as a Kafka that is only tried out takes it."""
    claims = {"sub": user, "iat": time.time(), "exp": time.time() + 600}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


class SecureRedis(Redis):
    """Redis that asks for a user over TLS; its plain port takes a ping."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        self.tls_port = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        users = directory / "users.acl"
        users.write_text("user default on nopass -@all +ping +info\nuser admin on >boss ~* &* +@all\n")
        pair, ca = str(certificates.server), str(certificates.ca)
        files = ["--tls-cert-file", pair, "--tls-key-file", pair, "--tls-ca-cert-file", ca]
        listen = ["--tls-port", str(self.tls_port), "--tls-auth-clients", "no"]
        super().__init__(directory, [*listen, *files, "--aclfile", str(users)])
        self._ca = ca

    def secure(self, user: str, password: str = PASSWORD, ca: str | None = None) -> str:
        """The URL of a user."""
        return f"rediss://{user}:{password}@127.0.0.1:{self.tls_port}/0?ssl_ca_certs={ca or self._ca}"


class _Granted(Response):
    API_KEY, API_VERSION = 30, 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("results", Array(("error_code", Int16), ("message", String("utf-8"))))
    )


_FIELDS = (
    ("resource_type", Int8),
    ("resource_name", String("utf-8")),
    ("pattern_type", Int8),
    ("principal", String("utf-8")),
    ("host", String("utf-8")),
    ("operation", Int8),
    ("permission", Int8),
)


class _Grant(RequestStruct):
    API_KEY, API_VERSION, RESPONSE_TYPE = 30, 1, _Granted
    SCHEMA = Schema(("creations", Array(*_FIELDS)))


class _Took(Response):
    API_KEY, API_VERSION = 31, 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            Array(
                ("error_code", Int16),
                ("message", String("utf-8")),
                ("matches", Array(("error_code", Int16), ("message", String("utf-8")), *_FIELDS)),
            ),
        ),
    )


class _Take(RequestStruct):
    API_KEY, API_VERSION, RESPONSE_TYPE = 31, 1, _Took
    SCHEMA = Schema(("filters", Array(*_FIELDS)))


class _Granting(Request[_Grant]):
    API_KEY = 30

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def build(self, request_struct_class: type[_Grant]) -> _Grant:
        return request_struct_class(self._rows)


class _Taking(Request[_Take]):
    API_KEY = 31

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def build(self, request_struct_class: type[_Take]) -> _Take:
        return request_struct_class(self._rows)


_KINDS = {"topic": 2, "group": 3, "transactional id": 5}
_LITERAL, _PREFIXED, _ALLOW = 3, 4, 3


def _row(user: str, right: Right) -> tuple[Any, ...]:
    pattern = _PREFIXED if right.prefixed else _LITERAL
    return _KINDS[right.kind], right.name, pattern, f"User:{user}", "*", CODES[right.operation], _ALLOW


async def grant(address: str, user: str, rights: Iterable[Right], take: bool = False) -> None:
    """Give a user rights, or take them, at the plain port of a broker."""
    rows = [_row(user, right) for right in dict.fromkeys(rights)]
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        answer: Any = await admin._send_to_controller(_Taking(rows) if take else _Granting(rows))
    finally:
        await admin.close()
    for error, message, *_ in answer.results:
        if error:
            raise RuntimeError(f"rights were not changed: {message}")
