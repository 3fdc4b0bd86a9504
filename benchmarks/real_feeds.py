"""Every policy on real feeds, and on generated worlds that nothing was tuned on: payoff per event, against averaging.

    python benchmarks/real_feeds.py [FOLDER] [--levels 11] [--rows N] [--seeds 3] [--markdown FILE]

FOLDER holds files as `stream-agg replay` reads them; without it STREAM_AGG_DATA, or a folder `data` beside the project.
A cell is a feed with a payoff set. All policies see the same events in the same order; rows of equal time are decided
before any of their outcomes, and outcomes come as late as is their feed's way. Payoffs are those of mixed actions.
Intervals and standard errors are of the circular block bootstrap over times (`stream_agg.replay.blocks`).

The judgement is of one policy, hybrid where this version has it. In every cell its payoff must be at least that of the
mean forecast less 0.003, or less one standard error of the paired difference where that is more; in three cells of four
at least that of the best expert in hindsight less 0.01; and in one of three above it. It is made twice: on the files,
and on worlds from `_feeds.py`, whose forecasters no default was chosen by. Exit code 1 where any of that fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _feeds import PAYOFFS, Feed, folder, real, worlds
from _figure import Row, options, show

from stream_agg.replay.compare import BEST, MEAN, Comparison, compare, policies
from stream_agg.replay.source import steps

LITTLE, NEAR = 0.003, 0.01
"""What may be lost against the mean forecast, and against the best expert."""


def cells(feeds: Iterable[Feed], levels: int) -> list[dict[str, Any]]:
    """Every feed with every payoff set, compared and judged."""
    found = []
    for feed in feeds:
        for name, actions in PAYOFFS.items():
            specs = policies(feed.spec(actions, levels))
            compared = compare(steps(feed.rows, feed.delay_us), specs)
            about = {"feed": feed.name, "payoffs": name, "experts": len(feed.experts), "judged": next(iter(specs))}
            found.append({**about, **verdict(compared, about["judged"]), "comparison": compared.to_record()})
    return found


def verdict(compared: Comparison, judged: str) -> dict[str, Any]:
    """How the judged policy stands to the mean forecast and to the best expert."""
    line = compared.line(judged)
    error = line.over_mean.error or 0.0
    return {
        "over_mean": line.over_mean.mean,
        "error": error,
        "allowed": max(LITTLE, error),
        "not_worse": line.over_mean.mean >= -max(LITTLE, error),
        "not_worse_by_0.003": line.over_mean.mean >= -LITTLE,
        "over_best": line.over_best.mean,
        "over_best_error": line.over_best.error or 0.0,
        "near_best": line.over_best.mean >= -NEAR,
        "above_best": line.over_best.mean > 0,
    }


def claims(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, bool]:
    """The three sentences, on the files and on the worlds."""
    held = {}
    for kind, judged in found.items():
        n = len(judged)
        for test, least, words in (
            ("not_worse", n, f"not worse than the {MEAN} in all"),
            ("near_best", 0.75 * n, f"within {NEAR} of the {BEST} in three quarters"),
            ("above_best", n / 3, f"above the {BEST} in a third"),
        ):
            if judged:
                count = sum(cell[test] for cell in judged)
                held[f"{kind}: {judged[0]['judged']} {words} of {n} cells: {count}"] = count >= least
    return held


def payoff_rows(judged: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A line a way to decide, single experts but the best left out, a column a payoff set; for cells of one feed."""
    lines: dict[str, dict[str, Any]] = {}
    for cell in judged:
        for line in cell["comparison"]["lines"]:
            if not line["name"].startswith("expert:"):
                row = lines.setdefault(line["name"], {"decided by": line["name"]})
                row[cell["payoffs"]] = _interval(line["payoff"])
                row[f"{cell['payoffs']}: over mean"] = _difference(line["over_mean"])
    return list(lines.values())


