// What the server holds: counts, rows, what changes, and releasing one of them.

import { $, bytes, clock, el, long, many, number, seconds, write } from "./dom.js";

const GROUPS = {
  now: ["held now", "held now", "Nothing is held: no lease, no permit, no running claim, no load."],
  leases: ["lease", "leases", "No key is held."],
  permits: ["key with permits", "keys with permits", "No key is held by several at once."],
  claims: ["running claim", "running claims", "No submission or job is running."],
  loads: ["load", "loads", "No value is being loaded."],
  schedules: ["schedule", "schedules", "There is no schedule."],
  rates: ["rate", "rates", "No call is counted."],
  cached: ["cached value", "cached values", "Nothing is cached."],
  streams: ["stream", "streams", "No stream is running or kept."],
  done: ["done", "done", "No submission or job is remembered as done."],
  others: ["other key", "other keys", "There is nothing else."],
};
const STATES = { held: "held", running: "running", done: "done", value: "cached", failed: "failure kept", loading: "loading", resting: "load failed", recorded: "last run", new: "no run yet", counter: "fence", counting: "counting", version: "tag", denied: "hidden by the ACL" };
const CHANGES = { taken: "taken by", freed: "freed by", "handed on": "handed on to", done: "done by" };

const query = { group: "now", order: "ends first", text: "", page: 1 };
const drawn = new Map();
let changed = () => {};
let may = {};
let token = null;

// ---- what is asked for

export const view = () => new URLSearchParams(query).toString();
export const onView = (call) => (changed = call);

function want(wish) {
  Object.assign(query, { page: 1 }, wish);
  changed();
}

for (const group of Object.keys(GROUPS)) {
  const button = el("button", { type: "button", onclick: () => want({ group }) });
  button.dataset.group = group;
  button.append(el("b", {}, "–"), " ", el("span", {}, GROUPS[group][1]));
  $("kinds").append(button);
}
let typing;
$("text").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => want({ text: $("text").value.trim() }), 250);
});
$("order").addEventListener("change", () => want({ order: $("order").value }));
$("tools").addEventListener("submit", (event) => event.preventDefault());
$("before").addEventListener("click", () => want({ page: Math.max(query.page - 1, 1) }));
$("after").addEventListener("click", () => want({ page: query.page + 1 }));
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if ($("server").hidden || $("ask").open) return;
  event.preventDefault();
  $("text").focus();
});

// ---- drawing

export function drawServer(state) {
  ({ may, token } = state);
  $("release-head").hidden = !may.release;
  const { sweep, view: page } = state.server;
  for (const button of $("kinds").children) {
    const { group } = button.dataset;
    const count = sweep?.counts[group];
    const [one, more] = GROUPS[group];
    button.setAttribute("aria-pressed", String(group === query.group));
    write(button.querySelector("b"), count === undefined ? "–" : number(count));
    write(button.querySelector("span"), count === 1 ? one : more);
  }
  if (!sweep || !page) return;
  write($("as-of"), asOf(sweep, page, state.namespace));
  if (page.group !== query.group || page.order !== query.order || page.text !== query.text) return;
  query.page = page.page;
  drawRows(page, sweep, timesToLive(state.process));
  drawPager(page);
  drawChanges(state.server.changes);
}

// The server does not know with which ttl a key was taken; this process knows that of its own.
function timesToLive(process) {
  return new Map((process?.held ?? []).map((each) => [each.key, each.ttl]));
}

function drawChanges(changes) {
  const list = $("changes");
  const texts = changes.map((each) => [clock(each.at), CHANGES[each.what], each.key, each.holder ?? "an unknown process"]);
  list.classList.toggle("quiet", texts.length === 0);
  while (list.children.length > texts.length) list.lastChild.remove();
  while (list.children.length < texts.length) list.append(el("li", {}, el("time"), " ", el("code"), " ", el("span")));
  texts.forEach(([at, what, key, holder], place) => {
    const line = list.children[place];
    line.dataset.what = changes[place].what;
    write(line.children[0], at);
    write(line.children[1], key);
    write(line.children[2], `${what} ${holder}`);
  });
  $("no-changes").hidden = texts.length > 0;
}

function asOf(sweep, page, namespace) {
  const where = namespace ? `keys of the namespace` : "keys";
  const read = sweep.complete ? `${many(sweep.looked, "key")} read in ${seconds(sweep.took)}, ${sweep.age < 1.5 ? "just now" : `${long(sweep.age)} ago`}` : `${many(sweep.looked, "key")} read so far`;
  const parts = [`All ${where}, of every process: ${read}.`];
  if (sweep.cut) parts.push("There are more keys than one reading looks at.");
  if (sweep.unreachable.length) parts.push(`Not read, because they do not answer: ${sweep.unreachable.join(", ")}.`);
  if (!page.searched && !sweep.cut) parts.push(`Looking through all of them${sweep.reading ? `: ${number(sweep.reading)} so far` : ""} …`);
  if (page.listed < page.matching) parts.push(`The first ${number(page.listed)} of ${number(page.matching)} ${GROUPS[page.group][1]} are listed, in this order.`);
  return parts.join(" ");
}

