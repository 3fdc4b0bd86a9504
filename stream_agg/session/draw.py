"""The number that draws an action: derived from (seed, session, event), so the same event always gets the same draw."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def stream(seed: int, session: str) -> bytes:
    """What the draws of a session have in common."""
    name = session.encode("utf-8", "surrogatepass")  # its length keeps ("ab", "c") apart from ("a", "bc")
    return b"%d:%d:%b" % (seed, len(name), name)


def uniform(of: bytes, event: str) -> float:
    """A number in [0, 1) with 53 random bits, for an event of that `stream`.

    >>> uniform(stream(0, "paris"), "monday") != uniform(stream(1, "paris"), "monday")
    True
    """
    text = of + event.encode("utf-8", "surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11) * 2.0**-53


def draw(mix: Sequence[tuple[int, float]], at: float) -> int:
    """The action index that the cumulated probabilities of a mixed action reach at `at` in [0, 1)."""
    total = 0.0
    for action, probability in mix:
        total += probability
        if at < total:
            return action
    return mix[-1][0]
