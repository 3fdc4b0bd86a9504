"""The solver against the paper's own LP and HiGHS, warm and cold; what the engine costs an event, and gives up for it.

    python benchmarks/solver.py [--longest 60] [--file FORECASTS.csv.gz ...] [--json] [--plot FILE] [--smoke]

Every time is processor time of this process unless it says wall; medians of seven where work takes less than 2 s.
cold       one program from arrays: the paper's LP (eq. RMM_LP_dualized) by scipy's linprog, on seen profiles only and
           sparse, without the time to build it, for `--longest` seconds at most; HiGHS on the reduced program (r rows);
           the compiled dual ascent on the same; `sa.solve` from counts by levels, conversions and epsilon_min included.
           `off`: the largest difference between their values per round.
warm       1, 10, 1,000 more events counted, solved, and the prices compared with a rule's; `new rule`: with a rule made
           of them and its bounds computed afresh. HiGHS solves the reduced program on the same counts from scratch.
decide     the mixed action at a profile that was never seen.
every      a session that solves at every event; its parts: events that bring a report, the same session without solves
           (it keeps a gap instead), and the solver alone, new rules included where prices change. `pivoted`: share of
           the events that needed a pivot.
certified  a session that solves when its gap asks for it. `lost`: exact value of the rounds so far less what the prices
           in force prove, per round, before every event; `late`: after the first tenth; `strategy`: less what the
           strategy earns against the worst rho, at a sample of events. The published gap has to cover it.
size       the engine with 12 experts against 3, on equally many different profiles.
Feeds: the files given (or flusight_trend_7m.csv.gz from the folder STREAM_AGG_DATA, if there), and generated ones.
The smoke form claims no times.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _cold import SOLVERS, colds
from _figure import Row, options, show
from _stream import certified, every, size
from _warm import cases, decide, warm
from _worlds import Feed, generated, latent, real, repeating

AGREE = 1e-7
"""Values per round of solvers with tolerances of 1e-7 and 1e-9."""

Found = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """How large it is. `cold`: (experts, k). `rounds`: counted before the warm `batches`, size -> how many a run.
    `events` over a `pool` of profiles; at most so many `rows` of a file; `sample`: of events whose strategy is tried;
    `size`: profiles, events."""

    cold: tuple[tuple[int, int], ...]
    rounds: int
    batches: Mapping[int, int]
    pool: int
    events: int
    rows: int | None
    sample: int
    size: tuple[int, int]


FULL = Form(
    cold=((3, 600), (3, 1000), (6, 1000), (6, 3000), (6, 10_000), (6, 30_000), (6, 100_000)),
    rounds=100_000,
    batches={1: 300, 10: 60, 1000: 4},
    pool=2000,
    events=100_000,
    rows=None,
    sample=200,
    size=(1000, 30_000),  # three experts of 11 levels have 1,331 profiles
)
SMOKE = Form(((3, 200), (6, 300)), 300, {1: 4, 10: 2}, 50, 150, 150, 5, (50, 100))

PARTS = {"without solving": "quiet_us", "solver alone": "solver_us", "with a report": "reports_us", "every 1": "cpu_us"}

LEGEND: Mapping[str, Any] = {"fontsize": "x-small", "loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 2}


def measure(form: Form, files: Sequence[Path], longest_s: float) -> dict[str, Any]:
    """All sections."""
    warm(cases(10)[0], {1: 1})  # nothing is compiled, loaded or imported while a clock runs
    every(generated("", 3, 11, latent(3, 11), 100))
    feeds: list[Feed] = [real(path, form.rows) for path in files]
    profiles = repeating(latent(6, 11), form.pool)
    feeds.append(generated(f"generated, {form.pool} profiles", 6, 11, profiles, form.events))
    return {
        "longest_s": longest_s,
        "cold": colds(form.cold, longest_s),
        "warm": [row for case in cases(form.rounds) for row in warm(case, form.batches)],
        "decide": [decide(n) for n in (3, 6, 12)],
        "every": [every(feed) for feed in feeds],
        "certified": [certified(feed, 0.1, form.sample) for feed in feeds],
        "size": size((3, 12), *form.size),
    }


def agreements(found: Found) -> dict[str, bool]:
    """What holds on any machine."""
    held = {}
    for row in found["cold"]:
        about = f"{row['world']}, {row['experts']} experts, k {row['k']}"
        held[f"cold, {about}: values within {AGREE:g} of each other"] = row["off"] <= AGREE
    for row in found["warm"]:
        about = f"{row['world']}, {row['experts']} x {row['levels']}, {row['events']} new"
        held[f"warm, {about}: value within {AGREE:g} of HiGHS's"] = row["off"] <= AGREE
    for row in found["certified"]:
        held[f"certified, {row['feed']}: never gave up more than the published gap"] = row["above"] <= 1e-9
        held[f"certified, {row['feed']}: no strategy earns less than its prices prove"] = row["short"] <= AGREE
    return held


def targets(found: Found) -> dict[str, bool]:
    """What is claimed of times, in the full form."""
    held = {}
    wanted = {(3, 1000): ("ascent", 60), (6, 1000): ("ascent", 20), (6, 10_000): ("ascent", 100)}
    wanted |= {(3, 600): ("solve", 20), (6, 3000): ("solve", 20)}
    for row in found["cold"]:
        solver, times = wanted.get((row["experts"], row["k"]), ("", 0))
        if solver:
            text = f"cold, {row['world']}, {row['experts']} experts, k {row['k']}: {solver} {times} times faster"
            held[f"{text} than the paper's LP"] = ratio(row, solver) >= times
    for row in found["warm"]:
        most = 2000 if row["k"] >= 50_000 else 30
        if row["events"] == 1 and (row["world"] == "bookmakers" or most == 2000):
            about = f"warm, {row['world']}, {row['experts']} x {row['levels']}, k {row['k']}"
            held[f"{about}: at most {most} us after one event"] = row["cpu_us"] <= most
    for row in found["decide"]:
        held[f"decide, {row['experts']} experts: at most 3 us"] = row["cpu_us"] <= 3
    for row in found["every"]:
        held[f"every, {row['feed']}: at most 60 us an event"] = row["cpu_us"] <= 60
    few, many = (
        {row["schedule"]: row["cpu_us"] for row in found["size"] if row["experts"] == experts} for experts in (3, 12)
    )
    for schedule in few:
        held[f"size, {schedule}: 12 experts at most 12/3 of 3"] = many[schedule] <= 12 / 3 * few[schedule]
    return held


def ratio(row: Row, solver: str) -> float:
    """How many times faster than the paper's LP, at least."""
    return float(row["spent"]["paper"]["cpu_s"] / row["spent"][solver]["cpu_s"])


