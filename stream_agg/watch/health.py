"""When a worker is alive, ready, started: verdicts on plain facts, with the reason of every no. No I/O, no thread.

The facts are written by the worker's event loop and read by the thread that answers probes; each is one assignment.
Times are seconds of one monotonic clock, handed in.
"""

from __future__ import annotations

from dataclasses import dataclass

LOOK_S = 2.0
"""How often servers, epochs and offsets are looked at."""
LOOK_TIMEOUT_S = 3.0
"""How long a look waits for a server: it and the pause between two are well below the 10 s that /readyz may take."""
STALE_S = 8.0
"""A look older than that says nothing about now."""


@dataclass
class Health:
    """What is known of a worker. `stuck_s`: how long nothing may move before it counts as stuck."""

    stuck_s: float
    beat_s: float = 0.0
    """When the event loop last came round, or a solve ended."""
    moved_s: float = 0.0
    """When an offset last moved, or there was nothing to move."""
    looked_s: float = 0.0
    started: bool = False
    """Whether a claim was done once; with more workers than partitions it may be of none."""
    claimed: bool = False
    """Whether the claim of the latest rebalance is done."""
    waiting: str | None = None
    """The server that work waits for, in words."""
    faults: tuple[str, ...] = ()
    """What the last look found wrong."""

    def dead(self, now_s: float) -> list[str]:
        """Why a restart would help; empty: alive.

        A worker whose servers are away is alive: it resumes by itself, and a restart would not bring them back.
        """
        still_s = now_s - self.beat_s
        if still_s > self.stuck_s:
            return [f"the event loop has stood still for {still_s:.0f} s"]
        idle_s = now_s - self.moved_s
        if self.claimed and not self.waiting and not self.faults and idle_s > self.stuck_s:
            return [f"records are waiting, the servers answer, and no offset has moved for {idle_s:.0f} s"]
        return []

    def unready(self, now_s: float) -> list[str]:
        """What is missing to work; empty: ready."""
        reasons = [] if self.claimed else ["no partitions are claimed: starting, or a rebalance is under way"]
        reasons += self.faults
        if self.waiting:
            reasons.append(f"paused: {self.waiting}")
        if now_s - self.looked_s > STALE_S:
            reasons.append("servers were not looked at lately: the worker is starting, or busy with a long batch")
        return reasons + self.dead(now_s)

    def unstarted(self, now_s: float) -> list[str]:
        """What is missing to have started; empty: started."""
        return [] if self.started else ["no partitions have been claimed yet"]
