// The Flex pad: JSON is drawn and checked while it is written, and sent to a chat.

import { bubble } from "./chat-bubbles.js";
import { choosePerson, errorOf, tryOut } from "./chat-tries.js";
import { switchLanguage, translate, word } from "./chat-words.js";

const $ = (selector) => document.querySelector(selector);
const KEY = "local-line.pad", PAUSE = 250; // milliseconds without a key, then it is looked at
const EXAMPLE = {
  type: "bubble",
  hero: { type: "image", url: "https://example.com/coffee.png", size: "full", aspectRatio: "20:9", aspectMode: "cover" },
  body: {
    type: "box",
    layout: "vertical",
    spacing: "sm",
    contents: [
      { type: "text", text: "Latte", weight: "bold", size: "xl" },
      { type: "text", text: "Ready in 8 minutes", color: "#666666", size: "sm", wrap: true },
    ],
  },
  footer: {
    type: "box",
    layout: "horizontal",
    spacing: "sm",
    contents: [
      { type: "button", style: "primary", action: { type: "postback", label: "Pay", data: "pay=17", displayText: "I pay" } },
      { type: "button", style: "secondary", action: { type: "message", label: "Cancel", text: "Cancel" } },
    ],
  },
};

translate();
choosePerson();
$("#language").addEventListener("click", switchLanguage);

const who = () => ({ as: $("#person").value, place: $("#place").value });
const act = (action) => tryOut(action, who());
const field = $("#json");

function stored() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

function keep() {
  try { localStorage.setItem(KEY, field.value); } catch { /* it is gone with the page then */ }
}

// ---- what LINE says

let asking = 0, timer; // only the last answer counts

field.addEventListener("input", () => {
  keep();
  number(new Set());
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE);
});
field.addEventListener("scroll", () => { $("#numbers").scrollTop = field.scrollTop; });

async function check() {
  const question = ++asking;
  const answer = await fetch("api/pad/check", { method: "POST", body: field.value }).catch(() => null);
  if (question !== asking) return;
  if (!answer?.ok) { $("#verdict").textContent = await errorOf(answer); return; }
  show(await answer.json());
}

function show({ messages, refusal, mistakes }) {
  $("#verdict").textContent = refusal ? `LINE: ${refusal}` : word("accepted");
  $("#verdict").classList.toggle("refused", Boolean(refusal));
  $("#preview").classList.toggle("stale", Boolean(refusal));
  $("#send").disabled = Boolean(refusal);
  $("#mistakes").replaceChildren(...mistakes.map(mistakeRow));
  number(new Set(mistakes.map(({ line }) => line)));
  if (!refusal) draw(messages);
}

function mistakeRow({ line, column, property, message }) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: word("atLine", line) });
  button.addEventListener("click", () => select(line, column));
  const item = document.createElement("li"), code = document.createElement("code");
  code.textContent = property;
  item.append(button, " ", code, property ? " " : "", message);
  return item;
}

/** The numbers beside the lines; those with a mistake stand out. */
function number(wrong) {
  const lines = field.value.split("\n").map((_, index) => {
    const mark = document.createElement(wrong.has(index + 1) ? "b" : "span");
    mark.textContent = `${index + 1}\n`;
    return mark;
  });
  $("#numbers").replaceChildren(...lines);
  $("#numbers").scrollTop = field.scrollTop;
}

function select(line, column) {
  const lines = field.value.split("\n"), before = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  field.focus();
  field.setSelectionRange(before + column - 1, before + lines[line - 1].length);
  field.scrollTop = (line - 4) * Number.parseFloat(getComputedStyle(field).lineHeight);
}

// ---- what it looks like

function draw(messages) {
  const entries = messages.map((message) => ({ author: "bot", message, at: Date.now() / 1000 }));
  $("#rows").replaceChildren(...entries.map((entry, index) => bubble(entry, act, { previous: entries[index - 1] })));
  const items = messages.at(-1)?.quickReply?.items ?? [];
  $("#quick").hidden = items.length === 0;
  $("#quick").replaceChildren(...items.map(({ action }) => quickButton(action)));
}

function quickButton(action) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: action.label });
  button.addEventListener("click", () => act(action));
  return button;
}

// ---- buttons

function write(text) {
  field.value = text;
  keep();
  number(new Set());
  check();
}

$("#format").addEventListener("click", () => {
  try { write(JSON.stringify(JSON.parse(field.value), null, 2)); } catch { field.focus(); }
});
$("#example").addEventListener("click", () => write(JSON.stringify(EXAMPLE, null, 2)));

$("#send-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const query = new URLSearchParams({ input: JSON.stringify(who()) });
  const answer = await fetch(`api/pad/send?${query}`, { method: "POST", body: field.value }).catch(() => null);
  $("#note").textContent = answer?.ok ? word("inTheChat") : await errorOf(answer);
});

write(stored() ?? JSON.stringify(EXAMPLE, null, 2));
