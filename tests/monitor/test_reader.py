"""The reader against a real broker: full at the start, live after it, and honest about Kafka and the workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from stream_agg.embedded import Broker
from stream_agg.errors import RefusedError, UnavailableError
from stream_agg.events import Action, Forecast, RuleStamp, State
from stream_agg.monitor import reader as module
from stream_agg.monitor.alarms import alarms
from stream_agg.monitor.reader import Reader, watching
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec
from stream_agg.worker.broker import create_topics
from stream_agg.worker.publish import AtLeastOnce
from stream_agg.worker.settings import Settings
from stream_agg.worker.wire import Applied, Encoder, Outputs, Row

AT = Applied(0, 0, 0)

SPEC = {
    "session": "paris-rain",
    "experts": {"gfs": {"levels": 11}, "icon": {"levels": 11}},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
    "feedback": "state",
}


def outputs(settings: Settings, rounds: int) -> list[Row]:
    """All that a session publishes over so many rounds, and a dead letter."""
    session, encoder, rows = Session(SessionSpec.from_dict(SPEC)), Encoder(settings), []
    for k in range(rounds):
        time, level = f"2026-11-21T06:00:{k % 60:02}Z", (k % 11) / 10
        record = {"session": "paris-rain", "event": f"e{k}", "time": time}
        forecast = Forecast.from_record({**record, "forecasts": {"gfs": level, "icon": level}})
        rows += (encoder.row(output, AT) for output in session.forecast(forecast))
        _, known = session.state(State.from_record({**record, "state": int(k % 11 > 5)}))
        rows += [encoder.row(output, AT) for output in known]  # type: ignore[arg-type]
    headers = (("topic", "states"), ("partition", "1"), ("offset", "7"), ("reason", "late"), ("detail", "too late"))
    return [*rows, Row(settings.topic_dead_letters, "paris-rain", b"{}", headers)]


def action(settings: Settings, session: str, round_: int) -> Row:
    stamp = RuleStamp(1, 1, 0.0)
    return Encoder(settings).row(
        Action(session, f"e{round_}", "2026-11-21T06:00:00Z", round_, {}, "go", {"go": 1.0}, "robust", stamp, 0, 1),
        AT,
    )


async def publish(settings: Settings, rows: list[Row]) -> None:
    publisher = AtLeastOnce(settings)
    await publisher.start()
    try:
        await publisher.publish(0, Outputs("", 0, rows))
    finally:
        await publisher.stop()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not done():  # noqa: ASYNC110 # a view is polled, as the page does
            await asyncio.sleep(0.02)


async def test_the_view_is_full_at_the_start_and_live_after_it(fresh: Callable[..., Settings]) -> None:
    settings = await asyncio.to_thread(fresh)
    rows = outputs(settings, 100)
    await publish(settings, rows)
    async with watching(settings) as reader:
        session = reader.view.sessions["paris-rain"]
        assert session.latest is not None
        assert session.report is not None
        assert session.rule is not None
        assert session.latest.round == 100
        reports = [orjson.loads(row.value) for row in rows if row.topic == settings.topic_regret]
        assert len(session.points) == len({(r["round"], r["realized"]["states"]) for r in reports}) > 40
        assert sum(map(sum, session.report.calibration["gfs"].values())) == session.report.point.states
        assert len(session.rule.levels["icon"]) == 11
        assert reader.view.reasons == {"late": 1}
        assert reader.view.dead_letters[0].place == "states/1/7"
        await publish(settings, [action(settings, "oslo", 1)])
        await until(lambda: "oslo" in reader.view.sessions)
        assert reader.view.unreadable == 0


async def test_only_the_latest_records_are_read_back(
    fresh: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await asyncio.to_thread(fresh)
    for k in range(1, 6):  # batches of their own, so that offsets are what they seem
        await publish(settings, [action(settings, f"s{k}", 1)])
    monkeypatch.setitem(module.LOOK_BACK, "action", 1)
    async with watching(settings) as reader:
        seen = set(reader.view.sessions)
    assert "s5" in seen
    assert len(seen) <= settings.partitions * 2  # the embedded broker tells a topic's end one batch early


async def test_lag_grows_with_the_input_while_no_worker_runs(fresh: Callable[..., Settings]) -> None:
    settings = await asyncio.to_thread(fresh)
    async with watching(settings) as reader:
        await until(reader.measured.is_set)
        assert (reader.view.progress.lag, reader.view.progress.workers) == (0, 0)
        for k in range(3):
            await publish(settings, [Row(settings.topic_forecasts, "rain", b"%d" % k, ())])
        await until(lambda: reader.view.progress.lag == 3)
        words = [alarm.text for alarm in alarms(reader.view, reader.clock())]
    assert words == ["no worker is running; 3 input records wait"]


async def test_a_broker_that_goes_away_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEASURE_S", 0.1)
    with Broker() as broker:
        settings = replace(Settings(), brokers=broker.address, partitions=1)
        await create_topics(settings)
        async with watching(settings) as reader:
            await until(reader.measured.is_set)
            assert reader.view.progress.away is None
            await asyncio.to_thread(broker.stop)
            await until(lambda: reader.view.progress.away is not None)
            assert alarms(reader.view, reader.clock())[0].text.startswith("Kafka gives no answer since")


async def test_no_broker_and_no_topics_are_one_line_each(local: Settings) -> None:
    with pytest.raises(UnavailableError, match=r"no Kafka broker answers at 127\.0\.0\.1:1 "):
        await Reader(replace(Settings(), brokers="127.0.0.1:1")).start()
    with pytest.raises(RefusedError, match="nobody-made-this"):
        await Reader(replace(local, topic_actions="nobody-made-this")).start()


async def test_records_that_are_no_json_are_counted(fresh: Callable[..., Settings]) -> None:
    settings = await asyncio.to_thread(fresh)
    values = [b"{", b"\xff\xfe", b"[1, 2]", b""]
    await publish(settings, [Row(settings.topic_actions, f"s{k}", value, ()) for k, value in enumerate(values)])
    async with watching(settings) as reader:
        assert reader.view.unreadable == len(values)
        assert not reader.view.sessions
