// The phone. The page decides nothing: it shows what was said, and every tap leaves at once.

import { bubble, dots, mark } from "./chat-bubbles.js";
import { drawMenu } from "./chat-menu.js";
import { askForPlace } from "./chat-places.js";
import { askForTime } from "./chat-times.js";
import { wireRow } from "./chat-wire.js";

const $ = (selector) => document.querySelector(selector);
const MOST_ROWS = 100;
const GROUP = { private: "一對一聊天", group: "群組聊天", anonymous: "群組聊天（不提供使用者 ID）" };

let state = null; // what the stream has told so far
const arrived = new Map(); // event id → whether the bot has it
let dismissed = null; // the message whose quick replies were used

const place = () => $("[name=place]:checked").value;
const chatName = () => (place() === "private" ? "private" : "group");
const chat = () => state.chats[chatName()];

// ---- taps go out, each at once

async function send(verb, facts = {}) {
  const wish = { place: place(), standby: $("#standby").checked, redelivery: $("#redelivery").checked, ...facts };
  try {
    const answer = await fetch(`api/${verb}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(wish) });
    note(answer.ok ? "" : (await answer.json()).error);
  } catch {
    // The stream notices, too, and says so.
  }
}

const note = (text) => { $("#note").textContent = text; };

const actions = {
  message: (action) => send("say", { text: action.text }),
  postback: (action) => send("tap", { data: action.data, displayText: action.displayText ?? action.text }),
  uri: (action) => open(action.uri),
  location: () => shareLocation(),
  camera: () => send("image"),
  cameraRoll: () => send("image"),
  richmenuswitch: (action) => send("switch", { alias: action.richMenuAliasId, data: action.data }),
  clipboard: (action) => copy(action.clipboardText),
  async datetimepicker(action) {
    const picked = await askForTime(action);
    if (picked) send("tap", { data: action.data, params: { [action.mode]: picked } });
  },
};

/** What a button, an area or a card does. */
function act(action) {
  actions[action.type]?.(action);
  if (action.inputOption === "openKeyboard") { $("#say").value = action.fillInText ?? ""; $("#say").focus(); }
  if (action.inputOption === "closeRichMenu") toggleMenu(false);
  if (action.inputOption === "openRichMenu") toggleMenu(true);
}

function open(uri) {
  if (/^https?:/i.test(uri)) window.open(uri, "_blank", "noopener,noreferrer");
  else note(`A phone would open ${uri}`);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    note("Copied.");
  } catch {
    note(`A phone would copy: ${text}`);
  }
}

async function shareLocation() {
  const found = await askForPlace();
  if (found) send("location", found);
}

$("#say-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("#say").value.trim();
  if (!text) return;
  $("#say").value = "";
  send("say", { text });
});

const extras = { location: shareLocation, sticker: () => send("sticker"), image: () => send("image") };
$("#extras").addEventListener("click", (event) => {
  const extra = extras[event.target.dataset.extra];
  if (!extra) return;
  $("#extras-toggle").focus();
  toggleExtras(false);
  extra();
});
$("#extras-toggle").addEventListener("click", () => toggleExtras($("#extras").hidden));

function toggleExtras(isOpen) {
  $("#extras").hidden = !isOpen;
  $("#extras-toggle").setAttribute("aria-expanded", isOpen);
}

for (const lever of document.querySelectorAll("[data-verb]")) {
  lever.addEventListener("click", () => send(lever.dataset.verb));
}

for (const choice of document.querySelectorAll("[name=place]")) {
  choice.addEventListener("change", () => {
    if (place() !== "private" && state && !state.isInGroup) { state.isInGroup = true; send("join"); }
    note("");
    draw();
  });
}

// ---- the stream comes in

const stream = new EventSource("api/events");
const on = (kind, listener) => stream.addEventListener(kind, (message) => listener(JSON.parse(message.data)));
stream.addEventListener("open", () => { $("#gone").hidden = true; });
stream.addEventListener("error", () => { $("#gone").hidden = false; });

on("opening", () => note("The bot is being woken …"));
on("closed", ({ error }) => { state = null; note(error); });
on("state", (told) => {
  state = told;
  if ($("#note").textContent.startsWith("The bot is being")) note("");
  for (const name of Object.keys(state.chats)) load(name, state.chats[name].loading);
  for (const row of state.log) if (row.kind === "delivery") remember(row);
  $("#wire").replaceChildren(...state.log.map(wireRow).reverse());
  $("#wire-empty").hidden = state.log.length > 0;
  draw();
});
on("entry", (entry) => {
  const { entries } = state.chats[entry.chat];
  entries.push(entry);
  if (entry.author === "bot") load(entry.chat, 0);
  if (entry.chat === chatName()) { $("#talk").append(bubble(entry, act, arrived.get(entry.event_id))); drawEnd(); }
});
on("loading", ({ chat, seconds }) => { load(chat, seconds); drawEnd(); });
on("delivery", (row) => { remember(row); addRow({ ...row, kind: "delivery" }); });
on("call", (row) => addRow({ ...row, kind: "call" }));
on("menu", ({ menu }) => { state.menu = menu; drawPhoneMenu(); });
on("friendship", (facts) => { Object.assign(state, facts); drawFriendship(); });

function load(name, seconds) {
  const loading = state.chats[name];
  clearTimeout(loading.timer);
  loading.isLoading = seconds > 0;
  if (seconds > 0) loading.timer = setTimeout(() => { loading.isLoading = false; drawEnd(); }, seconds * 1000);
}

function remember({ ids, reason }) {
  for (const id of ids) {
    const isThere = reason === "ok" || arrived.get(id) === true;
    arrived.set(id, isThere);
    for (const row of document.querySelectorAll(`[data-event="${id}"]`)) mark(row, isThere);
  }
}

function addRow(row) {
  $("#wire").prepend(wireRow(row));
  $("#wire-empty").hidden = true;
  while ($("#wire").children.length > MOST_ROWS) $("#wire").lastChild.remove();
}

// ---- the phone

function draw() {
  if (!state) return;
  $("#bot-name").textContent = state.bot;
  $("#where").textContent = GROUP[place()];
  $("#talk").replaceChildren(...chat().entries.map((entry) => bubble(entry, act, arrived.get(entry.event_id))));
  drawEnd();
  drawPhoneMenu();
  drawFriendship();
}

/** What is below the last message: dots, quick replies, and the end itself in sight. */
function drawEnd() {
  const talk = $("#talk"), waiting = talk.querySelector(".dots");
  waiting?.remove();
  if (chat().isLoading) talk.append(waiting ?? dots());
  drawQuick(chat().entries.at(-1));
  talk.scrollTop = talk.scrollHeight;
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
  $("#talk").scrollTop = $("#talk").scrollHeight;
}
$("#menu-toggle").addEventListener("click", () => toggleMenu(!isMenuOpen));

function drawFriendship() {
  $("#follow").textContent = state.hasBlocked ? "Unblock it" : state.isFriend ? "Add it again" : "Add the bot";
  $("#unfollow").disabled = state.hasBlocked;
  const isBlocked = state.hasBlocked && place() === "private";
  $(".phone").classList.toggle("blocked", isBlocked);
  $("#say").disabled = isBlocked;
  $("#say").placeholder = isBlocked ? "已封鎖" : "輸入訊息";
}
