// The page decides nothing: it draws what the server says and passes clicks on.

import { broken } from "/static/faults.js";

const PEOPLE = { ann: "Ann", ben: "Ben" };
const PAST = 20, AHEAD = 10; // seconds on the timeline
const MOST_EVENTS = 60;
const BUDGET = 250; // ms: what dibs lets one call to the server cost, by default

const $ = (selector, from = document) => from.querySelector(selector);
const seconds = (value) => value.toFixed(1);
const ms = (value) => (value < 0.1 ? (value * 1000).toFixed(1) : Math.round(value * 1000)) + " ms";
const now = () => performance.now() / 1000;

let state = null; // the last thing the server said,
let heardAt = 0; // and when
const since = () => now() - heardAt;
const left = (value) => Math.max(value - since(), 0);

// ---- clicks go out

async function send(method, path, body) {
  const options = { method };
  if (body) Object.assign(options, { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  try {
    const answer = await fetch(path, options);
    // 404: it had ended before the click arrived. The stream says what came of it.
    if (![200, 202, 404].includes(answer.status)) showProblem((await answer.json()).error);
  } catch {
    // The stream notices, too, and says so.
  }
}

const ttl = () => Number($("#ttl").value);

const actions = {
  enter: (person) => send("POST", `/hold/${person}`, { ttl: ttl() }),
  wait: (person) => send("POST", `/hold/${person}`, { ttl: ttl(), wait: 10 }),
  leave: (person) => send("DELETE", `/hold/${person}`),
};

for (const card of document.querySelectorAll(".person")) {
  card.addEventListener("click", (event) => {
    const action = event.target.dataset.do;
    if (action) actions[action](card.dataset.person);
  });
}
// A and B press the first button of Ann's and Ben's card.
document.addEventListener("keydown", ({ key, ctrlKey, metaKey, altKey, target }) => {
  if (ctrlKey || metaKey || altKey || $("#hold").hidden || target.matches("input, select")) return;
  const card = $({ a: ".person.ann", b: ".person.ben" }[key.toLowerCase()] ?? "#none");
  card?.querySelector("button:not([hidden])")?.click();
});

function showTtl() {
  const { min, max, value, style } = $("#ttl");
  $("#ttl-now").value = `${value} s`;
  style.setProperty("--full", `${((value - min) / (max - min)) * 100}%`);
}
$("#ttl").addEventListener("input", showTtl);
showTtl(); // a reload may have kept another value

// ---- the stream comes in

const stream = new EventSource("/hold/events");
stream.addEventListener("open", () => { $("#gone").hidden = true; });
stream.addEventListener("error", () => { $("#gone").hidden = false; });
stream.addEventListener("dibs", (message) => addEvent(JSON.parse(message.data)));
stream.addEventListener("state", (message) => {
  state = JSON.parse(message.data);
  heardAt = now();
  remember();
  drawCode();
  draw();
});

// ---- the two cards

/** What a card shows: a sentence, a small fact, seconds left of how many, and what its buttons do. */
function cardOf(person, status) {
  const name = PEOPLE[person], ask = person === "ann" ? "Hold it" : "Try it";
  const other = person === "ann" ? "Ben" : "Ann";
  const ready = { enter: ask, wait: "Wait for it", mood: "" };
  switch (status.is) {
    case "in": {
      const card = { clock: left(status.remaining), of: status.ttl, leave: "Let go" };
      if (!status.guarded) return { ...card, says: "Let through, unguarded. The server did not answer, so nobody else is kept out.", fact: unguardedFact(status) };
      if (status.after_release !== null) return { ...card, says: `${name} has it, ${ms(status.after_release)} after ${status.ran_out ? `${other}’s time ran out` : `${other} let go`}.`, fact: `woken after a wait of ${seconds(status.took)} s` };
      return { ...card, says: `${name} has it.`, fact: `answered in ${ms(status.took)}` };
    }
    case "waiting":
      if (!status.wait) return { says: `${name} asks …`, fact: "", ...ready };
      return { says: `${name} waits, and will be woken by the release.`, fact: "for at most 10 s, without asking over and over", clock: left(status.left), of: status.wait, stop: "Stop waiting" };
    case "refused":
      return refusedCard(name, other, status, ready);
    case "left":
      return { ...ready, ...leftCard(name, status) };
    default:
      return { ...ready, says: person === "ann" ? "Ann wants the key." : "Ben wants the same key.", fact: "" };
  }
}

function refusedCard(name, other, status, ready) {
  const clock = left(status.left);
  const waited = status.wait ? `waited ${seconds(status.took)} s in vain` : `answered in ${ms(status.took)}`;
  if (clock > 0 && state.held) {
    return { ...ready, enter: "Try again", mood: "quiet", clock, of: status.retry_after, says: `Busy – ${other} has it. It will be free when this clock runs out, or sooner.`, fact: waited };
  }
  return { ...ready, enter: "Try again", mood: "inviting", says: `It is free now: ${name}’s turn?`, fact: "" };
}

function unguardedFact(status) {
  const took = ms(status.took);
  return status.took * 1000 < BUDGET / 2 ? `answered in ${took}: the outage is known by now` : `answered in ${took}, of a budget of ${BUDGET} ms`;
}

function leftCard(name, status) {
  switch (status.how) {
    case "released": return { says: `${name} let go.`, fact: `held it for ${seconds(status.held)} s` };
    case "late": return { says: `${name}’s time ran out, so the server freed the key.`, fact: `held it for ${seconds(status.held)} s` };
    case "killed": return { says: `${name}’s process was killed. Nobody can release the key: it is free when its time is over.`, fact: status.held === undefined ? "" : `had it for ${seconds(status.held)} s` };
    case "unguarded": return { says: `${name} is done. There was no lease to give back.`, fact: "" };
    default: return { says: `${name} stopped waiting. Nothing was left behind.`, fact: "" };
  }
}

function drawCard(person) {
  const box = $(`[data-person=${person}]`), status = state.people[person], card = cardOf(person, status);
  const [main, second] = box.querySelectorAll("button");
  box.dataset.is = status.is;
  box.dataset.guarded = status.is === "in" ? status.guarded : "";
  write($(".says", box), card.says);
  write($(".fact", box), card.fact);
  const counts = card.clock !== undefined;
  write($(".clock", box), counts ? seconds(card.clock) : "", counts ? "s" : "");
  $(".countdown i", box).style.transform = `scaleX(${counts ? Math.min(card.clock / card.of, 1) : 0})`;
  const focus = document.activeElement;
  button(main, card.leave ? ["leave", card.leave] : card.enter && ["enter", card.enter]);
  if (second) button(second, card.stop ? ["leave", card.stop] : card.wait && ["wait", card.wait]);
  else if (card.stop) button(main, ["leave", card.stop]);
  main.className = `main ${card.mood ?? ""}`;
  if (focus === main && main.hidden) second.focus();
  if (focus === second && second?.hidden) main.focus();
}

function button(element, does) {
  element.hidden = !does;
  if (!does) return;
  element.dataset.do = does[0];
  write(element, does[1]);
}

/** Only where it differs: a live region would read it again. */
function write(element, text, unit = "") {
  if (element.textContent === text + unit) return;
  element.textContent = text;
  if (unit) element.append(Object.assign(document.createElement("small"), { textContent: unit }));
}

// ---- the five lines, and on which of them it stands

let drawnCode = "";
function drawCode() {
  const person = state.last ?? "ann", status = state.people[person];
  const wait = status.wait ? `, wait=${status.wait}` : "";
  const lines = [
    ["try:"],
    [`    async with ${person}.hold("${state.key}", ttl=${status.ttl ?? ttl()}${wait}) as lease:`],
    ["        await stay(lease)"],
    ["except Busy as busy:"],
    ["    turned_away(busy)"],
  ];
  const [at, remark] = standing(status);
  if (at !== null) lines[at].push(remark);
  const drawn = JSON.stringify([lines, at]);
  if (drawn === drawnCode) return; // else a selection would be lost
  drawnCode = drawn;
  $(".code").className = `code ${state.last ?? ""}`;
  write($("#code-title"), state.last ? `What just ran, for ${PEOPLE[person]}` : "What will run");
  $("#code").replaceChildren(...lines.map(([text, remark], i) => codeLine(text, remark, i === at)));
}

function standing(status) {
  switch (status.is) {
    case "in": return [2, `lease.guarded is ${status.guarded ? "True" : "False"}`];
    case "waiting": return [1, status.wait ? "waits here" : "asks"];
    case "refused": return [4, `busy.retry_after was ${status.retry_after.toFixed(3)}, busy.holder "${status.holder}"`];
    case "left": return [1, { released: "left: released", late: "left: too late, the key was free already", unguarded: "left: nothing to release", killed: "killed: nothing was released" }[status.how] ?? "cancelled: no key is left behind"];
    default: return [null];
  }
}

const KEYWORD = /^(try|async|with|as|await|except)$/;
function codeLine(text, remark, isNow) {
  const line = Object.assign(document.createElement("span"), { className: isNow ? "line now" : "line" });
  for (const part of text.split(/\b(try|async|with|as|await|except)\b|(?<=hold\()/)) {
    if (KEYWORD.test(part)) line.append(Object.assign(document.createElement("span"), { className: "word", textContent: part }));
    else if (part) line.append(part);
    if (part?.endsWith("hold(")) line.append(document.createElement("wbr")); // where a narrow screen may break it
  }
  if (remark) line.append(Object.assign(document.createElement("span"), { className: "remark", textContent: `  # ${remark}` }));
  line.append("\n");
  return line;
}

// ---- the key

/** Who of the two has the key, or died with it; undefined: neither. */
const holder = () => living() ?? dead();
const dead = () => {
  const killed = Object.keys(PEOPLE).find((person) => state.people[person].how === "killed" && state.people[person].guarded);
  return killed && `${PEOPLE[killed]}’s dead process`;
};
const living = () => PEOPLE[Object.keys(PEOPLE).find((person) => state.people[person].is === "in" && state.people[person].guarded)];

function drawServer() {
  const { held, answers } = state;
  write($("#key"), state.key);
  write($("#held"), !answers ? "– no answer" : held && left(held.remaining) > 0 ? `is held by ${holder() ?? held.holder} for ${seconds(left(held.remaining))}\u00a0s` : "is free");
  write($("#note"), now() < problem.until ? problem.text : broken() === "stop" ? ADVICE : "");
}

const ADVICE = "Try Ann or Ben now: they still get an answer within 0.25 s, and are told that it is unguarded.";
let problem = { text: "", until: 0 };
function showProblem(text) { problem = { text, until: now() + 6 }; }

// ---- the timeline: the last twenty seconds, and what is promised of the next ten

const spans = []; // { person, kind, from, to }; no `to`: still going on

function remember() {
  for (const person of Object.keys(PEOPLE)) {
    const { is, guarded, wait } = state.people[person];
    follow(person, is === "in" ? (guarded ? "in" : "unguarded") : is === "waiting" && wait ? "waiting" : null);
    follow(person, state.out ? "out" : null, true);
  }
  while (spans.length && spans[0].to < now() - PAST) spans.shift();
}

function follow(person, kind, isOutage = false) {
  const open = spans.find((span) => span.person === person && !span.to && (span.kind === "out") === isOutage);
  if (open?.kind === kind) return;
  if (open) open.to = now();
  if (kind) spans.push({ person, kind, from: now() });
}

function drawRibbon() {
  for (const person of Object.keys(PEOPLE)) {
    const status = state.people[person];
    const marks = spans.filter((span) => span.person === person).sort((a, b) => (b.kind === "out") - (a.kind === "out"))
      .map((span) => mark(span.kind, span.from, span.kind === "busy" ? null : span.to ?? now()));
    if (status.is === "in" && status.guarded) marks.push(mark("ahead", now(), now() + left(status.remaining)));
    $(`.lane.${person} .track`).replaceChildren(...marks);
  }
}

function mark(kind, from, to) {
  const element = Object.assign(document.createElement("i"), { className: kind });
  const place = (time) => ((time - now() + PAST) / (PAST + AHEAD)) * 100;
  element.style.left = `${place(from)}%`;
  if (to !== null) element.style.width = `${place(to) - place(from)}%`;
  return element;
}

for (const [at, text] of [[-20, "20 s ago"], [-10, "10 s ago"], [0, "now"], [10, "in 10 s"]]) {
  const label = Object.assign(document.createElement("span"), { textContent: text, className: at ? "" : "now" });
  label.style.left = `${((at + PAST) / (PAST + AHEAD)) * 100}%`;
  $(".scale").append(label);
}

// ---- the events

function addEvent(event) {
  const row = document.createElement("li");
  row.className = event.who;
  const cell = (tag, className, textContent) => row.append(Object.assign(document.createElement(tag), { className, textContent }));
  cell("time", "", clockTime(event.at));
  cell("span", "who", PEOPLE[event.who]);
  cell("span", event.kind === "outage" ? "kind outage-kind" : "kind", event.kind);
  cell("span", "facts", facts(event));
  cell("span", "name", event.name);
  $("#events").prepend(row);
  $("#empty").hidden = true;
  while ($("#events").children.length > MOST_EVENTS) $("#events").lastChild.remove();
  if (event.kind === "busy") spans.push({ person: event.who, kind: "busy", from: now(), to: now() });
}

function clockTime(at) {
  const date = new Date(at * 1000);
  return `${date.toLocaleTimeString("en-GB")}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

function facts(event) {
  const said = [];
  if (event.guarded === false) said.push("unguarded");
  if (event.waited) said.push(`waited ${event.waited.toFixed(3)} s`);
  if (event.held !== undefined) said.push(`held ${event.held.toFixed(3)} s`);
  if (event.retry_after !== undefined) said.push(`retry after ${event.retry_after.toFixed(3)} s`);
  if (event.lasted !== undefined) said.push(`lasted ${event.lasted.toFixed(1)} s`);
  if (event.kind === "late") said.push("its time ran out first");
  if (event.detail) said.push(event.detail);
  return said.join(", ");
}

// ---- time goes by

function draw() {
  if (!state) return;
  for (const person of Object.keys(PEOPLE)) drawCard(person);
  drawServer();
  drawRibbon();
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");
function tick() {
  draw();
  if (calm.matches) setTimeout(tick, 250);
  else requestAnimationFrame(tick);
}
tick();
