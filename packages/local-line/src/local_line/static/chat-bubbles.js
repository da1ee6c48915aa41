// One message as it stands in the chat.

import { drawFlex } from "./chat-flex.js";
import { areaButton, placed } from "./chat-menu.js";
import { offerPicture, senderFace } from "./chat-pictures.js";
import { asFlex } from "./chat-templates.js";
import { language, word } from "./chat-words.js";

const make = (tag, className, ...children) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...children);
  return element;
};

const CLOCK = new Intl.DateTimeFormat("zh-TW", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** A row of the chat below that of *previous*. *hasArrived*: whether the bot has the event; undefined: not known yet. */
export function bubble(entry, act, { hasArrived, me, hasFace, previous }) {
  const isMine = entry.author === "person" && (!entry.user_id || entry.user_id === me);
  const row = make("li", entry.author === "bot" ? "row bot" : isMine ? "row mine" : "row other");
  if (["flex", "template", "imagemap"].includes(entry.message.type)) row.classList.add("wide");
  row.classList.toggle("follows", isSameSpeaker(entry, previous));
  if (speaker(entry) && !isMine) row.append(make("b", "who", speaker(entry)));
  if (entry.author === "bot") row.append(face(entry.message.sender, hasFace));
  row.append(make("span", "unseen", entry.author === "bot" ? word("bot") : isMine ? word("you") : ""), content(entry, act), foot(entry));
  row.dataset.id = entry.id ?? "";
  if (entry.event_id) row.dataset.event = entry.event_id;
  if (isMine && hasArrived !== undefined) mark(row, hasArrived);
  if (entry.id && !entry.is_unsent) row.append(actions(entry, isMine, act));
  return row;
}

/** The name above a message: of a person, or of whom the bot pretends to be. */
const speaker = ({ author, name, message }) => (author === "person" ? name : message.sender?.name);

const isSameSpeaker = (entry, previous) => entry.author === "bot" && previous?.author === "bot"
  && JSON.stringify(entry.message.sender) === JSON.stringify(previous.message.sender);

function face(sender, hasFace) {
  if (sender?.iconUrl) return senderFace({ name: "Bot", ...sender });
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

/** Hide the content of an unsent message. */
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
  text: ({ text, emojis }) => make("p", "said", ...withEmojis(text, emojis ?? []).flatMap(linked)),
  textV2: ({ text, substitution }, act, { names }) => make("p", "said", ...substituted(text, substitution ?? {}, names ?? {}).flatMap(linked)),
  flex: ({ contents, altText }, act) => labelled(drawFlex(contents, act), altText),
  template: ({ template, altText }, act) => labelled(drawFlex(asFlex(template), act), altText),
  location: (message) => placeCard(message),
  sticker: ({ packageId, stickerId }) => standIn("sticker", word("sticker"), `${packageId} / ${stickerId}`),
  image: (message, act, entry) => (entry.author === "person" ? shot("img", entry) : offerPicture(standIn("image", word("image"), ""), message.originalContentUrl)),
  video: (message, act, entry) => (entry.author === "person" ? shot("video", entry) : filmed(message, act)),
  audio: ({ duration }, act, entry) => (entry.author === "person" ? shot("audio", entry) : standIn("audio", word("audio"), word("seconds", Math.round(duration / 1000)))),
  file: ({ fileName, fileSize }, act, entry) => fileCard(fileName, fileSize, entry),
  imagemap: (message, act) => labelled(imagemap(message, act), message.altText),
  coupon: ({ couponId }, act, entry) => couponCard(entry.coupon ?? { title: couponId }),
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

/** A person can say that the video was seen to its end, where the bot wants to know it. */
function filmed({ trackingId }, act) {
  const frame = standIn("image", word("video"), "");
  if (trackingId) frame.append(button("seen", word("seen"), () => act({ type: "played", trackingId })));
  return frame;
}

function button(className, words, act) {
  const element = Object.assign(make("button", className, words), { type: "button" });
  element.addEventListener("click", act);
  return element;
}

/** What is written on an area until there is a picture, and how the rest of the page names the same action. */
const TAPS = {
  message: ({ text, label }) => ({ type: "message", text, label: label ?? text }),
  uri: ({ linkUri, label }) => ({ type: "uri", uri: linkUri, label: label ?? linkUri }),
  clipboard: ({ clipboardText, label }) => ({ type: "clipboard", clipboardText, label: label ?? clipboardText }),
};

function imagemap({ baseUrl, baseSize, actions, video }, act) {
  const picture = make("div", "imagemap-picture"), foot = make("div", "imagemap-foot");
  const areas = actions.map((each) => ({ bounds: each.area, action: TAPS[each.type](each) }));
  const buttons = areas.map((each, index) => areaButton(each, index, baseSize, act));
  buttons.forEach((each, index) => each.append(areas[index].action.label));
  const map = make("div", "imagemap", offerPicture(picture, `${baseUrl}/1040`, foot), ...buttons);
  map.style.aspectRatio = `${baseSize.width} / ${baseSize.height}`;
  if (video) map.append(placed(film(video, act), video.area, baseSize));
  return make("div", "", map, foot);
}

/** The video of an imagemap; LINE's app shows its link when it has ended. */
function film({ externalLink }, act) {
  const frame = make("div", "imagemap-film", make("span", "", word("video")));
  if (externalLink) frame.append(button("more", externalLink.label, () => act({ type: "uri", uri: externalLink.linkUri })));
  return frame;
}

const DAY = new Intl.DateTimeFormat(language === "zh" ? "zh-TW" : "en-GB", { dateStyle: "medium" });

function couponCard({ title, description, endTimestamp }) {
  const card = make("div", "coupon", make("small", "", word("coupon")), make("b", "", title));
  if (description) card.append(make("span", "", description));
  if (endTimestamp) card.append(make("small", "", word("until", DAY.format(endTimestamp * 1000))));
  return card;
}

function placeCard({ title, address, latitude, longitude }) {
  const degrees = `${latitude.toFixed(4)}, ${longitude.toFixed(4)}`;
  return make("div", "said place", make("i", "pin"), make("b", "", title || word("location")), make("span", "", address || ""), make("small", "", degrees));
}

function linked(text) {
  if (typeof text !== "string") return text;
  return text.split(/(https?:\/\/[^\s<>"、。，（）]+)/).map((part, index) => {
    if (index % 2 === 0) return part;
    return Object.assign(make("a", "", part), { href: part, target: "_blank", rel: "noopener noreferrer" });
  });
}

/** A LINE emoji, which has no letter: its ids tell which one it is. */
function emoji({ productId, emojiId }) {
  const sign = Object.assign(make("span", "emoji", "☺"), { title: `${productId} / ${emojiId}` });
  sign.setAttribute("role", "img");
  sign.setAttribute("aria-label", sign.title);
  return sign;
}

/** The text, in parts: at each index stands an emoji in the place of its `$`. */
function withEmojis(text, emojis) {
  const sorted = emojis.toSorted((one, other) => one.index - other.index);
  const starts = [0, ...sorted.map(({ index }) => index + 1)];
  return starts.flatMap((start, n) => [text.slice(start, sorted[n]?.index), ...(n < sorted.length ? [emoji(sorted[n])] : [])]);
}

/** The text, in parts: `{name}` is what stands for it, `{{` and `}}` are braces. */
function substituted(text, substitution, names) {
  return text.split(/(\{\{|\}\}|\{\w+\})/).map((part, index) => {
    if (index % 2 === 0) return part;
    const known = substitution[part.slice(1, -1)];
    if (!known) return part === "{{" || part === "}}" ? part[0] : part;
    return known.type === "emoji" ? emoji(known) : make("b", "mention", `@${mentioned(known.mentionee, names)}`);
  });
}

const mentioned = ({ type, userId }, names) => (type === "all" ? "All" : names[userId] ?? "…");
