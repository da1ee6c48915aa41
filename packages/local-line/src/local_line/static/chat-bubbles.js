// One message as it stands in the chat.

import { drawFlex } from "./chat-flex.js";
import { offerPicture } from "./chat-pictures.js";
import { asFlex } from "./chat-templates.js";
import { word } from "./chat-words.js";

const make = (tag, className, ...children) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...children);
  return element;
};

const CLOCK = new Intl.DateTimeFormat("zh-TW", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** A row of the chat. *hasArrived*: whether the bot has the event; undefined: not known yet. */
export function bubble(entry, act, { hasArrived, me, hasFace }) {
  const isMine = entry.author === "person" && (!entry.user_id || entry.user_id === me);
  const row = make("li", entry.author === "bot" ? "row bot" : isMine ? "row mine" : "row other");
  if (["flex", "template"].includes(entry.message.type)) row.classList.add("wide");
  if (entry.author === "bot") row.append(face(hasFace));
  if (entry.author === "person" && !isMine) row.append(make("b", "who", entry.name ?? ""));
  row.append(make("span", "unseen", entry.author === "bot" ? word("bot") : isMine ? word("you") : ""), content(entry, act), foot(entry));
  row.dataset.id = entry.id;
  if (entry.event_id) row.dataset.event = entry.event_id;
  if (isMine && hasArrived !== undefined) mark(row, hasArrived);
  if (!entry.is_unsent) row.append(actions(entry, isMine, act));
  return row;
}

function face(hasFace) {
  if (!hasFace) return make("span", "face", "");
  return Object.assign(make("img", "face drawn"), { src: "api/face", alt: "" });
}

/** What can be done with a message: answer it, or take it back. */
function actions(entry, isMine, act) {
  const words = entry.message.text ?? entry.message.altText ?? word(entry.message.type);
  const box = make("span", "actions", action("↩", "quote", () => act({ type: "quote", id: entry.id, words })));
  if (isMine) box.append(action("⌫", "unsend", () => act({ type: "unsend", id: entry.id })));
  return box;
}

function action(sign, name, act) {
  const button = Object.assign(make("button", "action", sign), { type: "button", title: word(name) });
  button.setAttribute("aria-label", word(name));
  button.addEventListener("click", act);
  return button;
}

function foot(entry) {
  const at = new Date(entry.at * 1000);
  const time = make("time", "", CLOCK.format(at));
  time.dateTime = at.toISOString();
  return make("span", "foot", make("span", "mark"), time);
}

/** Whether the bot got an event for it. */
export function mark(row, hasArrived) {
  if (!row.classList.contains("mine")) return;
  row.classList.toggle("lost", !hasArrived);
  row.querySelector(".mark").textContent = word(hasArrived ? "read" : "lost");
}

/** What it said is not shown any more. */
export function takeBack(id) {
  const row = document.querySelector(`[data-id="${CSS.escape(id)}"]`);
  row?.querySelector(".actions")?.remove();
  row?.querySelector(".said, .stand-in, .shot, .card")?.replaceWith(unsent());
}

const unsent = () => make("p", "said unsent", word("unsent"));

/** The bot is thinking. */
export function dots() {
  const cloud = make("span", "said", make("i", ""), make("i", ""), make("i", ""));
  cloud.setAttribute("role", "img");
  cloud.setAttribute("aria-label", word("typing"));
  return make("li", "row bot dots", make("span", "face", ""), cloud);
}

function content(entry, act) {
  return (KINDS[entry.message.type] ?? unknown)(entry.message, act, entry);
}

const KINDS = {
  text: ({ text }) => make("p", "said", ...linked(text)),
  textV2: ({ text, substitution }) => make("p", "said", ...linked(substituted(text, substitution ?? {}))),
  flex: ({ contents, altText }, act) => labelled(drawFlex(contents, act), altText),
  template: ({ template, altText }, act) => labelled(drawFlex(asFlex(template), act), altText),
  location: (message) => placeCard(message),
  sticker: ({ packageId, stickerId }) => standIn("sticker", word("sticker"), `${packageId} / ${stickerId}`),
  image: (message, act, entry) => (entry.author === "person" ? shot("img", entry) : offerPicture(standIn("image", word("image"), ""), message.originalContentUrl)),
  video: (message, act, entry) => (entry.author === "person" ? shot("video", entry) : standIn("image", word("video"), "")),
  audio: ({ duration }, act, entry) => (entry.author === "person" ? shot("audio", entry) : standIn("audio", word("audio"), word("seconds", Math.round(duration / 1000)))),
  file: ({ fileName, fileSize }, act, entry) => fileCard(fileName, fileSize, entry),
  imagemap: ({ altText }) => standIn("image", altText, word("imagemap")),
  coupon: ({ couponId }) => standIn("audio", word("coupon"), couponId),
  unsent,
};

const unknown = ({ type }) => make("p", "said", `〔${type}〕`);

/** What a person has sent is on this server. */
function shot(tag, { id }) {
  const element = Object.assign(make(tag, "shot"), { src: `api/content/${id}` });
  if (tag === "img") element.alt = word("image");
  else element.controls = true;
  return element;
}

function fileCard(name, size, { id }) {
  const link = Object.assign(make("a", "", name), { href: `api/content/${id}`, download: name });
  return make("p", "said file", link, make("small", "", ` ${Math.ceil(size / 1024)} KB`));
}

function labelled(card, altText) {
  const box = make("div", "card", card);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", altText);
  return box;
}

/** What stands for a message that this page does not show. */
function standIn(kind, title, detail) {
  return make("div", `stand-in ${kind}`, make("b", "", title), make("small", "", detail));
}

function placeCard({ title, address, latitude, longitude }) {
  const degrees = `${latitude.toFixed(4)}, ${longitude.toFixed(4)}`;
  return make("div", "said place", make("i", "pin"), make("b", "", title || word("location")), make("span", "", address || ""), make("small", "", degrees));
}

function linked(text) {
  return text.split(/(https?:\/\/[^\s<>"、。，（）]+)/).map((part, index) => {
    if (index % 2 === 0) return part;
    return Object.assign(make("a", "", part), { href: part, target: "_blank", rel: "noopener noreferrer" });
  });
}

function substituted(text, substitution) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const { type } = substitution[name] ?? {};
    return type === "mention" ? "@…" : type === "emoji" ? "▢" : whole;
  });
}
