"""How a worker logs: one line a fact, for people or for programs. What is said is decided where it is said."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, logger, message; `extra` fields beside them; an exception as text."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _OWN},
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str, ensure_ascii=False)


def configure(style: str, level: str) -> None:
    """Log to the error stream: ours from `level` on, as `text` or `json`; of others what is at least a warning."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if style == "json" else text)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("stream_agg").setLevel(level.upper())
    if level != "debug":
        for services in ("app", "batches", "fetching"):  # mode tells the comings and goings of its services there
            logging.getLogger(f"stream_agg.worker.{services}").setLevel(logging.WARNING)
