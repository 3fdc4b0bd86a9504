"""A broker and a Redis for people with nothing but pip: each a child process that cannot outlive its parent.

Servers are started and stopped here; no client of theirs and nothing of the aggregation may live here.
"""

from stream_agg.embedded.servers import Broker, RedisServer

__all__ = ["Broker", "RedisServer"]
