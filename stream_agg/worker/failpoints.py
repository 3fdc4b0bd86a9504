"""Named places at which a test may end or hold the process: `STREAM_AGG_FAIL_AT=after_commit:3` dies the third time
there, `STREAM_AGG_FAIL_AT=before_commit:3:stop` is stopped there until someone sends SIGCONT.

Read when the module is imported for the worker's process; without the variable every call is one comparison.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

FailPoint = Literal[
    "after_claim",
    "before_commit",
    "after_commit",
    "before_publish",
    "during_publish",  # the rows are with the broker, the transaction is open still
    "after_publish",
    "before_trim",
    "after_trim",
    "before_ack",
    "after_ack",
]

_at, _, _rest = os.environ.get("STREAM_AGG_FAIL_AT", "").partition(":")
_count, _, _how = _rest.partition(":")
_left = int(_count or 1)
_signal = signal.SIGSTOP if _how == "stop" else signal.SIGKILL


def reach(point: FailPoint) -> None:
    """Die here by SIGKILL, or stop, if this is the place and the time."""
    global _left
    if point == _at:
        _left -= 1
        if not _left:
            os.kill(os.getpid(), _signal)
