"""When a worker is alive, ready and started, from facts alone."""

from __future__ import annotations

import pytest

from stream_agg.watch.health import STALE_S, Health

NOW = 1000.0


def healthy(**facts: object) -> Health:
    health = Health(stuck_s=60.0, beat_s=NOW, moved_s=NOW, looked_s=NOW, started=True, claimed=True)
    for name, value in facts.items():
        assert hasattr(health, name)
        setattr(health, name, value)
    return health


def test_a_worker_with_a_claim_and_servers_that_answer_is_all_three() -> None:
    health = healthy()
    assert (health.dead(NOW), health.unready(NOW), health.unstarted(NOW)) == ([], [], [])


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"claimed": False}, "no partitions"),
        ({"faults": ("Redis at a:1 does not answer",)}, "Redis at a:1"),
        ({"waiting": "Kafka takes no records"}, "paused: Kafka"),
        ({"looked_s": NOW - STALE_S - 1}, "not looked at lately"),
        ({"moved_s": NOW - 61}, "no offset has moved for 61 s"),
        ({"beat_s": NOW - 61}, "stood still for 61 s"),
    ],
)
def test_every_reason_makes_a_worker_unready_and_is_told(facts: dict[str, object], why: str) -> None:
    reasons = healthy(**facts).unready(NOW)
    assert len(reasons) == 1
    assert why in reasons[0]


@pytest.mark.parametrize("away", [{"faults": ("x",)}, {"waiting": "x"}, {"claimed": False}])
def test_what_a_restart_would_not_mend_does_not_kill(away: dict[str, object]) -> None:
    assert healthy(moved_s=NOW - 1e6, **away).dead(NOW) == []


def test_a_loop_that_stands_still_is_dead_whatever_else_is_away() -> None:
    assert healthy(beat_s=NOW - 61, waiting="x", faults=("y",)).dead(NOW)
    assert not healthy(beat_s=NOW - 59).dead(NOW)
