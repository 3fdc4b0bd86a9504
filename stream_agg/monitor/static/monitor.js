"use strict";
// Shows what the server sends. All text goes in as text, never as markup; elements that stay keep their focus.

const $ = id => document.getElementById(id);
const QUIET_MS = 5000; // the server sends every second
const CHART_MS = 1000; // drawing is the costly part; numbers are faster
const wide = new Intl.NumberFormat("en", {maximumFractionDigits: 1});
const fine = new Intl.NumberFormat("en", {minimumSignificantDigits: 4, maximumSignificantDigits: 4});

function number(x) {
  if (x === null || x === undefined) return "–";
  return Number.isInteger(x) || Math.abs(x) >= 1000 ? wide.format(x) : Math.abs(x) < 1e-9 ? "0" : fine.format(x);
}
function age(s) {
  if (s === null || s === undefined) return "–";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (s >= 2 * size) return `${number(Math.round(s / size))} ${unit}`;
  return `${Math.max(0, Math.round(s))} s`;
}
const time = text => text ? text.replace("T", " ").replace(/(\.\d+)?Z$/, "") : "–";
const per = (sum, count) => count ? number(sum === null ? null : sum / count) : "–";
const cell = x => typeof x === "number" ? number(x) : x === null ? "–" : time(x);

