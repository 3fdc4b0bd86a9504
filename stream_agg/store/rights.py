"""The least rights at Redis that a worker and the tools beside it need. Names only, no access.

The same table is written into the reference, and is what the tests grant: nothing more, nothing less.
"""

from __future__ import annotations

from typing import Literal

Side = Literal["worker", "doctor", "session"]

_READS = ("eval", "evalsha", "hget", "hgetall", "sismember", "smembers")

COMMANDS: dict[Side, tuple[str, ...]] = {
    "worker": (*_READS, "del", "hdel", "hincrby", "hset", "pexpire", "sadd", "srem"),
    "doctor": (*_READS, "info", "time"),
    "session": (*_READS, "del", "hkeys", "hset", "sadd", "scan", "scard"),
}
"""What each side calls, most of it within scripts."""

WHY: dict[Side, str] = {
    "worker": "`worker`, and `replay --through-kafka`",
    "doctor": "`doctor`",
    "session": "`session`; without `del`, `hset` and `sadd` for all but `import`",
}
"""What each side is."""


def acl(app: str, side: Side) -> list[str]:
    """The rules of a user, as ACL SETUSER takes them after its password: these commands, on the keys of `app`."""
    return ["resetkeys", "resetchannels", "-@all", f"~{{{app}:*", *(f"+{command}" for command in COMMANDS[side])]
