"""The same job as a plain Faust agent with a Table: its default store, in memory, with a changelog topic.

python table.py BROKERS INPUT OUTPUT GROUP DIRECTORY PARTITIONS
"""

import sys
from typing import Any

import faust
from logic import decide


def main() -> None:
    """Run until stopped."""
    brokers, source, sink, group, directory, partitions = sys.argv[1:]
    app = faust.App(
        group,
        broker=f"kafka://{brokers}",
        datadir=directory,
        topic_partitions=int(partitions),
        topic_replication_factor=1,
        consumer_auto_offset_reset="earliest",
        web_enabled=False,
    )
    actions = app.topic(sink, key_type=bytes, key_serializer="raw")
    rounds = app.Table("rounds", default=int, partitions=int(partitions))

    async def act(values: Any) -> None:
        async for value in values:
            rounds[value["session"]] += 1
            action = decide(rounds[value["session"]], value)
            await actions.send(key=value["session"].encode(), value=action)

    app.agent(app.topic(source, key_type=bytes, key_serializer="raw"))(act)
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()


if __name__ == "__main__":
    main()
