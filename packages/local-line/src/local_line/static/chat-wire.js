// What went over the wire: a row for each webhook and call, in the order in which they began, and all of it on click.

import { pretty } from "./chat-json.js";
import { word } from "./chat-words.js";

const MOST_ROWS = 100;
const box = document.querySelector("#wire"), list = box.querySelector("ol"), empty = document.querySelector("#wire-empty");
const make = (tag, className, ...children) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...children);
  return element;
};

const took = (seconds) => (seconds < 1 ? `${Math.max(Math.round(seconds * 1000), 1)} ms` : `${seconds.toFixed(2)} s`);
const REASON = { request_timeout: "noAnswer", could_not_connect: "noConnection", unclassified: "noHttp" };

/** What the bot's author can do about a webhook that failed. */
function advice({ reason, status }) {
  if (reason !== "error_status_code") return word(REASON[reason] ?? "");
  if ([400, 401, 403].includes(status)) return word("sameSecret");
  return word([404, 405].includes(status) ? "rightPath" : "botFailed");
}

function clock(at) {
  const date = new Date(at * 1000);
  return `${date.toLocaleTimeString("en-GB")}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** Redraw all rows, the newest first. */
export function drawRows(rows, act) {
  list.replaceChildren();
  for (const row of rows) addRow(row, act);
  empty.hidden = list.children.length > 0;
}

/** A row is written when it is answered, and stands where it began. */
export function addRow(row, act) {
  const later = [...list.children].findLast((each) => Number(each.dataset.number) > row.number);
  if (later) later.after(wireRow(row, act));
  else list.prepend(wireRow(row, act));
  empty.hidden = true;
  while (list.children.length > MOST_ROWS) list.lastChild.remove();
}

function wireRow(row, act) {
  const isWebhook = row.kind === "delivery";
  const isFine = isWebhook ? row.reason === "ok" : row.status < 400;
  const line = make("li", `${isWebhook ? "out" : "in"} ${isFine ? "fine" : "failed"}${row.isKnown === false ? " unknown" : ""}`);
  line.dataset.number = row.number;
  const arrow = make("b", "arrow", isWebhook ? "→" : "←");
  arrow.setAttribute("aria-hidden", "true");
  const what = make("span", "what", make("span", "unseen", word(isWebhook ? "webhookRow" : "callRow")), ...(isWebhook ? events(row) : call(row)));
  const status = make("span", "status", String(row.status ?? "–"));
  const summary = make("summary", "", make("time", "", clock(row.at)), arrow, what, status, make("span", "took", took(row.took)));
  const remark = isWebhook ? advice(row) : row.note;
  if (remark) summary.append(make("small", "remark", remark));
  const details = make("details", "", summary);
  details.addEventListener("toggle", () => open(details, row.number, act), { once: true });
  line.append(details);
  return line;
}

function events({ events, isRedelivery, isStandby }) {
  const tags = [isRedelivery && word("redelivered"), isStandby && word("onStandby")].filter(Boolean);
  return [events.join(" + "), ...tags.map((tag) => make("em", "", tag))];
}

function call({ method, route, isKnown }) {
  const tags = isKnown === false ? [make("em", "", word("unknownCall"))] : [];
  // On a narrow screen a route is broken before a slash, not in a word.
  const parts = route.replace("/v2/bot/", "").split(/(?=\/)/).flatMap((part) => [document.createElement("wbr"), part]);
  return [`${method} `, make("code", "", ...parts), ...tags];
}

// ---- in full

async function open(details, number, act) {
  const answer = await fetch(`api/row/${number}`).catch(() => null);
  if (!answer?.ok) return;
  const { request, answer: answered, curl, reference } = await answer.json();
  const buttons = make("p", "row-buttons", button("curl", () => act.copy(curl)), button("replay", () => act.replay(number)));
  if (reference) buttons.append(Object.assign(make("a", "", word("reference")), { href: reference, target: "_blank", rel: "noopener noreferrer" }));
  const parts = [make("h3", "", word("request")), pretty(request)];
  if (answered !== null) parts.push(make("h3", "", word("answer")), pretty(answered));
  details.append(make("div", "in-full", buttons, ...parts));
  showWhole(details.parentElement);
}

/** The list moves up for what unfolds below its end; the page stays where it is. */
function showWhole(line) {
  if (line.offsetTop + line.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = line.offsetTop;
}

function button(name, act) {
  const element = Object.assign(make("button", "", word(name)), { type: "button" });
  element.addEventListener("click", act);
  return element;
}
