// This process: what it holds, waits for and loads now, its figures, and its outages.

import { $, clock, el, long, many, number, seconds, write } from "./dom.js";

const HOUR = 3600;

export function drawProcess(process, at) {
  write($("holder"), process.holder);
  drawTiles(process);
  drawOutages(process.outages, at);
  lines($("held"), process.held, process.held_count, "Nothing is held here.", (each) => [each.key, `${each.claim ? "claim" : "lease"}, held for ${long(each.held)}, ${each.renewed ? "renewed" : `${long(each.remaining)} left`}`]);
  lines($("waiting"), process.waited_for, process.waited_for.length, "There are no waiters.", (each) => [each.key, `${many(each.count, "waiter")}${each.holder ? `; ${each.holder} has it, ${long(each.remaining)} left` : ""}`]);
  lines($("loading"), process.loading, process.load_count, "Nothing is being loaded.", (each) => [each, ""]);
  remember(process.templates, at);
  drawHolds(process.templates);
  drawCaches(process.templates);
  letListsScroll();
}

// ---- tiles

function drawTiles(process) {
  const open = process.breakers.filter((each) => each.state !== "closed");
  const unguarded = process.templates.reduce((sum, each) => sum + each.unguarded, 0);
  const breaker = open.length ? `${open[0].state}${process.breakers.length > 1 ? `, ${open.length} of ${process.breakers.length} nodes` : ""}` : "closed";
  const out = open.length ? `${open[0].cause}, for ${long(open[0].out_for)}` : "the server is asked";
  const tiles = [
    ["Circuit breaker", breaker, out, open.length > 0],
    ["Held here", number(process.held_count), "leases and claims", false],
    ["Waiters", number(process.waiter_count), "for keys that others have", false],
    ["Loads", number(process.load_count), "under way", false],
    ["Unguarded", number(unguarded), "grants during outages", unguarded > 0],
  ];
  const box = $("tiles");
  if (!box.children.length) tiles.forEach(() => box.append(el("div", {}, el("dt"), el("dd"), el("dd", { className: "fact" }))));
  tiles.forEach(([name, value, fact, alarming], place) => {
    const tile = box.children[place];
    tile.classList.toggle("alarming", alarming);
    [name, value, fact].forEach((text, part) => write(tile.children[part], text));
  });
}

// ---- outages

function drawOutages(outages, at) {
  const track = $("timeline").firstElementChild;
  const recent = outages.filter((each) => (each.ended ?? at) > at - HOUR);
  while (track.children.length > recent.length) track.lastChild.remove();
  while (track.children.length < recent.length) track.append(el("i"));
  recent.forEach((each, place) => {
    const from = Math.max(each.began, at - HOUR);
    const mark = track.children[place];
    mark.style.right = `${(100 * (at - (each.ended ?? at))) / HOUR}%`;
    mark.style.width = `${(100 * ((each.ended ?? at) - from)) / HOUR}%`;
  });
  const entries = recent.map((each) => `${clock(each.began)} – ${each.ended ? `${long(each.ended - each.began)} (${each.cause || "not known"}), ${many(each.calls, "call")} touched` : `${each.cause || "not known"}, for ${long(at - each.began)} now, ${many(each.calls, "call")} touched`}`).reverse();
  replaceTexts($("outages"), entries.length ? entries : ["None that a call of this process has met."], entries.length === 0);
}

function replaceTexts(list, texts, quiet) {
  while (list.children.length > texts.length) list.lastChild.remove();
  while (list.children.length < texts.length) list.append(el("li"));
  texts.forEach((text, place) => write(list.children[place], text));
  list.classList.toggle("quiet", quiet);
}

// ---- what happens now

function lines(list, items, count, none, say) {
  const texts = items.map(say);
  if (count > items.length) texts.push([`and ${number(count - items.length)} more`, ""]);
  list.classList.toggle("quiet", texts.length === 0);
  if (!texts.length) return list.replaceChildren(el("li", {}, none));
  if (list.firstElementChild && !list.firstElementChild.querySelector("code")) list.replaceChildren();
  while (list.children.length > texts.length) list.lastChild.remove();
  while (list.children.length < texts.length) list.append(el("li", {}, el("code"), " ", el("span")));
  texts.forEach(([key, fact], place) => {
    write(list.children[place].children[0], key);
    write(list.children[place].children[1], fact);
  });
}

// What is longer than its place is scrolled with the arrow keys. A page that is hidden has no places.
export function letListsScroll() {
  for (const list of document.querySelectorAll(".lines")) list.tabIndex = list.scrollHeight > list.clientHeight ? 0 : -1;
}