function drawRows(page, sweep, ttls) {
  const ids = new Set(page.rows.map((row) => row.id));
  for (const [id, row] of drawn) {
    if (!ids.has(id)) {
      row.tr.remove();
      drawn.delete(id);
    }
  }
  page.rows.forEach((facts, place) => {
    const row = drawn.get(facts.id) ?? newRow(facts.id);
    fill(row, facts, ttls.get(facts.key));
    const there = $("rows").children[place];
    if (there !== row.tr) $("rows").insertBefore(row.tr, there ?? null);
  });
  $("table").classList.toggle("no-age", page.rows.every((row) => row.age === null));
  write($("left-head"), page.group === "schedules" ? "Next run" : "Remaining");
  $("table").hidden = page.rows.length === 0;
  $("empty").hidden = page.rows.length > 0;
  write($("empty"), page.text ? page.searched ? `Nothing contains “${page.text}”.` : sweep.cut || sweep.unreachable.length ? `Nothing that was read contains “${page.text}”.` : `Looking for “${page.text}” …` : GROUPS[page.group][2]);
  tickServer();
}

function drawPager(page) {
  $("pager").hidden = page.pages < 2;
  write($("place"), `Page ${number(page.page)} of ${number(page.pages)}`);
  $("before").setAttribute("aria-disabled", String(page.page <= 1));
  $("after").setAttribute("aria-disabled", String(page.page >= page.pages));
}

function cell(name, ...children) {
  const td = el("td", { className: name }, ...children);
  td.setAttribute("role", "cell");
  return td;
}

function newRow(id) {
  const row = { id, full: null, permits: "" };
  row.key = el("code");
  row.why = el("button", { type: "button", className: "small why" }, "Why?");
  row.why.onclick = () => why(id, row.why);
  row.about = el("span", { className: "about" });
  row.stuck = el("span", { className: "stuck" });
  row.list = el("ul", { className: "permits", hidden: true });
  row.state = el("span", { className: "state" });
  row.holder = cell("holder");
  row.age = cell("number age");
  row.clock = el("span", { className: "clock" });
  row.countdown = el("i");
  row.act = cell("act");
  row.tr = el("tr", {}, cell("key", row.key, row.why, row.stuck, row.about, row.list), cell("", row.state), row.holder, row.age, cell("number left", row.clock, el("span", { className: "countdown" }, row.countdown)), row.act);
  row.tr.setAttribute("role", "row");
  drawn.set(id, row);
  return row;
}

function fill(row, facts, ttl) {
  const now = performance.now() / 1000;
  row.facts = facts;
  const left = facts.kind === "schedule" ? facts.due : facts.remaining;
  row.ends = left === null ? null : now + left;
  row.full = full(facts, ttl);
  row.began = facts.age === null ? null : now - facts.age;
  write(row.key, facts.key);
  row.why.setAttribute("aria-label", `Why is ${facts.key} so?`);
  write(row.stuck, facts.stuck ? `stuck: ${facts.stuck}` : "");
  write(row.about, about(facts));
  write(row.state, STATES[facts.state] ?? facts.state);
  row.state.dataset.state = facts.state;
  write(row.holder, facts.holder ?? facts.loading ?? (facts.count ? many(facts.count, "holder") : ""));
  fillPermits(row, facts);
  fillButton(row.act, facts, facts);
}

// What the whole bar stands for; null: it is not known, and there is no bar.
function full(facts, ttl) {
  if (ttl) return ttl;
  const isValue = facts.kind === "cached" || facts.kind === "done";
  return isValue && facts.age !== null && facts.remaining !== null ? facts.age + facts.remaining : null;
}

function about(facts) {
  const parts = [];
  if (facts.waiting) parts.push(`${many(facts.waiting, "process waits", "processes wait")}`);
  if (facts.used !== null) parts.push(`${number(facts.used)} used up`);
  if (facts.note) parts.push(facts.note);
  if (facts.of) parts.push(`of ${facts.of}`);
  if (facts.kind === "cached" && facts.size !== null) parts.push(bytes(facts.size));
  if (facts.took !== null) parts.push(`loaded in ${seconds(facts.took)}`);
  if (facts.ended) parts.push(facts.ended);
  if (facts.fence !== null) parts.push(`fence ${facts.fence}`);
  return parts.join(" · ");
}

function fillPermits(row, facts) {
  const summary = facts.permits.map((each) => `${each.holder} ${each.seen} ${Math.round(each.remaining)}`).join();
  const who = facts.permits.map((each) => `${each.holder} ${each.seen}`).join();
  row.list.hidden = facts.permits.length === 0;
  if (row.permits !== who) {
    row.permits = who;
    row.list.replaceChildren(...facts.permits.map((each) => {
      const act = el("span", { className: "act" });
      fillButton(act, facts, each);
      return el("li", {}, el("span", {}, each.holder ?? "?"), el("span", { className: "clock" }), act);
    }));
  }
  if (summary) facts.permits.forEach((each, place) => write(row.list.children[place].querySelector(".clock"), each.remaining ? long(each.remaining) : "expired"));
}

