"""`stream-agg solve`: the offline benchmarks and the rule of counted profiles."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import orjson

import stream_agg as sa
from stream_agg.cli.common import columns, overrides, read_json, spec_of, warm_up
from stream_agg.errors import ConfigError, EventError
from stream_agg.spec import SessionSpec

EXAMPLES = """
\b
COUNTS is CSV with a column per expert (empty: silent), `count`, and optionally `state0`, `state1`:
  ecmwf,gfs,count
  0.3,0.25,12
or JSON: [{"profile": {"ecmwf": 0.3, "gfs": 0.25}, "count": 12, "states": [7, 5]}]
\b
Example:
  stream-agg solve spec.json counts.csv --prior 0.5 --json
"""

Counts = dict[tuple[float | None, ...], float]
Outcomes = dict[tuple[float | None, ...], tuple[float, float]]


@click.command(epilog=EXAMPLES)
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path))
@click.argument("counts_file", metavar="COUNTS", type=click.Path(path_type=Path))
@click.option("--prior", type=click.FloatRange(0, 1, min_open=True, max_open=True), help="For the Bayesian benchmark.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Another value in the spec.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def solve(spec_file: Path, counts_file: Path, prior: float | None, changes: tuple[str, ...], as_json: bool) -> None:
    """The robust rule of counted profiles, its value and gap, and the paper's benchmarks."""
    spec = spec_of(read_json(spec_file), overrides(changes), None)
    counts, outcomes = _read(counts_file, spec)
    warm_up()
    try:
        rule = sa.solve(spec, counts)
        marks = sa.benchmarks(spec, counts, outcomes or None, prior)
    except (EventError, ValueError) as e:
        raise ConfigError(f"{counts_file}: {e}") from e
    total = sum(counts.values())
    result: dict[str, Any] = {
        "rounds": total,
        "value": rule.value,
        "upper_bound": rule.upper_bound,
        "gap": rule.gap,
        "penalty": rule.penalty,
        "exact": rule.exact,
        "gamma": "inf" if rule.gamma == float("inf") else rule.gamma,
        "epsilon": rule.epsilon,
        "epsilon_min": marks.epsilon_min,
        "robust": marks.robust,
        "optimal_in_hindsight": marks.optimal_in_hindsight,
        "contextual": marks.contextual,
        "bayesian": marks.bayesian,
        "rule": [{"profile": e, "count": c, "strategy": rule.strategy(e)} for e, c in sorted(counts.items(), key=str)],
    }
    if as_json:
        click.echo(orjson.dumps(result))
        return
    click.echo(_summary(result))
    click.echo("\n" + _rule_table(spec, result["rule"]))


def _summary(result: dict[str, Any]) -> str:
    lines = [
        f"rounds {result['rounds']:g}   value {result['value']:.6f} per round   gap {result['gap']:.2g}   "
        f"gamma {result['gamma']}   exact {'yes' if result['exact'] else 'no'}   epsilon_min {result['epsilon_min']:g}"
    ]
    if result["penalty"]:
        why = "no states calibrate the counts" if result["robust"] is None else "at a larger gamma there is less of it"
        lines.append(f"value contains a penalty of {result['penalty']:.6f}, which is no payoff: {why}")
    lines += [
        f"{name.replace('_', ' '):22} {result[name]:14.6f}  ({result[name] / result['rounds']:.6f} per round)"
        for name in ("robust", "optimal_in_hindsight", "contextual", "bayesian")
        if result[name] is not None
    ]
    return "\n".join(lines)


def _rule_table(spec: SessionSpec, rule: Sequence[dict[str, Any]]) -> str:
    rows = [(" ".join(spec.experts), "count", *spec.actions)]
    for line in rule:
        profile = " ".join("-" if z is None else f"{z:g}" for z in line["profile"])
        rows.append((profile, f"{line['count']:g}", *(f"{p:.4f}" for p in line["strategy"].values())))
    return columns(rows)


def _read(path: Path, spec: SessionSpec) -> tuple[Counts, Outcomes]:
    counts: Counts = {}
    outcomes: Outcomes = {}
    for place, (profile, count, states) in enumerate(_json(path, spec) if path.suffix == ".json" else _csv(path, spec)):
        try:
            e = tuple(None if p in (None, "") else float(p) for p in profile)
            counts[e] = counts.get(e, 0) + float(count)
            if states is not None:
                before = outcomes.get(e, (0.0, 0.0))
                outcomes[e] = (before[0] + float(states[0]), before[1] + float(states[1]))
        except (TypeError, ValueError, IndexError) as error:
            raise ConfigError(f"{path}: entry {place + 1}: {error}") from None
    if not counts:
        raise ConfigError(f"{path}: no counts in it")
    return counts, outcomes


def _json(path: Path, spec: SessionSpec) -> list[tuple[list[Any], Any, Any]]:
    entries = read_json(path)
    try:
        return [
            ([entry["profile"].get(name) for name in spec.experts], entry["count"], entry.get("states"))
            for entry in entries
        ]
    except (TypeError, KeyError, AttributeError):
        raise ConfigError(f'{path}: expected [{{"profile": {{expert: level}}, "count": n}}, ...]') from None


def _csv(path: Path, spec: SessionSpec) -> list[tuple[list[Any], Any, Any]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise ConfigError(f"{path}: {getattr(e, 'strerror', None) or e}") from e
    wanted = [*spec.experts, "count"]
    missing = [name for name in wanted if rows and name not in rows[0]]
    if missing:
        raise ConfigError(f"{path}: no column {', '.join(missing)}")
    with_states = bool(rows) and "state0" in rows[0] and "state1" in rows[0]
    return [
        ([row[name] for name in spec.experts], row["count"], (row["state0"], row["state1"]) if with_states else None)
        for row in rows
    ]
