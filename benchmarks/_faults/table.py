"""docs/failures.md from results: what was done, what held, how many times."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _faults.cases import CASES

_INTRO = """# What was broken, and what held

Written by `benchmarks/faults.py --table` from its results; not by hand. {versions}.

One machine of {machine}. The load of the last minute was {load} when the cases began: of other
work, so figures of time are those of a part of the machine.

Commits {commits}; seed {seeds}. Delivery is `at_least_once` unless the row says
otherwise. `small` is the size of tests.

- I1 every input record is applied, counted or a dead letter, once.
- I2 what Redis holds is what the inputs add up to.
- I3 every action is there, its copies equal to the byte, the rounds of a session without a gap.
- I4 the published regret is that of an independent account within 1e-9, and the actions are derived again to the byte.
- I5 the lag goes back to none. I6 no write under an old epoch. I7 a stop is clean, within 10 s.
- verify: `stream-agg verify` derives all actions, reports and rules again, to the byte.

The account is `benchmarks/_faults/oracle.py`: plain Python and linear programs of scipy, which share no code with the
package. Where Redis went back in time, actions are derived anew and may tell another `states_seen` under the same id:
I3 is then about their being there, and the number of such copies is given.

| # | fault | what was done | held | how many times |
|---|---|---|---|---|
"""


def table(results: Sequence[Mapping[str, Any]], versions: str) -> str:
    """The page. The last result of a case, delivery and number of kills counts."""
    last = {(result["case"], result["delivery"], result["figures"].get("kills")): result for result in results}
    commits = ", ".join(sorted({result["commit"] for result in last.values()}))
    seeds = ", ".join(sorted({str(result["seed"]) for result in last.values()}))
    rows = [_row(name, last) for name in sorted(CASES, key=int)]
    loads = sorted(result["load"] for result in last.values())
    load = f"{loads[0]:.1f} to {loads[-1]:.1f}" if loads else "?"
    words = {"versions": versions, "machine": _machine(), "load": load, "commits": commits, "seeds": seeds}
    return _INTRO.format(**words) + "\n".join(rows) + "\n"


def _machine() -> str:
    told = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    model = {name.strip(): text.strip() for name, text in told.items()}.get("model name", platform.machine())
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} processors ({model}), {gigabytes:.0f} GB, {platform.system()}"


def _row(name: str, last: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> str:
    case, held, times = CASES[name], [], []
    for result in (result for key, result in last.items() if key[0] == name):
        marks = [result["delivery"]] * (result["delivery"] != "at_least_once") + ["small"] * result["small"]
        where = "".join(f"{mark}: " for mark in marks)
        failing = result["failing"]
        words = [w for w in result["invariants"] if w not in failing]
        held.append(where + ", ".join(words) + (f"; **not {', '.join(failing)}**" if failing else ""))
        times.append(where + _figures(result["figures"]))
    return f"| {name} | {case.fault} | {case.how} | {'<br>'.join(held) or 'not run'} | {'<br>'.join(times)} |"


def _figures(figures: Mapping[str, Any]) -> str:
    left_out = {"kinds", "checked", "settled_s"}
    return "; ".join(f"{name.replace('_', ' ')} {_short(v)}" for name, v in figures.items() if name not in left_out)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{k.replace('_', ' ')} {_short(v)}" for k, v in value.items()) + ")"
    return f"{value:,}" if isinstance(value, int) else str(value)
