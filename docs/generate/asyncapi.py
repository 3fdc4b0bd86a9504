"""The topics as an AsyncAPI 3.0 document, from the settings, the record schemas and the headers that are sent."""

from __future__ import annotations

from typing import Any, get_args

from describe import Schema, docs_of

from stream_agg import __version__
from stream_agg.errors import Reason
from stream_agg.worker.broker import COMPACTED
from stream_agg.worker.settings import Settings

TOPICS = {
    "sessions": "session", "forecasts": "forecast", "states": "state",
    "actions": "action", "regret": "regret", "rules": "rule", "dead_letters": None,
}  # fmt: skip
"""topic of the settings -> the record in it; None: any bytes."""
INPUTS = ("sessions", "forecasts", "states")

_CLOUD = {
    "ce_specversion": "Version of CloudEvents.",
    "ce_id": "The same for every repeat of a record: `session/event` for an action.",
    "ce_type": "What it is, with its version.",
    "ce_source": "The deployment.",
    "ce_time": "Time of the event, not of the sending.",
    "content-type": "application/json",
}
_DEAD = {
    "topic": "Where the record stood.", "partition": "Where the record stood.", "offset": "Where the record stood.",
    "reason": "Why it could not be used.", "detail": "The same in words.",
    "truncated": "Its size, where its end had to be left out.",
}  # fmt: skip
_VERIFY = {
    "actions": {
        "forecast_offset": "Offset of its forecast: what `verify` starts from.",
        "specs_seen": "Next offset of the sessions topic: specs before it were applied.",
    },
    "regret": {"states_seen": "State events of the session that were applied before."},
}
"""What outputs of a topic carry beside: how far the inputs had been applied."""


def headers(topic: str) -> dict[str, Schema]:
    """header -> its schema; none for inputs."""
    if topic in INPUTS:
        return {}
    texts = _CLOUD | _VERIFY.get(topic, {})
    if topic == "dead_letters":
        texts = {k: v for k, v in _CLOUD.items() if k != "content-type"} | _DEAD
    found: dict[str, Schema] = {name: {"type": "string", "description": text} for name, text in texts.items()}
    if "reason" in found:
        found["reason"]["enum"] = list(get_args(Reason))
    return found


def document(schemas: dict[str, Schema]) -> dict[str, Any]:
    """The whole document."""
    settings, texts = Settings(), docs_of(Settings)
    channels, operations, messages = {}, {}, {}
    for topic, record in TOPICS.items():
        field = f"topic_{topic}"
        message: dict[str, Any] = {
            "name": record or "dead-letter",
            "summary": texts[field],
            "bindings": {"kafka": {"key": {"type": "string", "description": "Session id."}}},
        }
        if record:
            message |= {"contentType": "application/json", "payload": {"$ref": f"#/components/schemas/{record}"}}
        if headers(topic):
            message["headers"] = {"type": "object", "properties": headers(topic)}
        messages[topic] = message
        cleanup = "compact" if field in COMPACTED else "delete"
        channels[topic] = {
            "address": getattr(settings, field),
            "messages": {"record": {"$ref": f"#/components/messages/{topic}"}},
            "bindings": {"kafka": {"topicConfiguration": {"cleanup.policy": [cleanup]}}},
        }
        verb = "receive" if topic in INPUTS else "send"
        operations[f"{verb}_{topic}"] = {"action": verb, "channel": {"$ref": f"#/channels/{topic}"}}
    plain = {name: {k: v for k, v in schema.items() if k != "$schema"} for name, schema in schemas.items()}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "stream_agg",
            "version": __version__,
            "description": "Robust decisions from many calibrated forecasts. Written by docs/generate from the types.",
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": plain},
    }
