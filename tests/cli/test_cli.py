"""The commands as a user meets them: what they print, their exit codes, one line for every mistake."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from typing import Any

import orjson
import pytest

from stream_agg.cli import run
from stream_agg.replay.source import Source

BARE = ["--levels", "11", "--action", "stay=1,0", "--action", "prepare=0,3"]


def stream_agg(*args: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "stream_agg", *args], capture_output=True, text=True, timeout=120, **kwargs
    )


def closed_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on the error stream."""
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_two_replays_write_the_same_bytes(made_up: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for out in ("a", "b"):
        assert run(["replay", str(made_up), *BARE, "--delay", "P7D", "--out", str(tmp_path / out)]) == 0
    for name in ("actions.jsonl", "regret.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    actions = (tmp_path / "a" / "actions.jsonl").read_bytes().splitlines()
    assert [orjson.loads(a)["round"] for a in actions] == list(range(1, 1501))
    assert "<html" in (tmp_path / "a" / "report.html").read_text()
    assert "1,500" in capsys.readouterr().out


def test_a_feed_that_changes_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed = tmp_path / "feed.csv"
    for late, told in ((0.4, False), (0.9, True)):
        rows = [f"e{i},2026-01-01,,{0.4 if i < 100 else late}" for i in range(200)]
        feed.write_text("\n".join(["event_id,time,outcome,gfs", *rows]))
        assert run(["replay", str(feed), *BARE]) == 0
        said = capsys.readouterr().out
        assert ("Expert gfs reported otherwise in rounds 97 to 192 than before (distance 0.96" in said) == told
        assert ("first alarm at round 128" in said) == told


def test_replay_prints_its_final_report_as_json(made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(made_up), *BARE, "--json", "--set", "gamma=4", "--session", "mine"]) == 0
    report = orjson.loads(capsys.readouterr().out)
    assert (report["session"], report["actions"], report["robust"]["gamma"]) == ("mine", 1500, 4.0)


def test_a_comparison_is_printed_and_is_the_same_in_json_and_on_the_page(
    made_up: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["replay", str(made_up), *BARE, "--delay", "P1D", "--compare"]
    assert run([*args, "--json", "--out", str(tmp_path)]) == 0
    record = orjson.loads(capsys.readouterr().out)["comparison"]
    known = sum(row.outcome is not None for row in Source(made_up).rows())
    assert (record["events"], record["times"], record["block"]) == (known, 125, 5)
    names = [line["name"] for line in record["lines"]]
    assert {"robust", "hedge", "mean forecast", "expert:gfs", "best expert"} <= set(names)
    assert run(args) == 0
    printed = capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    for line in record["lines"]:
        assert re.search(rf"{re.escape(line['name'])}.* {line['payoff']['mean']:.4f} ", printed)
        assert f"<td>{escape(line['name'])}</td>" in page


def test_without_outcomes_there_is_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.csv").write_text("event_id,time,outcome,a\nx,2026-01-01,,0.3\n")
    assert run(["replay", str(tmp_path / "f.csv"), *BARE, "--compare"]) == 2
    assert "nothing to compare" in complaint(capsys)


def test_a_dry_run_decides_nothing(made_up: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(made_up), *BARE, "--dry-run", "--out", str(tmp_path / "out")]) == 0
    assert "1,500 rows, 3 experts" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_rows_that_do_not_fit_become_dead_letters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.csv").write_text("event_id,time,outcome,a\nx,2026-01-01,1,0.31\ny,2026-01-02,0,0.5\n")
    args = ["replay", str(tmp_path / "f.csv"), *BARE, "--set", "off_level=reject", "--out", str(tmp_path / "out")]
    assert run(args) == 0
    assert "not used: 1 x off_level" in capsys.readouterr().err
    dead = orjson.loads((tmp_path / "out" / "dead-letters.jsonl").read_bytes().splitlines()[0])
    assert (dead["reason"], dead["event"]) == ("off_level", "x")


SPEC: dict[str, Any] = {
    "session": "example",
    "experts": {"one": {"levels": [1 / 3, 2 / 3]}, "two": {"levels": [1 / 6, 3 / 4]}},
    "actions": {"a1": [1, 0], "a2": [0, 3]},
}


def test_solve_gives_the_numbers_of_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.json").write_bytes(orjson.dumps(SPEC))
    counts = [(1 / 3, 1 / 6, 11), (1 / 3, 3 / 4, 10), (2 / 3, 1 / 6, 7), (2 / 3, 3 / 4, 14)]
    (tmp_path / "n.csv").write_text("one,two,count\n" + "".join(f"{a},{b},{n}\n" for a, b, n in counts))
    entries = [{"profile": {"one": a, "two": b}, "count": n} for a, b, n in counts]
    (tmp_path / "n.json").write_bytes(orjson.dumps(entries))
    for name in ("n.csv", "n.json"):
        assert run(["solve", str(tmp_path / "spec.json"), str(tmp_path / name), "--prior", "0.5", "--json"]) == 0
        got = orjson.loads(capsys.readouterr().out)
        assert got["value"] == pytest.approx(23 / 14)
        assert (got["robust"], got["bayesian"]) == (pytest.approx(69), pytest.approx(70))
    assert run(["solve", str(tmp_path / "spec.json"), str(tmp_path / "n.csv")]) == 0
    assert "1.642857 per round" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("counts", "gamma", "penalty", "why"),
    [
        # eq. penalized_SP at gamma 1/2: the worst case is 29/28 with what violating calibration costs
        ([(1 / 3, 1 / 6, 11), (1 / 3, 3 / 4, 10), (2 / 3, 1 / 6, 7), (2 / 3, 3 / 4, 14)], 0.5, 2 / 7, "a larger gamma"),
        # one says 1/3 and the other 3/4: somebody is wrong by 5/12 in all
        ([(1 / 3, 3 / 4, 100)], 5.0, 25 / 12, "no states calibrate the counts"),
    ],
)
def test_solve_says_what_of_the_value_is_no_payoff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], counts: list[Any], gamma: float, penalty: float, why: str
) -> None:
    (tmp_path / "spec.json").write_bytes(orjson.dumps(SPEC))
    (tmp_path / "n.csv").write_text("one,two,count\n" + "".join(f"{a},{b},{n}\n" for a, b, n in counts))
    args = ["solve", str(tmp_path / "spec.json"), str(tmp_path / "n.csv"), "--set", f"gamma={gamma}"]
    assert run([*args, "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["penalty"] == pytest.approx(penalty)
    assert run(args) == 0
    said = capsys.readouterr().out
    assert f"value contains a penalty of {penalty:.6f}, which is no payoff: " in said
    assert why in said
    assert run([*args[:-1], "gamma=100", "--set", "epsilon=0.25"]) == 0
    assert "penalty" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["replay", "nowhere.csv", *BARE], "nowhere.csv"),
        (["replay", "rain.csv"], "--spec FILE, or --levels"),
        (["replay", "rain.csv", "--levels", "11", "--action", "stay"], "NAME=U0,U1"),
        (["replay", "rain.csv", *BARE, "--delay", "1 week"], "--delay"),
        (["replay", "rain.csv", *BARE, "--set", "gamma=-1"], "gamma: expected a positive number"),
        (["replay", "rain.csv", *BARE, "--brokers", "x:1"], "--through-kafka"),
        (["replay", "bad.csv", *BARE], "bad.csv line 3 column a"),
        (["replay", "head.csv", *BARE], "head.csv"),
        (["replay", "rain.csv", "--spec", "spec.json"], "no column for expert"),
        (["replay", "rain.csv", "--spec", "broken.json"], "broken.json: not JSON"),
        (["replay", "rain.csv", "--spec", "faults.json"], "epsilon: expected a number"),
        (["solve", "spec.json", "rain.csv"], "no column one, two, count"),
        (["worker", "--brokers", "nonsense"], "STREAM_AGG_BROKERS: 'nonsense' is not host:port"),
        (["worker", "--redis-url", "http://x"], "STREAM_AGG_REDIS_URL"),
        (["monitor", "--web", "--bind", "0.0.0.0"], "would be open to a network: set STREAM_AGG_MONITOR_TOKEN"),  # noqa: S104
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    args: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rain.csv").write_text("event_id,time,outcome,a\nx,2026-01-01,1,0.3\n")
    Path("bad.csv").write_text("event_id,time,outcome,a\nx,2026-01-01,1,0.3\ny,2026-01-02,1,high\n")
    Path("head.csv").write_text("id,when,what\n1,2,3\n")
    Path("broken.json").write_text("{")
    Path("faults.json").write_bytes(orjson.dumps({**SPEC, "epsilon": 7, "seed": "x"}))
    Path("spec.json").write_bytes(orjson.dumps(SPEC))
    assert run(args) == 2
    line = complaint(capsys)
    assert says in line
    assert line.startswith("stream-agg: ")
    if "faults.json" in args:
        assert "seed: expected a whole number" in line


@pytest.mark.parametrize(
    "command", [["worker"], ["monitor"], ["monitor", "--web"], ["replay", "FILE", *BARE, "--through-kafka"]]
)
def test_no_broker_is_one_line_and_exit_code_1(command: list[str], made_up: Path) -> None:
    args = [str(made_up) if word == "FILE" else word for word in command]
    ended = stream_agg(*args, "--brokers", f"127.0.0.1:{closed_port()}")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert "no Kafka broker answers at 127.0.0.1" in ended.stderr


def test_no_redis_is_one_line_and_exit_code_1(fresh: Any) -> None:
    settings = fresh()
    env = {
        **os.environ,
        **{f"STREAM_AGG_{f.upper()}": getattr(settings, f) for f in settings.__slots__ if f.startswith("topic_")},
        "STREAM_AGG_BROKERS": settings.brokers,
        "STREAM_AGG_REDIS_URL": f"redis://:hush@127.0.0.1:{closed_port()}/0",
    }
    ended = stream_agg("worker", env=env)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert "Redis at 127.0.0.1" in ended.stderr
    assert "hush" not in ended.stderr


def test_missing_topics_are_named(local: Any) -> None:
    env = {**os.environ, "STREAM_AGG_TOPIC_STATES": "nobody-made-this", "STREAM_AGG_BROKERS": local.brokers}
    ended = stream_agg("worker", "--redis-url", local.redis_url, env=env)
    assert ended.returncode == 1
    assert "nobody-made-this" in ended.stderr
    assert "--create-topics" in ended.stderr


def test_print_config_masks_secrets(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_AGG_MONITOR_TOKEN", "hush")
    assert run(["worker", "--redis-url", "redis://user:hush@127.0.0.1:6379/0", "--print-config"]) == 0
    shown = orjson.loads(capsys.readouterr().out)
    assert shown["redis_url"] == "redis://user:***@127.0.0.1:6379/0"
    assert shown["monitor_token"] == "***"  # noqa: S105


@pytest.mark.parametrize("command", ["demo", "worker", "replay", "monitor", "solve"])
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"stream-agg {command}" in capsys.readouterr().out


def test_the_demo_ends_with_a_regret_table() -> None:
    started = time.monotonic()
    ended = stream_agg("demo", "--for", "8", "--no-browser")
    assert ended.returncode == 0, ended.stderr
    assert "robust regret" in ended.stdout
    for session in ("lima-fog", "oslo-frost", "paris-rain"):
        assert session in ended.stdout
    assert "monitor page: http://127.0.0.1:" in ended.stdout
    first = float(ended.stdout.split("first action after ")[1].split()[0])
    assert 0 < first < 15, ended.stdout
    assert time.monotonic() - started < 60


def test_ctrl_c_ends_the_demo_in_order() -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "stream_agg", "demo", "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "round" in line:
            process.send_signal(2)
            break
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait(60) == 0
    assert "Final reports" in rest


def descendants(pid: int) -> set[int]:
    children = {int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return children.union(*(descendants(child) for child in children))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks processes up in /proc, as Linux has it")
def test_a_killed_demo_leaves_no_process_behind() -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "stream_agg", "demo", "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "round" in line:
            break
    family = descendants(process.pid)
    assert len(family) == 5  # a guard and its server twice, and the worker
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 20
    while left := {pid for pid in family if alive(pid)}:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
