// The page decides nothing: it draws what the console says and passes clicks on.

import { $, clock, write } from "./dom.js";
import { drawFacts } from "./facts.js";
import { drawProcess, letListsScroll } from "./process.js";
import { drawServer, onView, tickServer, view } from "./server.js";

const POLL = 2000;
const SOON = 300;
const SILENT = 4000;

let receivedAt = Date.now();
let timer = null;
let asking = 0;
let since = null;

// ---- what the console says

function draw(state) {
  receivedAt = Date.now();
  const named = state.namespace ? `, namespace ${state.namespace}` : "";
  write($("where"), `console for ${state.target}${named}`);
  drawServer(state);
  drawFacts(state);
  $("to-process").parentElement.hidden = state.process === null;
  if (state.process) drawProcess(state.process, state.at);
  else if (location.hash === "#process") location.hash = "#server";
  say(trouble(state.server, state.at));
}

// An alert is read aloud whenever it changes: it has no seconds that run on.
function trouble({ failure, failing, sweep }, at) {
  since = failure ? (since ?? clock(at - failing)) : null;
  if (!failure) return "";
  const old = sweep ? " What is listed was read before." : "";
  return `The server cannot be read since ${since}: ${failure.replace(/\.$/, "")}.${old} This page goes on by itself when it answers again.`;
}

function say(text) {
  $("gone").hidden = text === "";
  write($("gone"), text);
}

setInterval(() => {
  tickServer();
  if (Date.now() - receivedAt > SILENT) {
    say("This page gets no answer from its application. It goes on by itself when the application is back.");
  }
}, 250);

// ---- where it comes from: a question every two seconds, or sooner while keys are read for it

async function ask() {
  clearTimeout(timer);
  const mine = ++asking;
  let pause = POLL;
  try {
    const answer = await fetch(`api/state?${view()}`, { cache: "no-store" });
    const state = answer.ok ? await answer.json() : null;
    if (mine !== asking) return;
    if (state) draw(state);
    if (state?.server.sweep?.reading != null) pause = SOON;
    if (answer.status === 403) say("You may no longer see this page.");
  } catch {
    // No answer: the timer above says so.
  }
  if (mine === asking) timer = setTimeout(ask, pause);
}

onView(ask);

// A hidden page asks nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    asking++;
  } else {
    receivedAt = Date.now();
    ask();
  }
});

// ---- pages

const panels = ["server", "process", "facts"];

function turn(focus) {
  const name = panels.includes(location.hash.slice(1)) ? location.hash.slice(1) : "server";
  for (const each of panels) $(each).hidden = each !== name;
  for (const link of document.querySelectorAll(".masthead nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `dibs – ${$(`${name}-title`).textContent}`;
  letListsScroll();
  if (focus) $(`${name}-title`).focus();
}

addEventListener("hashchange", () => {
  if (location.hash === "#panels") return;
  turn(true);
  scrollTo(0, 0);
});

turn(false);
ask();
