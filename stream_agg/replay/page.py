"""The fixed text of the report page: its frame, style and script; tones and drawing serve every page. No numbers."""

from __future__ import annotations

TONES = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2430; --grid: #dfe3e8; --quiet: #6b7480;
  --one: #0b5cad; --two: #b3500b; --three: #17795a; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181e; --ink: #e4e8ee; --grid: #333b46; --quiet: #98a2af;
  --one: #6cb2ff; --two: #ffa45c; --three: #5fd0a5; } }
"""

STYLE = (
    TONES
    + """body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 70rem; padding: 1rem; }
h1 { line-height: 1.2; } h2 { margin: 2rem 0 0; } h3 { margin: 0; font-size: 1rem; }
h1, h3, dd, pre { overflow-wrap: anywhere; }
p { max-width: 46rem; margin: .25rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); gap: 1rem; }
dt { color: var(--quiet); } dd { margin: 0; } dd b { display: block; font-size: 1.6rem; line-height: 1.2; }
figure { margin: 0; min-width: 0; }
.chart { height: 24rem; }
.multiples { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: 1rem; }
.multiples .chart { height: 17rem; }
.scroll { overflow: auto; max-height: 24rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .15rem .7rem; border-bottom: 1px solid var(--grid); }
"""
)

DRAW = """
const tone = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const paint = v => typeof v === "string" ? (v.startsWith("--") ? tone(v) : v) : Array.isArray(v) ? v.map(paint)
  : v && typeof v === "object" ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, paint(x)])) : v;
function plot(place, chart) {
  const axis = name => ({automargin: true, zeroline: false, gridcolor: "--grid", linecolor: "--grid",
    ...chart.layout[name]});
  const layout = {...chart.layout, xaxis: axis("xaxis"), yaxis: axis("yaxis"), margin: {l: 8, r: 12, t: 8, b: 8},
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: "--ink", size: 13},
    legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0}, hovermode: "closest", dragmode: false,
    hoverlabel: {bgcolor: "--paper", font: {color: "--ink"}}};
  return Plotly.react(place, paint(chart.data), paint(layout), {responsive: true, displayModeBar: false});
}
"""
"""How a chart is drawn, in the tones of the page's light or dark: for every page of this package."""

SCRIPT = (
    DRAW
    + """
const charts = JSON.parse(document.getElementById("charts").textContent);
const all = () => charts.forEach((chart, i) => {
  const place = document.getElementById("chart-" + i);
  if (place) plot(place, chart);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
all();
"""
)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1>
<dl>
{summary}
</dl></header>
<noscript><p>The charts need JavaScript; the tables do not.</p></noscript>
<main>
{sections}
<section><h2>Calibration by level</h2>
<p>How often state 1 came when the expert reported a level, with 95 % Wilson intervals; larger marks are more rounds.
On the dashed line the expert is calibrated.</p>
<div class="multiples">
{multiples}
</div></section>
<section><h2>Session spec</h2>
<details><summary>As it was run</summary><pre>{spec}</pre></details></section>
</main>
<script type="application/json" id="charts">{data}</script>
<script>{plotly}</script>
<script>{script}</script>
</body>
</html>
"""
