"""How far the cheap bound for the smallest feasible epsilon, half the spread of mean forecasts, is from the truth.

    python benchmarks/smallest_epsilon.py FILE... [--levels 11] [--rows 500] [--json]

For the first `--rows` rows and for all rows of each file: the half spread, the smallest epsilon, and the seconds taken.
The half spread is a bound only where no expert was ever silent.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from itertools import islice

from stream_agg.replay.source import Source
from stream_agg.rule import program
from stream_agg.rule.support import Support
from stream_agg.spec import SILENT, Alphabet, SessionSpec


def measure(path: str, levels: int, rows: int | None) -> dict[str, object]:
    """The figures of the first `rows` rows of a file (None: all)."""
    source = Source(path)
    grid = Alphabet(tuple(k / (levels - 1) for k in range(levels)))
    spec = SessionSpec("benchmark", dict.fromkeys(source.experts, grid), {"a": (1.0, 0.0), "b": (0.0, 1.0)})
    counts = Counter(spec.profile(row.forecasts) for row in islice(source.rows(), rows))
    support = Support.of(spec.experts.values(), counts)
    cuts = list(zip(support.offsets, support.offsets[1:], strict=False))
    means = [float(support.levels[a:b] @ support.mass[a:b] / support.mass[a:b].sum()) for a, b in cuts]
    started = time.perf_counter()
    epsilon = program.smallest_epsilon(support)
    return {
        "file": path,
        "rows": int(support.total),
        "profiles": len(counts),
        "half_spread": (max(means) - min(means)) / 2,
        "smallest_epsilon": epsilon,
        "seconds": time.perf_counter() - started,
        "silent": any(SILENT in e for e in counts),
    }


def main() -> None:
    """Print a line a file and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--levels", type=int, default=11)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for path in args.files:
        for rows in (args.rows, None):
            found = measure(path, args.levels, rows)
            print(json.dumps(found) if args.json else "  ".join(f"{k} {v}" for k, v in found.items()))


if __name__ == "__main__":
    main()