// *holding*: the row itself, or one of its permits.
function fillButton(place, facts, holding) {
  const { seen, holder } = holding;
  if (!may.release || !seen) return place.replaceChildren();
  const button = place.firstChild ?? el("button", { type: "button", className: "small" }, "Release …");
  button.setAttribute("aria-label", `Release ${facts.key}, held by ${holder ?? "an unknown process"}`);
  button.onclick = () => release(facts, holding);
  if (!button.parentElement) place.append(button);
}

export function tickServer() {
  const now = performance.now() / 1000;
  for (const row of drawn.values()) {
    const remaining = row.ends === null ? null : Math.max(row.ends - now, 0);
    const isSchedule = row.facts.kind === "schedule";
    write(row.clock, isSchedule ? nextRun(row, now) : remaining === null ? "no expiry" : remaining === 0 ? "expired" : long(remaining));
    row.tr.classList.toggle("over", remaining === 0 && !isSchedule);
    row.tr.classList.toggle("alarming", Boolean(row.facts.stuck) || (isSchedule && row.ends !== null && now - row.ends > GRACE));
    row.tr.classList.toggle("soon", !isSchedule && remaining !== null && remaining < 10);
    row.countdown.parentElement.hidden = row.full === null;
    row.countdown.style.transform = `scaleX(${remaining === null || !row.full ? 0 : Math.min(remaining / row.full, 1)})`;
    write(row.age, row.began === null ? "" : long(now - row.began));
  }
}

// Seconds by which a run is late before it is worth a look.
const GRACE = 60;

function nextRun(row, now) {
  if (row.ends === null) return "not known";
  return row.ends >= now ? `in ${long(row.ends - now)}` : `due ${long(now - row.ends)} ago`;
}

// ---- why: the same as `dibs why`

async function why(id, from) {
  const reason = await fetch(`api/why?id=${encodeURIComponent(id)}`).then((answer) => answer.json()).catch(() => ({ error: "No answer came." }));
  write($("why-title"), reason.key ?? reason.error);
  $("why-facts").replaceChildren(...(reason.facts ?? []).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  $("why-text").replaceChildren(...[reason.next, ...(reason.advice ?? [])].filter(Boolean).map(paragraph));
  $("why-close").onclick = () => $("why").close();
  $("why").addEventListener("close", () => from.focus(), { once: true });
  $("why").showModal();
}

// A text in which commands stand between backticks.
function paragraph(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return el("p", {}, text);
  return el("p", {}, ...parts.map((part, place) => (place % 2 ? command(part) : part)));
}

function command(text) {
  const copy = el("button", { type: "button", className: "copy" }, "Copy");
  copy.setAttribute("aria-label", `Copy ${text}`);
  copy.onclick = async () => write(copy, (await copied(text)) ? "Copied" : "Select it");
  return el("span", { className: "command" }, el("code", {}, text), " ", copy);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// ---- releasing: asks twice, and names what was seen

async function release(facts, { seen, holder, remaining }) {
  const who = holder ?? "an unknown process";
  const next = facts.kind === "permits" ? "The next caller gets this permit at once: then one more works than the limit allows." : "The next caller gets the key at once: then two work at the same time.";
  const first = await ask(`Release ${facts.key}?`, [
    facts.kind === "done" ? "This submission was done. Without its record, the next one with the same key is done again." : `${who} has it${remaining === null ? "" : `, for ${long(remaining)} more at most`}, and may still be at work.`,
    facts.kind === "done" ? "" : `${next} Its work is not stopped: end its process first. If that process is already gone, nothing is lost.`,
  ], facts.kind === "done" ? "Delete it …" : "Release it …");
  if (!first) return;
  const second = await ask("Are you sure?", [`${facts.key} is released now, if ${facts.kind === "done" ? "it is" : `${who} has it`} still as you have seen it. A later holder is not touched. This cannot be undone.`], facts.kind === "done" ? "Delete the record" : `Release it from ${who}`);
  if (!second) return;
  write($("note"), "…");
  write($("note"), await send(facts.id, seen));
}

async function send(id, seen) {
  try {
    const answer = await fetch("api/release", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Dibs-Console": token ?? "" },
      body: JSON.stringify({ id, seen }),
    });
    const body = await answer.json();
    return body.said ?? body.error;
  } catch {
    return "No answer came. Whether it was released is not known: look at the list.";
  }
}

function ask(title, texts, yes) {
  const dialog = $("ask");
  const from = document.activeElement;
  write($("ask-title"), title);
  $("ask-text").replaceChildren(...texts.filter(Boolean).map((text) => el("p", {}, text)));
  write($("ask-yes"), yes);
  // Not by the event "close": it comes later, perhaps when the next question is open.
  const answered = new Promise((resolve) => {
    const answer = (is) => {
      dialog.close();
      from?.focus?.();
      resolve(is);
    };
    $("ask-yes").onclick = () => answer(true);
    $("ask-no").onclick = () => answer(false);
    dialog.oncancel = (event) => {
      event.preventDefault();
      answer(false);
    };
  });
  dialog.showModal();
  $("ask-no").focus();
  return answered;
}