// Elements by key, in order: made where missing, kept where there, taken out where gone.
function keyed(parent, items, key, make, fill) {
  const there = new Map([...parent.children].map(node => [node.dataset.key, node]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let node = there.get(name);
    if (node) there.delete(name);
    else { node = make(item); node.dataset.key = name; }
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
    fill(node, item);
  }
  for (const node of there.values()) node.remove();
}
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const link = name => "#session=" + encodeURIComponent(name);

function facts(list, rows) {
  keyed(list, rows, ([label]) => label,
    ([label]) => element("div", {}, element("dt", {}, label), element("dd", {}, element("span"), element("small"))),
    (node, [, value, note]) => { say(node.querySelector("span"), value); say(node.querySelector("small"), note || ""); });
}

let known = null; // keys of the alarms that were announced
function alarms(shown) {
  const list = shown.alarms;
  keyed($("alarms"), list, a => a.key, a => {
    const node = element("li", {"data-severity": a.severity}, element("b"), " ", element("span"));
    if (a.session !== null) node.append(" ", element("a", {href: link(a.session)}, "show"));
    return node;
  }, (node, a) => {
    say(node.querySelector("b"), a.session === null ? (a.severity === "note" ? "Note" : "Deployment") : a.session);
    say(node.querySelector("span"), a.text);
    if (a.session !== null) node.querySelector("a").setAttribute("aria-label", "Show session " + a.session);
  });
  $("alarms-none").hidden = list.length > 0 && !shown.more_alarms;
  say($("alarms-none"), shown.more_alarms ? `and ${number(shown.more_alarms)} more` : "None: nothing asks to be looked at.");
  const fresh = list.filter(a => known && !known.has(a.key));
  if (fresh.length) say($("announce"), fresh.map(a => `New ${a.severity}: ${a.session === null ? "" : a.session + ": "}${a.text}`).join(". "));
  known = new Set(list.map(a => a.key));
  const urgent = list.filter(a => a.severity === "alarm").length;
  document.title = (urgent ? `(${urgent}) ` : "") + "stream_agg monitor";
}

function totals(t) {
  facts($("totals"), [
    ["Sessions", number(t.sessions), [t.closed && `${number(t.closed)} closed`, t.evicted && `${number(t.evicted)} not shown`].filter(Boolean).join(", ")],
    ["Decisions", number(t.rounds), t.action_ago_s === null ? "" : `the latest ${age(t.action_ago_s)} ago`],
    ["Open decisions", number(t.open), "wait for their state"],
    ["Lag", number(t.lag), "input records not applied yet"],
    ["Workers", number(t.workers), "in the consumer group"],
    ["Dead letters", number(t.dead_letters), "among the latest records"],
  ]);
}

const COLUMNS = [
  ["Latest action", s => s.action === null ? "–" : s.action + (s.probability < 1 ? ` (${number(Math.round(s.probability * 100))} %)` : "")],
  ["Round", s => number(s.round)],
  ["Gap of the rule", s => number(s.gap)],
  ["Robust regret", s => number(s.regret)],
  ["Payoff", s => per(s.payoff, s.states)],
  ["Best single", s => per(s.single, s.states)],
  ["Best map", s => per(s.contextual, s.states)],
  ["Open", s => number(s.open)],
  ["Oldest open", s => age(s.oldest_open_s)],
  ["Heard", s => age(s.heard_ago_s) + " ago"],
];
$("sessions-head").append(element("th", {role: "columnheader", scope: "col"}, "Session"),
  ...COLUMNS.map(([label]) => element("th", {role: "columnheader", scope: "col"}, label)));

function sessions(shown) {
  keyed($("sessions-body"), shown.sessions, s => s.session, s => element("tr", {role: "row"},
    element("th", {role: "rowheader", scope: "row"}, element("a", {href: link(s.session)}, s.session), element("span", {class: "mark"})),
    ...COLUMNS.map(([label]) => element("td", {role: "cell", "data-label": label}))),
  (node, s) => {
    say(node.querySelector(".mark"), [s.closed && "closed", s.alarm && "alarm"].filter(Boolean).join(", "));
    if (s.session === drawn) node.setAttribute("aria-current", "true"); else node.removeAttribute("aria-current");
    node.querySelectorAll("td").forEach((td, i) => say(td, COLUMNS[i][1](s)));
  });
  $("sessions-none").hidden = shown.found > 0;
  say($("sessions-none"), asked.find ? "No session of that name." : "No session yet. One is opened by a record of the sessions topic.");
  $("sessions").hidden = !shown.found;
  $("pager").hidden = shown.pages < 2;
  say($("page"), `${shown.page + 1} of ${shown.pages}`);
  $("before").disabled = shown.page === 0;
  $("after").disabled = shown.page + 1 >= shown.pages;
  asked.page = shown.page;
}

let drawn = null, pending = null, timer = 0, lastDrawn = 0;
function detail(d) {
  $("detail").hidden = false;
  say($("detail-title"), "Session " + d.session);
  facts($("facts"), [
    ["Latest action", d.action ?? "–", d.event === null ? "" : `drawn with ${number(Math.round(d.probability * 100))} % for ${d.event}, ${time(d.time)}`],
    ["Decided by", d.policy ?? "–", d.rule_version === null ? "no rule yet" : `rule ${number(d.rule_version)} of round ${number(d.rule_round)}`],
    ["Gap of the rule", number(d.gap), "a round, at most"],
    ["Robust value", number(d.value), "a round"],
    ["Robust regret", number(d.regret), d.bound === null ? "" : `the theorem allows ${number(d.bound)}`],
    ["Payoff", number(d.payoff), d.states ? `over ${number(d.states)} known rounds; best single expert ${number(d.single)}, best map ${number(d.contextual)}` : "no state is known"],
    ["Smallest epsilon", number(d.epsilon_min), "least common calibration error"],
    ["Open decisions", number(d.open), d.oldest_open_s === null ? "" : `the oldest waits ${age(d.oldest_open_s)} of event time`],
  ]);
  drawn = d.session;
  pending = d;
  if (!timer) timer = setTimeout(draw, Math.max(0, lastDrawn + CHART_MS - performance.now()));
}

function draw() {
  timer = 0;
  lastDrawn = performance.now();
  const charts = pending.charts, key = chart => drawn + "/" + chart.id + "/" + chart.title;
  const make = chart => element("figure", {},
    element("figcaption", {}, element(chart.small ? "h4" : "h3"), element("p", {class: "quiet"})),
    element("div", {class: "chart", role: "img", "aria-label": chart.title + ": the numbers are in the table below"}),
    element("details", {}, element("summary", {}, "Table"),
      element("div", {class: "scroll", role: "region", tabindex: "0", "aria-label": "Table of " + chart.title},
        element("table", {}, element("thead", {}, element("tr", {}, ...chart.head.map(h => element("th", {scope: "col"}, h)))),
          element("tbody")))));
  const figures = new Map();
  const fill = (node, chart) => {
    figures.set(key(chart), node);
    say(node.querySelector("h3, h4"), chart.title);
    const note = node.querySelector("figcaption p");
    say(note, chart.rows.length ? chart.note : chart.note + " Nothing to show yet.");
    note.hidden = !note.textContent;
    node.querySelector(".chart").hidden = !chart.rows.length;
    node.querySelector("details").hidden = !chart.rows.length;
    node.querySelector("tbody").replaceChildren(...chart.rows.map(row => element("tr", {}, ...row.map(x => element("td", {}, cell(x))))));
  };
  keyed($("charts"), charts.filter(c => !c.small), key, make, fill);
  const small = charts.filter(c => c.small);
  keyed($("multiples"), small, key, make, fill);
  // When all have their place: a chart takes the width that it finds.
  for (const chart of charts) if (chart.rows.length) plot(figures.get(key(chart)).querySelector(".chart"), chart);
  $("calibration-none").hidden = small.length > 0;
  $("calibration-note").hidden = !small.length;
}

function dead(letters) {
  const reasons = Object.entries(letters.by_reason);
  facts($("reasons"), reasons.map(([reason, count]) => [reason, number(count)]));
  $("dead-none").hidden = reasons.length > 0;
  $("dead-latest").hidden = !letters.latest.length;
  keyed($("dead-body"), letters.latest, d => `${d.place} ${d.time_s}`, () => element("tr", {}, ...Array.from({length: 4}, () => element("td"))),
    (node, d) => [age(d.ago_s), d.reason, d.place, d.detail].forEach((text, i) => say(node.children[i], text)));
}

const asked = {session: null, find: "", page: 0};
let source = null, heard = performance.now(), heardAt = null;
function status(state, text) { $("status").dataset.state = state; say($("status"), text); }
function lost() {
  status("lost", "Connection to the monitor is lost, trying again." + (heardAt ? ` What you see is of ${heardAt.toLocaleTimeString()}.` : ""));
}
function listen() {
  if (source) source.close();
  const query = new URLSearchParams({find: asked.find, page: asked.page});
  if (asked.session !== null) query.set("session", asked.session);
  source = new EventSource("/events?" + query);
  source.onmessage = message => {
    const shown = JSON.parse(message.data);
    heard = performance.now();
    heardAt = new Date();
    status("live", "Live");
    if (shown.detail) detail(shown.detail);
    alarms(shown);
    totals(shown.totals);
    sessions(shown);
    dead(shown.dead_letters);
  };
  source.onerror = () => { lost(); if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000); };
}
setInterval(() => { if (performance.now() - heard > QUIET_MS) lost(); }, 1000);

function chosen() {
  const found = /^#session=(.*)$/.exec(location.hash);
  try { asked.session = found ? decodeURIComponent(found[1]) : null; } catch { asked.session = null; }
}
addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#session=")) return;
  chosen();
  listen();
  $("detail").hidden = false;
  say($("detail-title"), "Session " + asked.session);
  $("detail").focus();
});
$("find").addEventListener("input", () => { asked.find = $("find").value; asked.page = 0; listen(); });
$("before").addEventListener("click", () => { asked.page -= 1; listen(); });
$("after").addEventListener("click", () => { asked.page += 1; listen(); });
function redraw() {
  if (!pending) return;
  clearTimeout(timer);
  timer = setTimeout(draw, 200);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", redraw); // plotly widens a chart by itself, but leaves its legend where it was
chosen();
listen();