def judged_rows(judged: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A line a cell: the judgement, strict words where it failed."""
    return [
        {
            "feed": cell["feed"],
            "payoffs": cell["payoffs"],
            f"over {MEAN}": _signed(cell["over_mean"], cell["error"]),
            "not worse": "yes" if cell["not_worse_by_0.003"] else "within one error" if cell["not_worse"] else "NO",
            f"over {BEST}": _signed(cell["over_best"], cell["over_best_error"]),
            f"within {NEAR}": "yes" if cell["near_best"] else "NO",
            "above": "yes" if cell["above_best"] else "no",
        }
        for cell in judged
    ]


def world_rows(judged: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A line a kind of world and payoff set: means over its seeds, and for how many of them each sentence held."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in judged:
        groups.setdefault((cell["feed"].split(", seed")[0], cell["payoffs"]), []).append(cell)
    return [
        {
            "world": world,
            "payoffs": payoffs,
            f"over {MEAN}": f"{np.mean([c['over_mean'] for c in cells]):+.4f}",
            "not worse": f"{sum(c['not_worse'] for c in cells)} of {len(cells)}",
            f"over {BEST}": f"{np.mean([c['over_best'] for c in cells]):+.4f}",
            f"within {NEAR}": f"{sum(c['near_best'] for c in cells)} of {len(cells)}",
            "above": f"{sum(c['above_best'] for c in cells)} of {len(cells)}",
        }
        for (world, payoffs), cells in groups.items()
    ]


def tables(found: Mapping[str, Any]) -> dict[str, list[Row]]:
    """The payoffs of every file, and the judgements."""
    shown = {}
    for feed in dict.fromkeys(cell["feed"] for cell in found["files"]):
        here = [cell for cell in found["files"] if cell["feed"] == feed]
        compared = here[0]["comparison"]
        about = f"{compared['events']:,} events, {here[0]['experts']} forecasters, {compared['times']} times"
        shown[f"{feed}: {about}, blocks of {compared['block']}"] = payoff_rows(here)
    for kind, lines in (("files", judged_rows), ("worlds", world_rows)):
        if found[kind]:
            shown[f"The judgement of {found[kind][0]['judged']} on {kind}"] = lines(found[kind])
    return shown


def markdown(found: Mapping[str, Any]) -> str:
    """The page for the docs."""
    parts = [
        "# Real feeds",
        "Written by `python benchmarks/real_feeds.py --markdown docs/real-feeds.md`, which says what is measured and "
        f"how. Forecasts on {found['levels']} levels. Payoff per event with its 95 % interval; over mean: what that is "
        "more than acting on the mean forecast, with the standard error of the paired difference, both by a block "
        "bootstrap over times. Lines with `best` were chosen knowing all outcomes.",
    ]
    for title, rows in tables(found).items():
        head = list(rows[0])
        lines = [head, ["---"] * len(head), *([str(value) for value in row.values()] for row in rows)]
        parts.append(f"## {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    outcome = [f"- {'holds' if held else '**fails**'}: {claim}" for claim, held in found["claims"].items()]
    return "\n\n".join([*parts, "## The claims", "\n".join(outcome)]) + "\n"


def draw(figure: Any, found: Mapping[str, Any]) -> None:
    """A panel a payoff set: what policies earn over the mean forecast, a row a feed."""
    panels = figure.subplots(1, len(PAYOFFS), sharey=True, squeeze=False)[0]
    for panel, name in zip(panels, PAYOFFS, strict=True):
        here = [cell for cell in found["files"] + found["worlds"] if cell["payoffs"] == name]
        places = np.arange(len(here))
        drawn = [
            line["name"] for line in here[0]["comparison"]["lines"] if line["kind"] == "policy" or line["name"] == BEST
        ]
        for k, policy in enumerate(drawn):
            gains = [next(x for x in c["comparison"]["lines"] if x["name"] == policy)["over_mean"] for c in here]
            panel.errorbar(
                [g["mean"] for g in gains],
                places + 0.6 * (k / max(len(drawn) - 1, 1) - 0.5),
                xerr=[g["error"] or 0.0 for g in gains],
                fmt="o",
                markersize=3,
                linewidth=1,
                color=f"C{k}",
                label=policy,
            )
        panel.axvline(0, color="k", linewidth=0.8)
        panel.set(title=name, xlabel="payoff per event over the mean forecast")
        panel.set_xscale("symlog", linthresh=0.01)
        panel.set_yticks(places, [cell["feed"] for cell in here], fontsize="x-small")
    panels[0].invert_yaxis()
    panels[0].legend(fontsize="x-small", loc="lower left")


def _interval(part: Mapping[str, Any]) -> str:
    return f"{part['mean']:.4f}" + ("" if part["low"] is None else f" [{part['low']:.3f}, {part['high']:.3f}]")


def _difference(part: Mapping[str, Any]) -> str:
    return _signed(part["mean"], part["error"] or 0.0)


def _signed(mean: float, error: float) -> str:
    return f"{mean:+.4f} ± {error:.4f}"


def main() -> int:
    """Measure, show, and say by the exit code whether all claims held."""
    parser = options(__doc__)
    parser.add_argument("folder", nargs="?", help="default: STREAM_AGG_DATA, or a folder data beside the project")
    parser.add_argument("--levels", type=int, default=11, help="equally spaced levels of every forecaster")
    parser.add_argument("--rows", type=int, help="only the first rows of each file")
    parser.add_argument("--seeds", type=int, default=3, help="generated worlds of each kind")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page of the docs, too")
    args = parser.parse_args()
    rows, seeds, rounds = (60, 1, 60) if args.smoke else (args.rows, args.seeds, 2000)
    found: dict[str, Any] = {
        "levels": args.levels,
        "files": cells((real(path, rows) for path in folder(args.folder)), args.levels),
        "worlds": cells((feed for seed in range(seeds) for feed in worlds(rounds, seed)), args.levels),
    }
    # Sixty events say nothing of a thousandth.
    found["claims"] = {} if args.smoke else claims({kind: found[kind] for kind in ("files", "worlds")})
    if args.markdown:
        args.markdown.write_text(markdown(found), encoding="utf-8")
    return show(args, found, tables(found), draw)


if __name__ == "__main__":
    sys.exit(main())
