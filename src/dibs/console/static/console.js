// The page decides nothing: it draws what the console says and passes clicks on.

import { $, clock, write } from "./dom.js";
import { drawFacts } from "./facts.js";
import { drawProcess, letListsScroll } from "./process.js";
import { drawServer, onView, tickServer, view } from "./server.js";

const POLL = 2000;
const SILENT = 4000;
const live = document.body.dataset.updates === "stream";

let receivedAt = Date.now();
let stream = null;
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

// ---- where it comes from: a stream; or questions, where there is none

function connect() {
  stream?.close();
  clearTimeout(timer);
  if (live) open();
  else ask();
}

function open() {
  const mine = (stream = new EventSource(`api/events?${view()}`));
  mine.onmessage = (message) => mine === stream && draw(JSON.parse(message.data));
  mine.onerror = () => {
    // Closed: the console has refused; there may be too many viewers. Else it connects by itself.
    if (mine === stream && mine.readyState === EventSource.CLOSED) timer = setTimeout(ask, 500);
  };
}

async function ask() {
  const mine = ++asking;
  try {
    const answer = await fetch(`api/state?${view()}`, { cache: "no-store" });
    if (answer.ok && mine === asking) draw(await answer.json());
    else if (answer.status === 403) say("You may no longer see this page.");
  } catch {
    // No answer: the timer above says so.
  }
  if (mine === asking) timer = setTimeout(ask, POLL);
}

onView(connect);

// A hidden page asks nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stream?.close();
    clearTimeout(timer);
    asking++;
  } else {
    receivedAt = Date.now();
    connect();
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
connect();
