"""From a URL to a client of Redis: one server, a cluster, or whichever server the sentinels call the master.

    redis://user:password@host:6379/0                               one server; rediss:// with TLS, unix:// a socket
    redis+cluster://user:password@host:7000,host:7001               any nodes of a cluster
    redis+sentinel://user:password@host:26379,host:26379/master/0   sentinels, the name they give the master, a database

`rediss+cluster` and `rediss+sentinel` are the same with TLS. User and password are those of the servers; options such
as `?socket_timeout=3` follow as in redis-py: `ssl_ca_certs` names the authority of the server's certificate, which is
checked together with its name, `ssl_certfile` and `ssl_keyfile` our own. Nothing is connected here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from stream_agg.errors import ConfigError

FORMS = {
    "cluster": "redis+cluster://user:password@host:7000,host:7001",
    "sentinel": "redis+sentinel://user:password@host:26379,host:26379/master/0",
    "": "redis://user:password@host:port/0",
}


class Server(NamedTuple):
    """A client, not connected, and where it leads, without secrets. `guides` are clients that it asks for the way."""

    client: Any
    where: str
    guides: Sequence[Any] = ()


def connect(url: str, timeout_s: float) -> Server:
    """The client of a URL. A server that is silent for `timeout_s` seconds does not answer; nothing is tried twice.

    `ConfigError` for a URL that cannot work, without the password in it.
    """
    scheme, _, kind = urlsplit(url).scheme.partition("+")
    if kind not in FORMS:
        raise _misshapen("")
    many = f"{scheme}://{url.partition('://')[2]}"
    try:
        if kind == "cluster":
            return _cluster(many, timeout_s)
        if kind == "sentinel":
            return _sentinel(many, timeout_s)
        options = _options(url, timeout_s)
        where = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        return Server(Redis.from_pool(_pool(options)), where)
    except ValueError:
        # Without the cause: a password with a slash makes part of itself the port that is complained about.
        raise _misshapen(kind) from None


def _cluster(url: str, timeout_s: float) -> Server:
    hosts, options = _hosts(url, 6379, timeout_s)
    options.pop("connection_class", None)
    if options.pop("db", 0):
        raise ConfigError("the Redis URL names a database, but a cluster has only the one: leave it out")
    try:
        client: Any = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in hosts], ssl=url.startswith("rediss"), **options
        )
    except TypeError:
        raise _unknown_option() from None
    return Server(client, f"cluster {_named(hosts)}")


def _sentinel(url: str, timeout_s: float) -> Server:
    place, question, rest = url.partition("?")
    start, _, path = place.partition("://")[2].partition("/")
    master, _, database = path.partition("/")
    if not master:
        raise ValueError("no name of a master")
    scheme = url.partition("://")[0]
    hosts, options = _hosts(f"{scheme}://{start}/{database}{question}{rest}", 26379, timeout_s)
    options.pop("connection_class", None)
    sentinel = Sentinel(  # type: ignore[no-untyped-call]  # redis-py left it untyped
        hosts,
        sentinel_kwargs={"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "protocol": 2},
        ssl=scheme == "rediss",
    )
    try:
        client: Any = sentinel.master_for(master, **options)
        client.connection_pool.make_connection()
    except TypeError:
        raise _unknown_option() from None
    return Server(client, f"master {master!r} of sentinels {_named(hosts)}", sentinel.sentinels)


def _hosts(url: str, port: int, timeout_s: float) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    """The hosts of a URL that names several, and the options of the rest of it."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, named = authority.rpartition("@")
    if not slash:
        named, question, options = named.partition("?")
        path = question + options
    hosts = []
    for one in named.split(","):
        split = urlsplit(f"//{one}")
        if not split.hostname:
            raise ValueError("no host")
        hosts.append((split.hostname, split.port or port))
    options_of = _options(f"{scheme}://{login}{at}{hosts[0][0]}:{hosts[0][1]}/{path}", timeout_s)
    return hosts, {k: v for k, v in options_of.items() if k not in ("host", "port")}


def _named(hosts: list[tuple[str, int]]) -> str:
    return ",".join(f"{host}:{port}" for host, port in hosts)


def _options(url: str, timeout_s: float) -> dict[str, Any]:
    tls = {"ssl_check_hostname": True} if url.startswith("rediss") else {}  # which redis-py did not until its version 6
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        **tls,
        **parse_url(url),
        "decode_responses": False,
        "protocol": 2,  # all that is needed, and the same answers from every server and every redis-py
        "retry": Retry(NoBackoff(), 0),
    }


def _pool(options: dict[str, Any]) -> ConnectionPool:
    try:
        pool = ConnectionPool(**options)
        pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py left it untyped
    except (TypeError, ValueError):
        raise _unknown_option() from None
    return pool


def _misshapen(kind: str) -> ConfigError:
    return ConfigError(f"the Redis URL is not of the form {FORMS[kind]} (percent-encode the password)")


def _unknown_option() -> ConfigError:
    return ConfigError("the Redis URL has an option after its ? that does not exist")
