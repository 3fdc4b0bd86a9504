"""The same job in quixstreams: state in RocksDB, and with `changelog` also in a changelog topic.

python quix.py BROKERS INPUT OUTPUT GROUP DIRECTORY changelog|local at-least-once|exactly-once
"""

import sys
from typing import Any

from logic import decide
from quixstreams import Application, State


def act(value: dict[str, Any], state: State) -> dict[str, Any]:
    """Count and decide."""
    round_ = state.get("round", 0) + 1
    state.set("round", round_)
    return decide(round_, value)


def main() -> None:
    """Run until stopped."""
    brokers, source, sink, group, directory, durable, guarantee = sys.argv[1:]
    app = Application(
        brokers,
        consumer_group=group,
        auto_offset_reset="earliest",
        state_dir=directory,
        use_changelog_topics=durable == "changelog",
        processing_guarantee=guarantee,  # type: ignore[arg-type]
    )
    frame = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer="json"))
    frame = frame.apply(act, stateful=True)
    frame.to_topic(app.topic(sink, key_serializer="bytes", value_serializer="json"))
    app.run()


if __name__ == "__main__":
    main()
