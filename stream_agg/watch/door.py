"""Who may look at what a process serves over HTTP, and what every answer forbids a browser. No server here."""

from __future__ import annotations

import hmac
from ipaddress import ip_address

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Server": "stream_agg",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound there."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    return host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def right(token: str, given: str) -> bool:
    """Whether `given` is the token, in a time that does not tell how much of it is."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def bearer(authorization: str) -> str:
    """The token of an Authorization header."""
    return authorization.removeprefix("Bearer ")