// ---- how much there was of each template, since the page was opened

const LOOKS = 60;
const history = new Map();

function remember(templates, at) {
  for (const each of templates) {
    const looks = history.get(each.name) ?? [];
    const last = looks.at(-1);
    const total = sum(each, "acquired", "claimed", "elected", "started", "busy", "duplicate", "replayed", "mismatch", "hit", "local_hit", "stale", "miss");
    const rate = last && at > last.at ? Math.max(total - last.total, 0) / (at - last.at) : 0;
    looks.push({ at, total, rate });
    history.set(each.name, looks.slice(-LOOKS));
  }
}

// Calls per second, as a line; its height is that of its own highest point.
function sparkline(name) {
  const rates = (history.get(name) ?? []).slice(1).map((each) => each.rate);
  const top = Math.max(...rates, 0.001);
  const points = rates.map((rate, place) => `${(100 * (LOOKS - rates.length + place)) / LOOKS},${(18 - (16 * rate) / top).toFixed(1)}`);
  return { points: points.join(" "), text: rates.length ? `${rates.at(-1).toPrecision(2)} a second` : "" };
}

const SVG = "http://www.w3.org/2000/svg";

function drawSparkline(cell, name) {
  if (!cell.firstElementChild) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 100 20");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    svg.append(document.createElementNS(SVG, "polyline"));
    cell.className = "spark";
    cell.replaceChildren(svg, el("span"));
  }
  const { points, text } = sparkline(name);
  cell.querySelector("polyline").setAttribute("points", points);
  write(cell.querySelector("span"), text);
}

// ---- figures

const sum = (template, ...kinds) => kinds.reduce((total, kind) => total + (template.counts[kind] ?? 0), 0);

const reads = (template) => sum(template, "hit", "local_hit", "stale", "miss", "loaded", "degraded") > 0;

function drawHolds(templates) {
  const holds = (each) => sum(each, "acquired", "busy", "claimed", "duplicate", "replayed", "mismatch", "elected", "started", "released") > 0;
  const refused = (each) => sum(each, "outage") > 0 && !reads(each);
  const shown = templates.filter((each) => each.name !== "*" && (holds(each) || refused(each)));
  table($("holds"), ["Template", "Granted", "Refused", "Waited, 95 %", "Held, mean", "Held, most", "Lost or late", "Unguarded", "Calls"], shown.map((each) => [
    each.name,
    number(sum(each, "acquired", "claimed", "elected", "started")),
    number(sum(each, "busy", "duplicate", "replayed", "mismatch")),
    seconds(each.waits.p95),
    seconds(each.held_mean),
    seconds(each.held_most),
    number(sum(each, "lost", "late", "deposed")),
    number(each.unguarded),
    each,
  ]), "Nothing was held or claimed yet.");
}

function drawCaches(templates) {
  const shown = templates.filter(reads);
  table($("caches"), ["Template", "Hit rate", "Reads", "Stale", "Loads", "Load, mean", "Load, 95 %", "Load, most", "Degraded", "Calls"], shown.map((each) => [
    each.name,
    each.hit_rate === null ? "–" : `${(100 * each.hit_rate).toFixed(1)} %`,
    number(sum(each, "hit", "local_hit", "stale", "miss")),
    number(sum(each, "stale")),
    number(each.loads.count),
    seconds(each.loads.mean),
    seconds(each.loads.p95),
    seconds(each.loads.most),
    number(sum(each, "degraded")),
    each,
  ]), "Nothing was read through a cache yet.");
}

function table(box, heads, rows, none) {
  if (!box.tHead) {
    const row = el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)));
    box.append(el("thead", {}, row), el("tbody"));
  }
  const body = box.tBodies[0];
  const texts = rows.length ? rows : [[none]];
  while (body.rows.length > texts.length) body.lastChild.remove();
  texts.forEach((cells, place) => {
    let row = body.rows[place];
    if (!row || row.cells.length !== cells.length) {
      const replacement = el("tr", {}, ...cells.map((_, column) => (column ? el("td") : el("th", { scope: "row" }))));
      if (row) row.replaceWith(replacement);
      else body.append(replacement);
      row = replacement;
      if (cells.length === 1) row.cells[0].colSpan = heads.length;
    }
    cells.forEach((cell, column) => (typeof cell === "object" ? drawSparkline(row.cells[column], cell.name) : write(row.cells[column], cell)));
  });
  box.classList.toggle("quiet", rows.length === 0);
}
