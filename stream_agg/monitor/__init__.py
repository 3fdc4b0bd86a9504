"""What operators and analysts see of a running deployment, from its output topics alone.

`view` folds records, `alarms` words what is wrong, `shown` and `charts` say what is drawn: pure, and driven by tests
with plain values. `reader` owns Kafka, `server` the web. Nothing here writes to a topic or asks the store.
"""
