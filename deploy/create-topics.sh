#!/bin/sh
# Creates the topics of one deployment, and leaves those alone that are there.
#
#   BROKERS=kafka:9092 REPLICAS=3 deploy/create-topics.sh
#
# BROKERS     bootstrap servers
# PARTITIONS  of every topic. As many workers as that can share the work; it cannot be changed later without moving
#             sessions, so take two to four times the workers of today. The input topics must have equal counts.
# REPLICAS    3 where there are three brokers: one may fail, and nothing acknowledged is lost (min.insync.replicas).
# CONFIG      a properties file for kafka-topics.sh, with the credentials
# TOPICS_CLI  kafka-topics.sh, where it is not on the PATH
set -eu

brokers=${BROKERS:-127.0.0.1:9092}
partitions=${PARTITIONS:-12}
replicas=${REPLICAS:-3}
cli=${TOPICS_CLI:-kafka-topics.sh}
day=86400000

create() {
  topic=$1
  shift
  set -- "$@" "min.insync.replicas=$((replicas > 2 ? 2 : 1))"
  for setting in "$@"; do
    set -- "$@" --config "$setting"
    shift
  done
  ${cli} --bootstrap-server "$brokers" ${CONFIG:+--command-config "$CONFIG"} --create --if-not-exists \
    --topic "$topic" --partitions "$partitions" --replication-factor "$replicas" "$@"
}

# A spec is needed as long as its session runs: kept by key, for ever.
create "${STREAM_AGG_TOPIC_SESSIONS:-sessions}" cleanup.policy=compact
# 35 days: what verify and a rebuild can go back to. Longer than the default state_deadline of 30 days, and far longer
# than any worker or Redis may be away: a record that is gone before it was read stops the worker. 200 bytes a
# forecast of a few experts: a million a day are 7 GB.
create "${STREAM_AGG_TOPIC_FORECASTS:-forecasts}" cleanup.policy=delete "retention.ms=$((35 * day))"
create "${STREAM_AGG_TOPIC_STATES:-states}" cleanup.policy=delete "retention.ms=$((35 * day))"
# As long as the inputs, or verify has nothing to compare with. 500 bytes an action.
create "${STREAM_AGG_TOPIC_ACTIONS:-actions}" cleanup.policy=delete "retention.ms=$((35 * day))"
# Reports are few: one for every 5 % more states, one a solve.
create "${STREAM_AGG_TOPIC_REGRET:-regret}" cleanup.policy=delete "retention.ms=$((90 * day))"
# The rule in force of every session. A rule of 64 experts with a thousand levels each is 2 MB of prices.
create "${STREAM_AGG_TOPIC_RULES:-rules}" cleanup.policy=compact max.message.bytes=4194304
# Time for a person to look and to send them again. They hold the original bytes and headers: a little more than inputs
# may have, or their end is cut off.
create "${STREAM_AGG_TOPIC_DEAD_LETTERS:-dead-letters}" cleanup.policy=delete "retention.ms=$((90 * day))" \
  max.message.bytes=2097152