def tables(found: Found) -> dict[str, list[Row]]:
    """One a section."""
    long = f"over {found['longest_s']:g} s"
    return {
        "cold: ms of the processor (wall)": [_cold(row, long) for row in found["cold"]],
        "warm: us of the processor (wall) for a batch of new events; HiGHS from scratch, in ms": [
            _warm(row) for row in found["warm"]
        ],
        "decide: us at an unseen profile": found["decide"],
        "every: us an event, engine included": found["every"],
        "certified: what it costs and what it gives up, per round": [_certified(row) for row in found["certified"]],
        "size: us an event": found["size"],
    }


def _cold(row: Row, long: str) -> Row:
    line = {"world": row["world"], "experts": row["experts"], "k": row["k"], "t": row["rounds"]}
    for name in SOLVERS:
        spent = row["spent"][name]
        cpu, wall = spent["cpu_s"] * 1e3, spent["wall_s"] * 1e3
        line[name] = long if name in row["unfinished"] else f"{cpu:.4g} ({wall:.4g})"
    at_least = "> " if row["unfinished"] else ""
    for name in SOLVERS[1:]:
        line[f"paper/{name}"] = f"{at_least}{ratio(row, name):.1f}"
    return line | {"off": row["off"]}


def _warm(row: Row) -> Row:
    highs = row["highs"]
    return {
        "world": row["world"],
        "shape": f"{row['experts']} x {row['levels']}",
        "k": row["k"],
        "new events": row["events"],
        "mean": f"{row['cpu_us']:.4g} ({row['wall_us']:.4g})",
        "median": f"({row['median_us']:.4g})",
        "pivots": row["pivots"],
        "pivoted": row["pivoted"],
        "new rule": row["rule_us"],
        "HiGHS": f"{highs['cpu_s'] * 1e3:.4g} ({highs['wall_s'] * 1e3:.4g})",
        "off": row["off"],
    }


