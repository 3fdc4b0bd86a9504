"""The scripts in benchmarks/ run, on a small file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent.parent / "benchmarks"


def run(script: str, *args: str, code: int = 0) -> str:
    """What the script printed."""
    command = [sys.executable, str(SCRIPTS / script), *args]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (code, "")
    return ended.stdout


def test_smallest_epsilon(made_up: Path) -> None:
    first, whole = map(json.loads, run("smallest_epsilon.py", str(made_up), "--rows", "100", "--json").splitlines())
    assert (first["rows"], whole["rows"], whole["silent"]) == (100, 1500, True)
    assert 0 < whole["smallest_epsilon"] < 0.5


def test_regret() -> None:
    found = json.loads(run("regret.py", "--smoke", "--json"))
    example, correlated = found["worlds"]
    assert example["value"] == pytest.approx(23 / 14)  # the paper's own figure
    assert (example["profiles"], correlated["profiles"]) == (4, 64)
    u, gamma, n = example["largest_payoff"], example["gamma"], 2
    assert example["bound"][0] == pytest.approx((4 * u + 4 * n * gamma) * (3 * 100) ** 0.5 + 2 * u + 2 * n * gamma)
    assert all(found["claims"].values())
    for world in found["worlds"]:
        assert world["rounds"] == [100, 316, 1000]
        for kind in ("expected", "played", "reported"):
            assert len(world["regret"][kind]) == found["seeds"] == 3
            assert all(r < b for seed in world["regret"][kind] for r, b in zip(seed, world["bound"], strict=True))
        assert min(map(min, world["regret"]["expected"])) > 0  # the first rule is not the best one, and none is better
        assert world["growth"]["expected"]["mean"]["slope"] <= 0.55


def test_necessity() -> None:
    found = json.loads(run("necessity.py", "--smoke", "--json"))
    assert all(found["claims"].values())
    assert {tried["rounds"] for tried in found["runs"]} == {30, 300}
    for tried in found["runs"]:
        assert max(tried["low"], tried["high"]) >= tried["rounds"] / 6 - 1e-6
        assert max(tried["shuffled"]) < tried["rounds"] / 6


def test_a_claim_that_fails_says_so() -> None:
    printed = run("necessity.py", "--smoke", "--gamma", "1", "--schedule", '{"growth": 0.5}', code=1)
    assert "FAILS  growth 0.5: shuffled" in printed  # too small a penalty: the rule never leaves the fence
    assert "holds  growth 0.5: one of the orderings" in printed


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `bench`")
    scripts = (
        ("regret.py",),
        ("necessity.py", "--schedule", '{"growth": 0.5}'),
        ("solver.py", "--longest", "0"),
    )
    for script, *args in scripts:
        picture = tmp_path / f"{script}.png"
        printed = run(script, "--smoke", "--plot", str(picture), *args)
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert "over 0 s" in printed  # the paper's LP, in no time


def test_solver(made_up: Path) -> None:
    found = json.loads(run("solver.py", "--smoke", "--json", "--file", str(made_up)))
    assert all(found["claims"].values())
    assert not any("at most" in claim or "faster" in claim for claim in found["claims"])  # of times, it claims nothing
    for row in found["cold"]:
        assert not row["unfinished"]
        assert all(spent["cpu_s"] > 0 and spent["times"] == 7 for spent in row["spent"].values())
        assert row["off"] <= 1e-7
    assert {(row["world"], row["events"]) for row in found["warm"]} == {
        (world, events) for world in ("bookmakers", "independent") for events in (1, 10)
    }
    assert [row["feed"] for row in found["every"]] == ["rain", "generated, 50 profiles"]
    for often, seldom in zip(found["every"], found["certified"], strict=True):
        assert seldom["checked"] == often["events"] - 1
        assert seldom["solves"] < often["events"]
        assert 0 < seldom["lost"]["mean"] <= seldom["gap"]["mean"]  # the rule lags, by no more than it says
        assert -1e-9 <= seldom["strategy_lost"]["max"] <= seldom["lost"]["max"] + 1e-9
    few, many = ({row["k"] for row in found["size"] if row["experts"] == n} for n in (3, 12))
    assert few == many  # or the comparison would be one of numbers of profiles


def test_engine(made_up: Path) -> None:
    found = json.loads(run("engine.py", "--smoke", "--json", "--file", str(made_up)))
    schedules = ["every 1e+09", "certified 0.1", "growth 0.05", "every 1"]
    feeds = [("3 experts", 3), ("7 experts", 7), ("14 experts", 14), ("rain", 3)]
    assert [(r["feed"], r["experts"], r["schedule"]) for r in found] == [(*f, s) for f in feeds for s in schedules]
    for row in found:
        assert list(row["cpu_us"]) == ["decode", "decide", "learn", "encode", "changes"]
        assert min(row["cpu_us"].values()) > 0
        assert row["total_us"] == pytest.approx(sum(row["cpu_us"].values()))
    for never, *_, always in zip(*[iter(found)] * 4, strict=True):
        assert never["price_changes"] == 1 < always["price_changes"]


def test_hedge() -> None:
    found = json.loads(run("hedge.py", "--smoke", "--json"))
    assert found["below"] is True
    rows = {tuple(r[name] for name in ("driver", "states", "rate", "delay", "rounds")): r for r in found["rows"]}
    assert len(rows) == len(found["rows"]) == 36
    for (driver, *case, rounds), row in rows.items():
        assert [(c["seed"], c["below"], c["regret"] <= c["bound"]) for c in row["checks"]] == [
            (0, True, True),
            (1, True, True),
        ]
        assert all(0 < c["known"] <= rounds for c in row["checks"])
        if driver == "session":  # the engine's own words are those of the bare learner
            same_figures(row["checks"], rows["direct", *case, rounds]["checks"])


def same_figures(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    for a, b in zip(some, others, strict=True):
        assert a["known"] == b["known"]
        assert abs(a["regret"] - b["regret"]) + abs(a["bound"] - b["bound"]) < 1e-9


def test_real_feeds(made_up: Path, tmp_path: Path) -> None:
    page = tmp_path / "real-feeds.md"
    found = json.loads(run("real_feeds.py", str(made_up.parent), "--smoke", "--json", "--markdown", str(page)))
    assert [(cell["feed"], cell["payoffs"]) for cell in found["files"]] == [
        ("rain", name) for name in ("matching", "costly miss", "safe third")
    ]
    assert len(found["worlds"]) == 8 * 3
    for cell in found["files"] + found["worlds"]:
        lines = {line["name"]: line for line in cell["comparison"]["lines"]}
        judged = lines[cell["judged"]]
        assert judged["kind"] == "policy"
        assert cell["over_mean"] == pytest.approx(judged["payoff"]["mean"] - lines["mean forecast"]["payoff"]["mean"])
        assert cell["over_best"] == pytest.approx(judged["payoff"]["mean"] - lines["best expert"]["payoff"]["mean"])
        assert cell["not_worse"] == (cell["over_mean"] >= -max(0.003, cell["error"]))
        alone = [line["payoff"]["mean"] for name, line in lines.items() if name.startswith("expert:")]
        assert lines["best expert"]["payoff"]["mean"] == pytest.approx(max(alone))
    same_shape(page.read_text(encoding="utf-8"))


def test_the_page_of_real_feeds_has_the_shape_that_the_script_gives() -> None:
    same_shape((SCRIPTS.parent / "docs" / "real-feeds.md").read_text(encoding="utf-8"))


def same_shape(page: str) -> None:
    """A table a feed and two of judgements, every row as wide as its head; the claims at the end."""
    assert page.startswith("# Real feeds\n")
    *tables, claims = page.split("\n## ")[1:]
    assert len(tables) >= 3
    for table in tables:
        title, *lines = table.strip().splitlines()
        head, rule, *rows = [line.strip("| ").split(" | ") for line in lines if line]
        assert set(rule) == {"---"}
        assert rows
        assert {len(row) for row in rows} == {len(head)}
        if "events" in title:
            assert {"robust", "hedge", "mean forecast", "median forecast", "best expert"} <= {row[0] for row in rows}
    assert [table.split(" of ")[0] for table in tables[-2:]] == ["The judgement"] * 2
    assert claims.startswith("The claims")


def test_coarsening(made_up: Path) -> None:
    found = json.loads(run("coarsening.py", str(made_up.parent), "--smoke", "--json"))
    assert {row["levels"] for row in found["rows"]} >= {"11", "2", "3", "6", "21", "6 quantiles"}
    assert all(row["more"] == row["error"] == 0 for row in found["rows"] if row["levels"] == "11")
    assert {row["policy"] for row in found["rows"]} >= {"robust", "hedge"}


def test_hybrid() -> None:
    found = json.loads(run("hybrid.py", "--smoke", "--json"))
    assert all(found["claims"].values())
    assert not any("us" in claim.split() for claim in found["claims"])  # of times, it claims nothing
    robust, hybrid = found["policies"]["robust"], found["policies"]["hybrid"]
    assert robust["state_bytes"] == 0 < hybrid["state_bytes"]
    assert robust["waiting_bytes"] < hybrid["waiting_bytes"]
    assert hybrid["median_us"] > 0


@pytest.mark.timeout(150)
def test_hostile() -> None:
    found = json.loads(run("hostile.py", "--hostile", "480", "--good", "80"))
    assert (found["same_actions"], found["worker_lived"], found["sessions_held"]) == (True, True, 24)
    assert {"bad_json", "bad_event", "bad_spec", "limit", "spec_change", "unknown_session"} <= set(
        found["dead_letters"]
    )
