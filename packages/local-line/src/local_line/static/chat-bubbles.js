// One message as it stands in the chat.

import { drawFlex } from "./chat-flex.js";
import { asFlex } from "./chat-templates.js";

const make = (tag, className, ...children) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...children);
  return element;
};

const CLOCK = new Intl.DateTimeFormat("zh-TW", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** A row of the chat. *hasArrived*: whether the bot has the event; undefined: not known yet. */
export function bubble(entry, act, hasArrived) {
  const row = make("li", entry.author === "bot" ? "row bot" : "row mine");
  const wide = ["flex", "template"].includes(entry.message.type);
  if (wide) row.classList.add("wide");
  if (entry.author === "bot") row.append(make("span", "face", ""));
  row.append(make("span", "unseen", entry.author === "bot" ? "機器人：" : "您："), content(entry.message, act), foot(entry));
  if (entry.event_id) row.dataset.event = entry.event_id;
  if (hasArrived !== undefined) mark(row, hasArrived);
  return row;
}

function foot(entry) {
  const at = new Date(entry.at * 1000);
  const time = make("time", "", CLOCK.format(at));
  time.dateTime = at.toISOString();
  return make("span", "foot", make("span", "mark"), time);
}

/** Whether the bot has heard of it. */
export function mark(row, hasArrived) {
  const text = hasArrived ? "已讀" : "未送達";
  row.classList.toggle("lost", !hasArrived);
  row.querySelector(".mark").textContent = text;
}

/** The bot is thinking. */
export function dots() {
  const cloud = make("span", "said", make("i", ""), make("i", ""), make("i", ""));
  cloud.setAttribute("role", "img");
  cloud.setAttribute("aria-label", "正在輸入");
  return make("li", "row bot dots", make("span", "face", ""), cloud);
}

function content(message, act) {
  return (KINDS[message.type] ?? unknown)(message, act);
}

const KINDS = {
  text: ({ text }) => make("p", "said", ...linked(text)),
  textV2: ({ text, substitution }) => make("p", "said", ...linked(substituted(text, substitution ?? {}))),
  flex: ({ contents, altText }, act) => labelled(drawFlex(contents, act), altText),
  template: ({ template, altText }, act) => labelled(drawFlex(asFlex(template), act), altText),
  location: (message) => placeCard(message),
  sticker: ({ packageId, stickerId }) => standIn("sticker", "貼圖", `${packageId} / ${stickerId}`),
  image: () => standIn("image", "照片", ""),
  video: () => standIn("image", "影片", ""),
  audio: ({ duration }) => standIn("audio", "語音", `${Math.round(duration / 1000)} 秒`),
  imagemap: ({ altText }) => standIn("image", altText, "影像地圖"),
};

const unknown = ({ type }) => make("p", "said", `〔${type}〕`);

function labelled(card, altText) {
  const box = make("div", "card", card);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", altText);
  return box;
}

/** Pictures are not fetched: the page asks nobody but its own server. */
function standIn(kind, title, detail) {
  return make("div", `stand-in ${kind}`, make("b", "", title), make("small", "", detail));
}

function placeCard({ title, address, latitude, longitude }) {
  const degrees = `${latitude.toFixed(4)}, ${longitude.toFixed(4)}`;
  return make("div", "said place", make("i", "pin"), make("b", "", title || "位置資訊"), make("span", "", address || ""), make("small", "", degrees));
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
    return type === "mention" ? "@訪客" : type === "emoji" ? "▢" : whole;
  });
}
