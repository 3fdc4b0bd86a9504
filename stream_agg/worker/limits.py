"""When too many records cannot be used: the worker stops, before it turns a whole topic into dead letters. No I/O."""

from __future__ import annotations

from collections import deque

from stream_agg.errors import RefusedError

WINDOW = 2000
"""Records of a partition that the ratio is about: more than a hiccup of one producer, seconds of a busy topic."""


class Limits:
    """How many records of each topic-partition were refused: in a row, and of the last `WINDOW`.

    `run` and `ratio`: where to stop; 0 never does.
    """

    def __init__(self, run: int, ratio: float) -> None:
        self._run, self._ratio = run, ratio
        self._runs: dict[tuple[str, int], int] = {}
        self._recent: dict[tuple[str, int], deque[bool]] = {}

    def check(self, topic: str, partition: int, refused: list[bool], last: str) -> None:
        """Count a batch, record by record. `RefusedError` where a limit is passed: the batch must not be committed.

        `last` says what was wrong with the last refused record of the batch.
        """
        at = (topic, partition)
        run, longest = self._runs.get(at, 0), 0
        for one in refused:
            run = run + 1 if one else 0
            longest = max(longest, run)
        self._runs[at] = run
        recent = self._recent.setdefault(at, deque(maxlen=WINDOW))
        recent.extend(refused)
        many = sum(recent)
        if self._run and longest >= self._run:
            self._stop(at, f"{longest:,} records in a row", "RUN", last)
        if self._ratio and len(recent) == WINDOW and many > self._ratio * WINDOW:
            self._stop(at, f"{many:,} of the last {WINDOW:,} records", "RATIO", last)

    def _stop(self, at: tuple[str, int], how_many: str, limit: str, last: str) -> None:
        raise RefusedError(
            f"{at[0]}[{at[1]}]: {how_many} cannot be used (the last: {last}): stopped before all of them become dead "
            "letters, nothing of the last batch was applied; repair what sends or what reads them and start again, or "
            f"start with STREAM_AGG_DEAD_LETTER_{limit}=0 to let them pass"
        )
