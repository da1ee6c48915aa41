// A phone. The page decides nothing: it shows what was said, and every tap leaves at once.
//
// The address says whose phone it is, where, and in which language: ?as=ben&place=group&lang=zh

import { switchLanguage, translate, word } from "./chat-words.js";
import { asked } from "./chat-actions.js";
import { bubble, dots, mark, takeBack } from "./chat-bubbles.js";
import { drawMenu } from "./chat-menu.js";
import { drawPeople } from "./chat-people.js";
import { askForPlace } from "./chat-places.js";
import { askForTime } from "./chat-times.js";
import { addRow, drawRows } from "./chat-wire.js";

const $ = (selector) => document.querySelector(selector);
const address = new URLSearchParams(location.search);
const person = ["ann", "ben", "cleo"].includes(address.get("as")) ? address.get("as") : "ann";
const isBare = address.has("bare"); // a phone beside another one: no tools
const MOST_ROWS = 500; // the server keeps as many

let state = null; // the last state of the stream
const arrived = new Map(); // event id → whether the bot has it
let dismissed = null; // the message whose quick replies were used
let quoted = null; // the message that the next one answers

translate();
document.body.classList.toggle("bare", isBare);
$(`[name=place][value="${CSS.escape(address.get("place") ?? "private")}"]`)?.click();
$("#language").addEventListener("click", switchLanguage);

const place = () => $("[name=place]:checked").value;
const chatName = () => (place() === "anonymous" ? "group" : place());
const chat = () => state.chats[chatName()];

// ---- taps go out, each at once

const input = () => ({ as: person, place: place(), standby: $("#standby").checked, redelivery: $("#redelivery").checked });

async function post(path, options) {
  try {
    const answer = await fetch(path, { method: "POST", ...options });
    note(answer.ok ? "" : (await answer.json()).error);
    return answer.ok;
  } catch {
    note(word("notSent"));
    return false;
  }
}

const send = (verb, facts = {}) => post(`api/${verb}`, { headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ...input(), ...facts }) });

function upload(file) {
  const query = new URLSearchParams({ input: JSON.stringify(input()), name: file.name });
  return post(`api/upload?${query}`, { headers: { "Content-Type": file.type || "application/octet-stream" }, body: file });
}

const note = (text) => { $("#note").textContent = text; };

const actions = {
  uri: (action) => open(action.uri),
  location: () => shareLocation(),
  clipboard: (action) => copy(action.clipboardText),
  unsend: ({ id }) => send("unsend", { id }),
  quote: (entry) => quote(entry),
  async datetimepicker(action) {
    const picked = await askForTime(action);
    if (picked) send("tap", { data: action.data, params: { [action.mode]: picked } });
  },
};

/** What a button, an area or a card does. */
function act(action) {
  const request = asked(action);
  if (request) send(...request);
  else actions[action.type]?.(action);
  if (action.inputOption === "openKeyboard") { $("#say").value = action.fillInText ?? ""; $("#say").focus(); }
  if (action.inputOption === "closeRichMenu") toggleMenu(false);
  if (action.inputOption === "openRichMenu") toggleMenu(true);
}

function open(uri) {
  const [, liffId, rest] = uri.match(/^https:\/\/liff\.line\.me\/([^/?#]+)(.*)$/) ?? [];
  if (liffId) openLiff(liffId, rest);
  else if (/^https?:/i.test(uri)) window.open(uri, "_blank", "noopener,noreferrer");
  else note(word("wouldOpen", uri));
}

/** The page of a LIFF app, as in a browser outside of LINE's app. */
function openLiff(id, rest) {
  const page = state.liff[id];
  if (page) window.open(page + rest, "_blank", "noopener,noreferrer");
  else note(word("liffUnknown", id));
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    note(word("copied"));
  } catch {
    note(word("wouldCopy", text));
  }
}

async function shareLocation() {
  const found = await askForPlace();
  if (found) send("location", found);
}

$("#say-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = $("#say"), text = field.value.trim(), quoting = quoted;
  if (!text) return;
  field.value = "";
  quote(null);
  if (await send("say", { text, ...(quoting && { quoting: quoting.id }) })) return;
  field.value = [text, field.value].filter(Boolean).join("\n"); // nothing that was written is lost
  if (quoting && !quoted) quote(quoting);
});

// Enter sends, Shift+Enter begins a line; while characters are composed, Enter chooses among them.
$("#say").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  $("#say-form").requestSubmit();
});

// A reload, as after each change of a bot, does not lose what is being written.
const DRAFT = `local-line draft ${person}`;
try { $("#say").value = sessionStorage.getItem(DRAFT) ?? ""; } catch { /* it may not be stored */ }
addEventListener("pagehide", () => {
  try { sessionStorage.setItem(DRAFT, $("#say").value); } catch { /* it is gone with the page then */ }
});