def _certified(row: Row) -> Row:
    return {
        "feed": row["feed"],
        "cpu_us": row["cpu_us"],
        "wall_us": row["wall_us"],
        "reports_us": row["reports_us"],
        "solves": row["solves"],
        "checked": row["checked"],
        "lost: mean": row["lost"]["mean"],
        "max": row["lost"]["max"],
        "late max": row["lost"]["late_max"],
        "gap: mean": row["gap"]["mean"],
        "sampled": row["sampled"],
        "strategy lost: mean": row["strategy_lost"]["mean"],
        "strategy: max": row["strategy_lost"]["max"],
        "above the gap": row["above"],
    }


def draw(figure: Any, found: Found) -> None:
    """Cold times against k, both axes logarithmic; warm times by stream; the parts of an event's time by feed."""
    cold, warm, event = figure.subplots(1, 3)
    labels = ("the paper's LP (linprog)", "reduced LP (HiGHS)", "reduced, compiled ascent", "sa.solve, all included")
    experts = max(row["experts"] for row in found["cold"])
    for world, line in (("latent", "-"), ("independent", "--")):
        rows = [row for row in found["cold"] if (row["world"], row["experts"]) == (world, experts)]
        for colour, (name, label) in enumerate(zip(SOLVERS, labels, strict=True)):
            shown = [row for row in rows if name not in row["unfinished"]]
            times = [row["spent"][name]["cpu_s"] for row in shown]
            style: dict[str, Any] = {"label": label} if line == "-" else {}
            cold.plot([row["k"] for row in shown], times, f"C{colour}{line}o", markersize=4, **style)
    cold.set(xscale="log", yscale="log", xlabel="k, seen profiles", ylabel="s", title=f"cold, {experts} experts")
    cold.legend(title="solid: latent, dashed: independent", title_fontsize="small", **LEGEND)
    rows = found["warm"]
    at = range(len(rows))
    warm.barh([i - 0.2 for i in at], [row["cpu_us"] / 1e6 for row in rows], 0.4, color="C2", label="ascent, warm")
    warm.barh([i + 0.2 for i in at], [row["highs"]["cpu_s"] for row in rows], 0.4, color="C1", label="HiGHS, cold")
    names = [f"{row['world']} {row['experts']}x{row['levels']}, {row['events']} new" for row in rows]
    warm.set(xscale="log", xlabel="s a solve", title="after new events", yticks=at)
    warm.set_yticklabels(names, fontsize="small")
    warm.invert_yaxis()
    warm.legend(**LEGEND)
    feeds = [row["feed"] for row in found["every"]]
    costs = {label: [row[field] for row in found["every"]] for label, field in PARTS.items()}
    costs["certified 0.1"] = [row["cpu_us"] for row in found["certified"]]
    for i, (label, values) in enumerate(costs.items()):
        event.bar([j + i / 6 for j in range(len(feeds))], values, 1 / 7, label=label)
    event.set(yscale="log", ylabel="us an event", title="the engine", xticks=[j + 1 / 3 for j in range(len(feeds))])
    event.set_xticklabels([feed.replace(", ", "\n") for feed in feeds], fontsize="small")
    event.legend(**LEGEND)


def main() -> int:
    """Measure, show, and say by the exit code whether all claims held."""
    parser = options(__doc__)
    parser.add_argument("--longest", type=float, default=60.0, metavar="SECONDS", help="limit of the paper's LP")
    parser.add_argument("--file", type=Path, action="append", help="real forecasts to feed (may be repeated)")
    args = parser.parse_args()
    form = SMOKE if args.smoke else FULL
    known = Path(os.environ.get("STREAM_AGG_DATA", os.devnull)) / "flusight_trend_7m.csv.gz"
    found = measure(form, args.file or ([known] if known.exists() else []), args.longest)
    found["claims"] = agreements(found) if args.smoke else agreements(found) | targets(found)
    return show(args, found, tables(found), draw)


if __name__ == "__main__":
    sys.exit(main())
