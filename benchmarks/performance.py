"""Writes docs/performance.md and its figures from what throughput.py, latency.py and scale.py found (`--json`).

python benchmarks/performance.py --from DIR     DIR/throughput.json, latency.json, scale.json are taken over first
python benchmarks/performance.py                from those of docs/performance
python benchmarks/performance.py --check        exit code 1 if the page is not what they give
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import latency
import scale
import throughput

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
FOUND = PAGE.with_suffix("")
SCRIPTS = {"throughput": throughput, "latency": latency, "scale": scale}

INTRO = """# Performance

Written by `benchmarks/performance.py` from what the scripts named below found; not by hand. Broker, Redis and the
program that is measured share one machine: events/s are what was left to it, microseconds of processor time an event
(user and system, all threads of its process) are what it takes.
"""

CONCERNS = {
    "sessions": "Sessions: one worker on one core, events of the sessions in turn, after the first three of each",
    "profiles": "Profiles: one session of six experts; `solve_s` is one solve on all of them, left out of `cpu_us`; "
    "`bytes` is memory a profile, `held_bytes` what is stored of it",
    "experts": "Experts at 11 levels",
    "decisions": "Open decisions: memory of one, and what is stored of it",
    "workers": "Partitions and workers, each worker on a core of its own",
    "backlog": "A backlog, drained by one worker",
    "replay": "`stream-agg replay` of a CSV: 3 experts, 11 levels, schedule certified 0.1; `after_start` without the "
    "start of the program",
}


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page."""
    return "\n".join([INTRO, _throughput(found["throughput"]), _latency(found["latency"]), _scale(found["scale"])])


def _throughput(found: Mapping[str, Any]) -> str:
    ours = found["rows"]["stream_agg"]
    rows = [
        {
            "program": name,
            "events/s": r["events_per_s"],
            "slowest": r["slowest"],
            "fastest": r["fastest"],
            "CPU us/event": r["cpu_us"],
            "times ours": r["cpu_us"] / ours["cpu_us"],
            "of a core": r["core"],
            "peak MB": r["peak_mb"],
        }
        for name, r in found["rows"].items()
    ]
    told = (
        f"`benchmarks/throughput.py`: {found['events']:,} events of {found['sessions']} sessions,\n"
        f"{found['partitions']} partitions; medians, rounds: {found['rounds']}. Every program decodes, counts in the\n"
        "session, decides by a rule, sends the action and keeps its state durably; stream_agg also counts profiles,\n"
        "proves a gap and keeps the decision for its state."
    )
    return _section("Beside its peers", told, found, [rows], "throughput")


def _latency(found: Mapping[str, Any]) -> str:
    names = ("program", "rate", "events", "p50_ms", "p99_ms", "p99.9_ms", "cpu_us")
    rows = [{name: row[name] for name in names} for row in found["rows"]]
    echo = {row["rate"]: row for row in found["rows"] if row["program"] == "echo"}
    for row in rows:
        row["p50 by echo's"] = row["p50_ms"] / max(echo[row["rate"]]["p50_ms"], 1)  # whole milliseconds
        row["p99 by echo's"] = row["p99_ms"] / max(echo[row["rate"]]["p99_ms"], 1)
    told = (
        f"`benchmarks/latency.py`: event appended to action appended by the broker's clock, {found['seconds']:g} s of "
        f"each load (`rate`, events/s), {found['sessions']} sessions. `echo` is a bare aiokafka loop on that broker."
    )
    return _section("Latency", told, found, [rows], "latency")


def _scale(found: Mapping[str, Any]) -> str:
    told, tables = "`benchmarks/scale.py`, microseconds of processor time an event.", []
    for name, about in CONCERNS.items():
        if name in found["parts"]:
            tables.append(f"{about}:\n\n{_table([_shown(row) for row in found['parts'][name]])}")
    return _section("Growth", told, found, tables, "scale")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row; of a list, its ends."""
    shown = {name: value for name, value in row.items() if not isinstance(value, (list, dict))}
    return shown | {f"{n}, first and last": f"{_text(v[0])}, {_text(v[-1])}" for n, v in row.items() if _is_list(v)}


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _section(
    title: str, told: str, found: Mapping[str, Any], tables: Sequence[str | list[dict[str, Any]]], name: str
) -> str:
    at = found["machine"]
    packages = ", ".join(f"{package} {version}" for package, version in at["packages"].items())
    machine = (
        f"{at['day']}, {at['processor']}, {at['cores']} cores, {at['memory_gb']:g} GB, {at['system']}, load "
        f"{at['load']:.1f} when it began, Python "
        f"{at['python']}, {at['servers']}; {packages}."
    )
    claims = "\n".join(f"- {'holds' if held else '**fails**'}: {claim}" for claim, held in found["claims"].items())
    texts = [table if isinstance(table, str) else _table(table) for table in tables]
    picture = f"![{title}](performance/{name}.png)"
    return "\n\n".join([f"## {title}", told, *texts, claims, picture, machine]) + "\n"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> int:
    """Take over, write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="where the JSONs are")
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    source = args.source or FOUND
    absent = [f"{name}.json" for name in SCRIPTS if not (source / f"{name}.json").exists()]
    if absent:
        print(f"{source} has no {', '.join(absent)}: run the script with --json > {absent[0]}", file=sys.stderr)
        return 2
    found = {name: json.loads((source / f"{name}.json").read_text()) for name in SCRIPTS}
    text = page(found)
    if args.check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    FOUND.mkdir(exist_ok=True)
    for name, script in SCRIPTS.items():
        if source != FOUND:
            shutil.copy(source / f"{name}.json", FOUND)
        _draw(script, found[name], FOUND / f"{name}.png")
    PAGE.write_text(text, encoding="utf-8")
    return 0


def _draw(script: Any, found: Mapping[str, Any], file: Path) -> None:
    from matplotlib.figure import Figure  # here, so that --check needs no matplotlib

    figure = Figure(figsize=(11, 5), dpi=110, layout="constrained")
    script.draw(figure, found)
    figure.savefig(file)


if __name__ == "__main__":
    sys.exit(main())
