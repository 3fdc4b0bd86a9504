"""Sends every record on as it is, with nothing but aiokafka: what the broker and the client take by themselves.

python echo.py BROKERS INPUT OUTPUT GROUP DIRECTORY
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def main() -> None:
    """Run until stopped."""
    brokers, source, sink, group, _ = sys.argv[1:]
    consumer = AIOKafkaConsumer(source, bootstrap_servers=brokers, group_id=group, auto_offset_reset="earliest")
    async with AIOKafkaProducer(bootstrap_servers=brokers, acks="all") as producer, consumer:
        async for record in consumer:
            await producer.send(sink, record.value, key=record.key)


if __name__ == "__main__":
    asyncio.run(main())
