"""What operators see of a worker: metrics, health, logs, traces. It is told facts and changes nothing of the work."""