function quote(entry) {
  quoted = entry;
  $("#quoting").hidden = !entry;
  $("#quoting span").textContent = entry ? word("quoting", entry.words) : "";
  if (entry) $("#say").focus();
}
$("#quoting button").addEventListener("click", () => quote(null));

const extras = {
  location: shareLocation,
  sticker: () => send("sticker"),
  image: () => send("image"),
  file: () => $("#file").click(),
  mention: () => { $("#say").value = `@${state.bot} ${$("#say").value}`; $("#say").focus(); },
};
$("#extras").addEventListener("click", (event) => {
  const extra = extras[event.target.dataset.extra];
  if (!extra) return;
  $("#extras-toggle").focus();
  toggleExtras(false);
  extra();
});
$("#extras-toggle").addEventListener("click", () => toggleExtras($("#extras").hidden));
$("#file").addEventListener("change", () => {
  for (const file of $("#file").files) upload(file);
  $("#file").value = "";
});

function toggleExtras(isOpen) {
  $("#extras").hidden = !isOpen;
  $("#extras-toggle").setAttribute("aria-expanded", isOpen);
}

for (const button of document.querySelectorAll("[data-verb]")) {
  button.addEventListener("click", () => send(button.dataset.verb));
}

for (const choice of document.querySelectorAll("[name=place]")) {
  choice.addEventListener("change", () => {
    enter();
    const here = new URL(window.location.href);
    here.searchParams.set("place", place());
    history.replaceState(null, "", here);
    note("");
    draw();
  });
}

/** Invite the bot to a group or room when its chat is first opened. */
function enter() {
  if (!state || place() === "private" || state.joined.includes(chatName())) return;
  state.joined.push(chatName());
  send("join");
}

// ---- the stream comes in

const stream = new EventSource(`api/events?as=${person}`);
const on = (kind, listener) => stream.addEventListener(kind, (message) => listener(JSON.parse(message.data)));
stream.addEventListener("open", () => { $("#gone").hidden = true; });
stream.addEventListener("error", () => { $("#gone").hidden = false; });

let isWaking = false;
on("opening", () => { isWaking = true; note(word("waking")); });
on("closed", ({ error }) => { isWaking = false; state = null; note(error); });
on("state", (facts) => {
  state = facts;
  if (isWaking) note("");
  isWaking = false;
  for (const name of Object.keys(state.chats)) load(name, state.chats[name].loading);
  for (const row of state.log) if (row.kind === "delivery") remember(row);
  drawRows(state.log, wireActions);
  drawPeople(state, { isBare });
  enter();
  draw();
});
on("entry", (entry) => {
  const { entries } = state.chats[entry.chat];
  entries.push(entry);
  if (entries.length > MOST_ROWS) entries.shift();
  if (entry.author === "bot") load(entry.chat, 0);
  if (entry.chat === chatName()) drawSoon(1);
});
on("loading", ({ chat, seconds }) => { load(chat, seconds); drawSoon(); });
on("unsent", ({ chat, id }) => {
  const entry = state.chats[chat].entries.find((each) => each.id === id);
  if (entry) Object.assign(entry, { message: { type: "unsent" }, is_unsent: true });
  takeBack(id);
});
on("delivery", (row) => { remember(row); addRow({ ...row, kind: "delivery" }, wireActions); });
on("call", (row) => addRow({ ...row, kind: "call" }, wireActions));
on("menu", ({ menu }) => { state.menu = menu; drawPhoneMenu(); });
on("friendship", (facts) => { Object.assign(state, facts); drawFriendship(); });

const wireActions = { copy, replay: (number) => send("replay", { number }) };

function load(name, seconds) {
  const loading = state.chats[name];
  clearTimeout(loading.timer);
  loading.isLoading = seconds > 0;
  if (seconds > 0) loading.timer = setTimeout(() => { loading.isLoading = false; drawSoon(); }, seconds * 1000);
}

function remember({ ids, reason }) {
  for (const id of ids) {
    const isThere = reason === "ok" || arrived.get(id) === true;
    arrived.set(id, isThere);
    if (arrived.size > 4 * MOST_ROWS) arrived.delete(arrived.keys().next().value);
    for (const row of document.querySelectorAll(`[data-event="${id}"]`)) mark(row, isThere);
  }
}

// ---- the phone

const drawn = (entry, previous) => bubble(entry, act, { hasArrived: arrived.get(entry.event_id), me: state.me, hasFace: state.hasFace, previous });

