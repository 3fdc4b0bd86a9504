"""Everything that can be set, in one typed object, read once from the environment. No server is touched here.

Every field is also an environment variable: `STREAM_AGG_` and its name in capitals. A secret may come from a file
instead: `STREAM_AGG_REDIS_URL_FILE=/run/secrets/redis` is read once, without its last line break. What may not be set
together, and what only development may do, is in `safe.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from stream_agg.errors import ConfigError
from stream_agg.events import parse_duration
from stream_agg.watch.names import Input
from stream_agg.worker import safe

PREFIX = "STREAM_AGG_"
DELIVERIES = ("at_least_once", "exactly_once")

LOGS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

_SCHEMES = {"unix", *(f"redis{tls}{kind}" for tls in ("", "s") for kind in ("", "+cluster", "+sentinel"))}


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Settings of a worker and of the tools beside it; each with the reason of its default."""

    brokers: str = "127.0.0.1:9092"
    """Kafka bootstrap servers, `host:port` with commas; Kafka's own default."""
    development: bool = False
    """Let credentials go unencrypted and certificates unchecked, which is refused otherwise: for a machine of one's
    own."""
    kafka_tls: bool = False
    """Speak TLS with Kafka. Off, as in Kafka; credentials need it."""
    kafka_ca_file: str = ""
    """PEM file of the authorities that may have signed the brokers' certificates, beside the system's."""
    kafka_cert_file: str = ""
    """PEM file of our own certificate, for mutual TLS."""
    kafka_key_file: str = ""
    """PEM file of its key, where that is not in the same file."""
    kafka_key_password: str = ""
    """Password of that key. A secret."""
    kafka_verify: bool = True
    """Check the brokers' certificates and names. Off: in development alone."""
    kafka_sasl: str = ""
    """How to log in to Kafka: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`. Empty: not at all."""
    kafka_user: str = ""
    """User of Kafka."""
    kafka_password: str = ""
    """Its password. A secret."""
    kafka_token_file: str = ""
    """File of the token for `OAUTHBEARER`, read for every connection: something else renews it there."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """Where the state lives; Redis' own default. May hold a password: masked wherever it is shown. `rediss://` speaks
    TLS, `?ssl_ca_certs=`, `ssl_certfile=` and `ssl_keyfile=` name its files."""
    app: str = "stream_agg"
    """Name of this deployment: the consumer group, and the first part of every key in Redis."""
    instance: str = ""
    """Name that this worker keeps over restarts: they cause no rebalance then. Empty: none. Never two of one name."""
    topic_sessions: str = "sessions"
    """In: specs of sessions by their id; null closes one."""
    topic_forecasts: str = "forecasts"
    """In: what the experts say of an event."""
    topic_states: str = "states"
    """In: what became of it."""
    topic_actions: str = "actions"
    """Out: what to do, one record a forecast."""
    topic_regret: str = "regret"
    """Out: running reports of every session."""
    topic_rules: str = "rules"
    """Out: the rule in force of every session."""
    topic_dead_letters: str = "dead-letters"
    """Out: records that could not be used, with the reason."""
    create_topics: bool = False
    """Create missing topics at start. For development: in production sizes and retention are a decision."""
    partitions: int = 4
    """Partitions of topics that are created: as many workers as that can share the work."""
    batch: int = 1000
    """Records a commit holds at most: larger ones save little, and are what a crash repeats."""
    memory_decisions: int = 300_000
    """What the sessions of a partition may hold in memory together, in decisions and profiles of half a kilobyte; those
    unused for longest leave, and come back from Redis when they are asked for. 300,000: 150 MB a partition."""
    redis_timeout_s: float = 5.0
    """How long one answer of Redis may take; a commit of a full batch takes milliseconds."""
    kafka_timeout_s: float = 30.0
    """How long one delivery to Kafka may take before it is tried again."""
    delivery: str = "at_least_once"
    """Or `exactly_once`, which needs a broker with transactions: every action is then seen once by `read_committed`
    readers, and tens of milliseconds later."""
    session_timeout_s: float = 30.0
    """How long a worker may be silent before its partitions go to another: longer than any pause of a healthy one."""
    http_bind: str = "127.0.0.1"
    """Where /metrics and the health of the worker are served: this machine alone. Any other address needs a token or
    `http_open`."""
    http_port: int = 9466
    """Its port; 0 serves nothing. In the range that Prometheus' exporters use."""
    http_token: str = ""
    """What a reader of /metrics must bring, as a bearer token. Probes need none: they learn yes or no, not why. A
    secret."""
    http_open: bool = False
    """Serve /metrics to whoever reaches the port: where a network policy decides who that is."""
    stuck_s: float = 120.0
    """A worker is stuck when nothing moves for so long: much longer than one solve may take."""
    log: str = "text"
    """One line a fact, as `text` for people or `json` for programs."""
    log_level: str = "info"
    """Least level that is logged: `debug`, `info`, `warning` or `error`. No payload is logged above debug."""
    tracing: bool = False
    """A span for every batch, by OpenTelemetry (extra `otel`); where they go is said by its `OTEL_*` variables."""
    close_grace: str = "P1D"
    """How long a closed session stays readable in Redis: long enough for a person to look next morning."""
    dead_letter_run: int = 1000
    """Stop where so many records of a partition in a row cannot be used: a whole batch of nothing else is no accident
    of single records. 0: never."""
    dead_letter_ratio: float = 0.5
    """Stop where more than this share of a partition's last 2,000 records cannot be used: more bad than good means that
    a deployment is wrong, not a record. 0: never."""
    max_event_bytes: int = 1 << 17
    """Largest forecast or state: 64 experts with the longest names fill a quarter. Checked before it is parsed."""
    max_spec_bytes: int = 1 << 21
    """Largest session spec: 64 experts with a thousand levels each, written out, are 1.3 MB."""
    max_nesting: int = 8
    """Objects within objects a record may have: a spec has 4, a forecast 2."""
    max_experts: int = 64
    """Experts a session may have: the most a spec can."""
    max_levels: int = 1001
    """Levels an expert may have: the most a spec can. All of them together are what a solve costs."""
    max_actions: int = 1000
    """Actions a session may have: the most a spec can."""
    max_window: int = 1_000_000
    """Open decisions a session may keep (`window` of its spec): ten times the default, 200 MB of memory."""
    max_id: int = 512
    """Characters of a session's or event's id: the most a record can. Ids are keys in Redis and in every output."""
    id_characters: str = "printable"
    """Alphabet of ids: `printable` has no control characters, which ids carry into logs and terminals; `ascii` has only
    letters, digits and `._:/@+-` besides; `any` has all of UTF-8."""
    max_sessions: int = 100_000
    """Sessions a partition may hold: a flood of new ids ends there, at some hundred MB of Redis. 0: any number."""
    rebuild: bool = False
    """Start from the earliest retained records where Redis is empty although the group has committed offsets."""
    monitor: bool = False
    """Serve the monitor page beside the worker. Off: one page is enough for all workers of a deployment."""
    monitor_bind: str = "127.0.0.1"
    """Where the page listens: this machine alone. Any other address needs a token."""
    monitor_port: int = 8470
    """Port of the page, 0 for any free one; no other server is known for this one."""
    monitor_token: str = ""
    """What a visitor must bring: /?token=... once, or a bearer token. A secret: masked wherever it is shown."""

    @classmethod
    def from_env(cls, env: Mapping[str, str], **flags: Any) -> Settings:
        """Settings of `env`; flags that are not None win. `ConfigError` lists every fault."""
        values: dict[str, Any] = {}
        faults: list[str] = []
        known = {PREFIX + f.name.upper(): f for f in fields(cls)}
        for name, text in env.items():
            field = known.get(name) or known.get(name.removesuffix("_FILE"))
            if field is None:
                continue
            try:
                raw = text if name in known else Path(text).read_text().rstrip("\r\n")
                values[field.name] = _parse(str(field.type), raw)
            except OSError as e:
                faults.append(f"{name}: {text}: {e.strerror}")
            except ValueError as e:
                secret = field.name in safe.SECRETS or name not in known
                faults.append(f"{name}: cannot be used" if secret else f"{name}: {e}")
        values |= {name: value for name, value in flags.items() if value is not None}
        settings = cls(**values)
        faults += settings._faults()
        if faults:
            raise ConfigError("; ".join(faults))
        return settings

    def _faults(self) -> list[str]:
        faults = []
        for broker in self.brokers.split(","):
            host, _, port = broker.strip().rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                faults.append(f"{PREFIX}BROKERS: {broker.strip()!r} is not host:port")
        if urlsplit(self.redis_url).scheme not in _SCHEMES:
            faults.append(f"{PREFIX}REDIS_URL: expected redis://host:port/db, or one of {', '.join(sorted(_SCHEMES))}")
        if not self.app or set("{}") & set(self.app):
            faults.append(f"{PREFIX}APP: expected a name without braces")
        positive = [
            "partitions",
            "batch",
            "memory_decisions",
            "redis_timeout_s",
            "kafka_timeout_s",
            "session_timeout_s",
            "stuck_s",
        ]
        positive += [f.name for f in fields(self) if f.name.startswith("max_") and f.name != "max_sessions"]
        faults += [f"{PREFIX}{name.upper()}: must be positive" for name in positive if getattr(self, name) <= 0]
        if not 0 <= self.http_port < 65536:
            faults.append(f"{PREFIX}HTTP_PORT: expected a port, or 0 for none")
        for name, words in (("log", LOGS), ("log_level", LEVELS)):
            if getattr(self, name) not in words:
                faults.append(f"{PREFIX}{name.upper()}: expected one of {', '.join(words)}")
        if self.delivery not in DELIVERIES:
            faults.append(f"{PREFIX}DELIVERY: expected one of {', '.join(DELIVERIES)}, got {self.delivery!r}")
        if self.dead_letter_run < 0:
            faults.append(f"{PREFIX}DEAD_LETTER_RUN: must not be negative")
        if not 0 <= self.dead_letter_ratio < 1:
            faults.append(f"{PREFIX}DEAD_LETTER_RATIO: expected a share from 0 to below 1")
        if not 0 <= self.monitor_port < 65536:
            faults.append(f"{PREFIX}MONITOR_PORT: expected 0 to 65535")
        try:
            parse_duration(self.close_grace)
        except ValueError as e:
            faults.append(f"{PREFIX}CLOSE_GRACE: {e}")
        names = [value for name, value in self.masked().items() if name.startswith("topic_")]
        if len(set(names)) < len(names):
            faults.append("two topics have the same name")
        return faults + [PREFIX + fault for fault in safe.faults(self)]

    @property
    def nowhere(self) -> bool:
        """Whether nobody has said where Kafka and Redis are: both addresses are the defaults."""
        return (self.brokers, self.redis_url) == (Settings().brokers, Settings().redis_url)

    @property
    def broker_list(self) -> list[str]:
        """Bootstrap servers, one each."""
        return [broker.strip() for broker in self.brokers.split(",")]

    @property
    def inputs(self) -> tuple[str, str, str]:
        """The input topics: sessions, forecasts, states."""
        return self.topic_sessions, self.topic_forecasts, self.topic_states

    def role(self, topic: str) -> Input:
        """What an input topic is for."""
        roles: dict[str, Input] = dict(zip(self.inputs, get_args(Input), strict=True))
        return roles[topic]

    def masked(self) -> dict[str, Any]:
        """All values, fit to be shown."""
        shown = {f.name: getattr(self, f.name) for f in fields(self)}
        hidden = {name: "***" for name in safe.SECRETS if shown[name]}
        return {**shown, **hidden, "redis_url": safe.shown_url(self.redis_url)}

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.masked().items())})"


def _parse(kind: str, text: str) -> Any:
    if kind == "bool":
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off", ""):
            return False
        raise ValueError(f"{text!r} is neither true nor false")
    if kind in ("int", "float"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
    return text
