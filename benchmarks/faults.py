"""Breaks a deployment on a real Apache Kafka and a real Redis, case by case, and says what held.

    python benchmarks/faults.py 1 2 --smoke          two cases, small
    python benchmarks/faults.py --results out.jsonl  all cases that `out.jsonl` does not have yet
    python benchmarks/faults.py --results out.jsonl --table docs/failures.md

Exit code 1 when an invariant of a case did not hold. The servers: `.ci/servers`, and the system's Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from _faults.cases import CASES
from _faults.lab import Lab
from _faults.table import table
from _servers import missing, versions


def main() -> int:
    """Run what was asked for."""
    args = _arguments()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # of servers that are away it says a lot
    done = [json.loads(line) for line in args.results.read_text().splitlines()] if _there(args.results) else []
    if args.table:
        args.table.parent.mkdir(exist_ok=True)
        args.table.write_text(table(done, versions()))
        return 0
    if problem := missing():
        print(problem, file=sys.stderr)
        return 2
    wanted = args.case or [
        name for name in CASES if (name, args.delivery) not in {(r["case"], r["delivery"]) for r in done}
    ]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        home = args.home / Path(scratch).name if args.home else Path(scratch)
        sizes = {"smoke": args.smoke, "big": args.big, "kills": args.kills}
        with Lab(home, seed=args.seed, delivery=args.delivery, **sizes) as lab:
            for name in wanted:
                result = run(name, lab)
                failed += bool(result["failing"])
                tell(result, args.json)
                if args.results:
                    with args.results.open("a") as file:
                        file.write(json.dumps(result) + "\n")
    return 1 if failed else 0


def run(name: str, lab: Lab) -> dict[str, Any]:
    """One case; a case that cannot go on has failed."""
    start = time.monotonic()
    result: dict[str, Any] = {"case": name, "seed": lab.seed, "delivery": lab.delivery, "small": lab.smoke}
    result |= {"commit": _commit(), "load": os.getloadavg()[0]}
    try:
        held = asyncio.run(CASES[name].run(lab))
        result |= {"invariants": sorted(held.invariants), "failing": held.failing, "figures": held.figures}
    except Exception as e:
        text = traceback.format_exc()
        result |= {"invariants": [], "failing": {"ran": [f"{type(e).__name__}: {e}", text]}, "figures": {}}
    return result | {"took_s": round(time.monotonic() - start, 1)}


def tell(result: dict[str, Any], as_json: bool) -> None:
    """Print it, for a program or for a person."""
    if as_json:
        print(json.dumps(result), flush=True)
        return
    word = "FAILS" if result["failing"] else "holds"
    print(f"{word}  {result['case']}: {CASES[result['case']].fault} ({result['delivery']}, {result['took_s']} s)")
    print(f"       held: {', '.join(n for n in result['invariants'] if n not in result['failing'])}")
    print(f"       {result['figures']}")
    for name, found in result["failing"].items():
        for text in found[: 1 if name == "ran" else 5]:
            print(f"       {name}: {text}")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", choices=[[], *CASES], help="names of cases; none: all")
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--big", action="store_true", help="the full size of the cases that have one")
    parser.add_argument("--kills", type=int, help="of case 1, at the size that is asked for otherwise")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delivery", default="at_least_once", choices=["at_least_once", "exactly_once"])
    parser.add_argument("--json", action="store_true", help="one JSON object a case")
    parser.add_argument("--results", type=Path, help="JSON lines: appended to, and cases that are there are left out")
    parser.add_argument("--table", type=Path, help="only write the table of the results")
    parser.add_argument("--home", type=Path, help="keep logs and data there")
    return parser.parse_args()


def _there(path: Path | None) -> bool:
    return path is not None and path.exists()


def _commit() -> str:
    here = Path(__file__).parent
    asked = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