// A bot may say a thousand things in a second: they are laid out together, once in a frame.

let frame = null, undrawn = 0; // how many entries of this chat have no row yet
function drawSoon(entries = 0) {
  undrawn += entries;
  frame ??= requestAnimationFrame(() => { frame = null; if (state) drawTalk(); });
}

new ResizeObserver(() => drawSoon()).observe($("#talk")); // a menu or a longer text takes room: the end stays in sight

function draw() {
  if (!state) return;
  $("#bot-name").textContent = state.bot;
  $("#owner").textContent = state.people[state.person];
  $("#where").textContent = word(place());
  $("#portrait").hidden = !state.hasFace;
  if (state.hasFace) $("#portrait").src = "api/face";
  $("#mention").hidden = place() === "private";
  $("#leave").hidden = place() === "private";
  $("#talk").dataset.empty = word("talkEmpty");
  drawPhoneMenu();
  drawFriendship();
  drawSoon(Infinity);
}

/** The messages that are new, and below the last one: dots, quick replies, and the end itself in sight. */
function drawTalk() {
  const talk = $("#talk"), rows = $("#rows"), waiting = rows.querySelector(".dots"), { entries, isLoading } = chat();
  waiting?.remove();
  const first = Math.max(entries.length - undrawn, 0);
  if (first === 0) rows.replaceChildren();
  rows.append(...entries.slice(first).map((entry, index) => drawn(entry, entries[first + index - 1])));
  while (rows.children.length > MOST_ROWS) rows.firstChild.remove();
  rows.firstChild?.classList.remove("follows");
  undrawn = 0;
  talk.classList.toggle("empty", entries.length === 0);
  if (isLoading) rows.append(waiting ?? dots());
  drawQuick(entries.at(-1));
  talk.scrollTop = talk.scrollHeight;
  showBeginning(entries);
}

/** An answer that ends with a high card is shown from its first message on. LINE has five in a reply. */
const MOST_MESSAGES = 5;
const HIGH = 0.6; // of the screen
function showBeginning(entries) {
  const count = entries.length - 1 - entries.findLastIndex((entry) => entry.author !== "bot");
  if (count < 1 || count > MOST_MESSAGES) return;
  const rows = [...$("#rows").children].filter((row) => !row.classList.contains("dots"));
  const first = rows.at(-count);
  if (rows.at(-1).getBoundingClientRect().height < HIGH * $("#talk").clientHeight) return;
  const hidden = $("#talk").getBoundingClientRect().top - (first?.getBoundingClientRect().top ?? Infinity);
  if (hidden > 0) $("#talk").scrollTop -= hidden;
}

function drawQuick(last) {
  const items = last?.author === "bot" && last.id !== dismissed ? last.message.quickReply?.items ?? [] : [];
  $("#quick").hidden = items.length === 0;
  $("#quick").replaceChildren(...items.map(({ action }) => quickButton(action, last.id)));
}

const STAYS = ["location", "camera", "cameraRoll", "datetimepicker"];
function quickButton(action, id) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: action.label });
  if (action.type === "location") button.classList.add("where");
  button.addEventListener("click", () => {
    act(action);
    if (STAYS.includes(action.type)) return;
    dismissed = id;
    const hadFocus = $("#quick").contains(document.activeElement);
    drawQuick(chat().entries.at(-1));
    if (hadFocus) $("#say").focus();
  });
  return button;
}

let isMenuOpen = true, shownMenu = null;
function drawPhoneMenu() {
  const menu = place() === "private" ? state.menu : null; // groups have none
  $("#rich-menu").hidden = !menu;
  if (!menu) return;
  if (menu.richMenuId !== shownMenu) { shownMenu = menu.richMenuId; isMenuOpen = menu.selected; drawMenu($("#menu-picture"), menu, act); }
  $("#menu-toggle").textContent = menu.chatBarText;
  toggleMenu(isMenuOpen);
}

function toggleMenu(isOpen) {
  isMenuOpen = isOpen;
  $("#menu-picture").hidden = !isOpen;
  $("#menu-toggle").setAttribute("aria-expanded", isOpen);
}
$("#menu-toggle").addEventListener("click", () => toggleMenu(!isMenuOpen));

function drawFriendship() {
  $("#follow").textContent = word(state.hasBlocked ? "unblock" : state.isFriend ? "followAgain" : "follow");
  $("#unfollow").disabled = state.hasBlocked;
  const isBlocked = state.hasBlocked && place() === "private";
  $(".phone").classList.toggle("blocked", isBlocked);
  $("#say").disabled = isBlocked;
  $("#say").placeholder = word(isBlocked ? "blocked" : "say");
}
