"""Whether levels chosen from the data, or experts grouped, earn more than equally spaced levels of single experts.

    python benchmarks/coarsening.py [FOLDER] [--rows 4000] [--payoffs "safe third"] [--json] [--plot FILE]

Each file of forecasts by the policies, with forecasts rounded to
  k        k equally spaced levels;
  k quantiles   k levels a expert, the means of its quantile bins over the whole file: better than a warm-up could find,
           so that what does not pay here does not pay;
  g groups the experts in g clusters by correlation (average linkage), each cluster's mean forecast as one expert, on 11
           equally spaced levels; again from the whole file.
The figures are payoffs per event, and what they are more than with 11 equally spaced levels, with the standard error
of the paired difference. The claim is that which the package rests on: that neither quantiles nor groups pay, by
more than two standard errors over the better of 6 and 11 equally spaced levels, for the robust rule on most feeds.
Contextual Hedge, which learns every profile by itself, is another matter: the fewer levels, the more it earns, and
equally spaced ones do as well as quantiles.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from _feeds import PAYOFFS, Feed, folder, real
from _figure import Row, options, show
from scipy.cluster.hierarchy import fcluster, linkage

from stream_agg.replay.blocks import Blocks
from stream_agg.replay.compare import play, policies
from stream_agg.replay.source import steps

FEWEST = 4
"""Experts from which on there is something to group."""


def coarsened(feed: Feed, actions: Mapping[str, tuple[float, float]]) -> Iterator[tuple[str, Feed, Any]]:
    """(name, feed, spec): the forms of a feed, the reference of 11 equally spaced levels first."""
    for k in (11, 2, 3, 6, 21):
        yield str(k), feed, feed.spec(actions, k)
    told = feed.told
    for k in (3, 6, 11):
        levels = {e: quantiles(told[:, i], k) for i, e in enumerate(feed.experts)}
        yield f"{k} quantiles", feed, feed.spec(actions, levels)
    for g in (2, 3):
        if len(feed.experts) >= FEWEST:
            grouped = groups(feed, g)
            yield f"{g} groups", grouped, grouped.spec(actions, 11)


def quantiles(told: Any, k: int) -> list[float]:
    """The means of at most `k` bins of nearly equal numbers of reports; equal reports stay together."""
    said = np.sort(told[~np.isnan(told)])
    bins = np.searchsorted(np.quantile(said, np.arange(1, k) / k), said, side="right")
    means = [float(said[bins == j].mean()) for j in np.unique(bins)]
    return [z for i, z in enumerate(means) if not i or z - means[i - 1] > 1e-6]


def groups(feed: Feed, g: int) -> Feed:
    """The feed with clusters of experts for experts: the means of those who spoke."""
    told = feed.told
    masked = np.ma.masked_invalid(told)
    apart = 1 - np.ma.corrcoef(masked, rowvar=False).filled(0.0)
    upper = apart[np.triu_indices(len(feed.experts), 1)]
    labels = fcluster(linkage(np.clip(upper, 0, None), "average"), g, "maxclust")
    means = [np.ma.mean(masked[:, labels == j], axis=1).filled(np.nan) for j in np.unique(labels)]
    return feed.retold(np.stack(means, axis=1), [f"group {j}" for j in np.unique(labels)])


def measure(feed: Feed, name: str) -> list[Row]:
    """A row a form of the feed and policy."""
    found: list[Row] = []
    reference: dict[str, Any] = {}
    for form, changed, spec in coarsened(feed, PAYOFFS[name]):
        plain = {policy: s for policy, s in policies(spec).items() if policy != "hybrid"}
        rows, played = play(steps(changed.rows, changed.delay_us), plain)
        reference = reference or played
        blocks = Blocks(np.array([row.time_us for row in rows]))
        for policy, payoffs in played.items():
            more = blocks.mean(payoffs - reference[policy])
            cell = {"feed": feed.name, "payoffs": name, "levels": form, "policy": policy}
            found.append({**cell, "payoff": float(payoffs.mean()), "more": more.mean, "error": more.error})
    return found


def claims(rows: list[Row]) -> dict[str, bool]:
    """For the robust rule: on how many feeds the best of a form is better than the better of 6 and 11 levels."""
    held = {}
    cells = sorted({(r["feed"], r["payoffs"]) for r in rows})
    for word in ("quantiles", "groups"):
        pays = 0
        for cell in cells:
            here = [r for r in rows if (r["feed"], r["payoffs"]) == cell and r["policy"].startswith("robust")]
            plain = max(r["payoff"] for r in here if r["levels"] in ("6", "11"))
            best = max((r for r in here if word in r["levels"]), key=lambda r: float(r["payoff"]), default=None)
            pays += best is not None and best["payoff"] - plain > 2 * (best["error"] or 0.0)
        held[f"{word} pay on {pays} of {len(cells)} feeds and payoff sets, not on most"] = 2 * pays <= len(cells)
    return held


def wide(rows: list[Row]) -> list[Row]:
    """A line a feed, payoff set and form; a column a policy."""
    lines: dict[Any, dict[str, Any]] = {}
    for r in rows:
        key = (r["feed"], r["payoffs"], r["levels"])
        line = lines.setdefault(key, dict(zip(("feed", "payoffs", "levels"), key, strict=True)))
        line[r["policy"]] = f"{r['payoff']:.4f} {r['more']:+.4f}±{r['error'] or 0:.4f}"
    return list(lines.values())


def draw(figure: Any, found: Mapping[str, Any]) -> None:
    """A panel a policy: what every form earns more than 11 levels, a mark a feed and payoff set."""
    rows = found["rows"]
    names = list(dict.fromkeys(r["policy"] for r in rows))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for panel, policy in zip(panels, names, strict=True):
        here = [r for r in rows if r["policy"] == policy]
        panel.plot([r["more"] for r in here], [r["levels"] for r in here], "o", alpha=0.5)
        panel.axvline(0, color="k", linewidth=0.8)
        panel.set(title=policy, xlabel="payoff per event over 11 levels")


def main() -> int:
    """Measure, show, and say by the exit code whether the claims held."""
    parser = options(__doc__)
    parser.add_argument("folder", nargs="?", help="default: STREAM_AGG_DATA, or a folder data beside the project")
    parser.add_argument("--rows", type=int, default=4000, help="the first rows of each file")
    parser.add_argument("--payoffs", choices=list(PAYOFFS), default="safe third")
    args = parser.parse_args()
    paths = folder(args.folder)
    if not paths:
        parser.error("no files of forecasts: name their folder, or set STREAM_AGG_DATA")
    rows = [row for path in paths for row in measure(real(path, 300 if args.smoke else args.rows), args.payoffs)]
    found = {"rows": rows, "claims": claims(rows)}
    return show(args, found, {"payoff per event, and more than with 11 levels": wide(rows)}, draw)


if __name__ == "__main__":
    sys.exit(main())
