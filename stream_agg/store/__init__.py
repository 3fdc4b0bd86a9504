"""Sessions kept by input partition: what a store must do, one in Redis, and its twin in memory. No Kafka here."""
