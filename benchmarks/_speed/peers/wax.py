"""The same job in bytewax: state in its recovery store (SQLite), written every second.

python wax.py BROKERS INPUT OUTPUT GROUP DIRECTORY
"""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSourceMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main
from logic import decide


def keyed(message: KafkaSourceMessage) -> tuple[str, Any]:
    """Session and decoded value."""
    value = orjson.loads(message.value)
    return value["session"], value


def act(count: int | None, value: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Count and decide."""
    round_ = (count or 0) + 1
    return round_, decide(round_, value)


def row(item: tuple[str, dict[str, Any]]) -> KafkaSinkMessage:
    """As it is sent."""
    return KafkaSinkMessage(item[0].encode(), orjson.dumps(item[1]))


def main() -> None:
    """Run until stopped."""
    brokers, source, sink, _, directory = sys.argv[1:]
    flow = Dataflow("flow")
    taken = kop.input("in", flow, brokers=[brokers], topics=[source])
    acted = op.stateful_map("act", op.map("decode", taken.oks, keyed), act)
    kop.output("out", op.map("encode", acted, row), brokers=[brokers], topic=sink)
    Path(directory).mkdir()
    init_db_dir(Path(directory), 1)
    cli_main(flow, recovery_config=RecoveryConfig(directory), epoch_interval=timedelta(seconds=1))


if __name__ == "__main__":
    main()
