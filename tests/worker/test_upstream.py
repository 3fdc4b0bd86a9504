"""Why acknowledgements are not left to Faust: its trap, pinned. Red when upstream mends it, and `BatchConsumer` that
stands aside of it may be looked at anew."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

from faust.transport.consumer import Consumer
from faust.types import TP

from stream_agg.worker.batches import BatchConsumer


def test_faust_commits_past_the_one_record_under_way() -> None:
    tp = TP("forecasts", 0)
    consumer = SimpleNamespace(
        _acked=defaultdict(list, {tp: [101, 102, 103]}),  # and 100 is being worked on
        _acked_index=defaultdict(set, {tp: {101, 102, 103}}),
        _committed_offset={tp: 100},
        _gap=defaultdict(list),
    )
    assert Consumer._new_offset(consumer, tp) == 104
    # Ours goes by what is worked: see test_an_unfinished_run_is_not_committed_past.
    assert BatchConsumer._filter_committable_offsets is not Consumer._filter_committable_offsets
