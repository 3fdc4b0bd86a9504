"""Named places at which a test may kill the process: `STREAM_AGG_FAIL_AT=after_commit:3` dies the third time there.

Read when the module is imported for the worker's process; without the variable every call is one comparison.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

FailPoint = Literal["before_commit", "after_commit", "after_publish"]

_at, _, _count = os.environ.get("STREAM_AGG_FAIL_AT", "").partition(":")
_left = int(_count or 1)


def reach(point: FailPoint) -> None:
    """Die here by SIGKILL if this is the place and the time."""
    global _left
    if point == _at:
        _left -= 1
        if not _left:
            os.kill(os.getpid(), signal.SIGKILL)
