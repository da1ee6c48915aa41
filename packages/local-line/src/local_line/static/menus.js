// The rich menus of the bot: their pictures, their areas, and who sees them.

import { drawMenu } from "./chat-menu.js";
import { choosePerson, tryOut } from "./chat-tries.js";
import { switchLanguage, translate, word } from "./chat-words.js";

const $ = (selector) => document.querySelector(selector);
const make = (tag, className, ...children) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...children);
  return element;
};

translate();
choosePerson();
$("#language").addEventListener("click", switchLanguage);

const act = (action) => tryOut(action, { as: $("#person").value, place: "private" });

let shown = ""; // drawn again only if it has changed: a redrawn area has lost the focus

async function load() {
  const answer = await fetch("api/menus").catch(() => null);
  if (!answer?.ok) { $("#note").textContent = word("notSent"); return; }
  const text = await answer.text(), menus = JSON.parse(text);
  $("#note").textContent = "";
  if (text === shown) return;
  shown = text;
  $("#none").hidden = menus.length > 0;
  $("#hint").hidden = menus.length === 0;
  $("#list").replaceChildren(...menus.map(sheet));
}

function sheet(menu) {
  const picture = make("div", "menu-picture outlined");
  picture.setAttribute("role", "group");
  picture.setAttribute("aria-label", menu.name);
  drawMenu(picture, menu, act);
  const id = make("code", "menu-id", menu.richMenuId);
  return make("article", "menu-sheet", make("h2", "", menu.name), make("p", "tags", ...tags(menu)), picture, table(menu), id);
}

function tags({ isDefault, seenBy, aliases, chatBarText, size, hasPicture }) {
  const words = [`${size.width} × ${size.height}`, `「${chatBarText}」`];
  if (isDefault) words.push(word("defaultMenu"));
  if (seenBy.length) words.push(word("seenBy", seenBy.join(", ")));
  words.push(...aliases.map((alias) => word("alias", alias)));
  if (!hasPicture) words.push(word("withoutPicture"));
  return words.map((each) => make("span", "", each));
}

function table({ areas }) {
  const rows = areas.map(({ bounds, action }, index) => {
    const where = `${bounds.x}, ${bounds.y} · ${bounds.width} × ${bounds.height}`;
    return make("li", "", make("b", "", String(index + 1)), make("code", "", action.type), make("span", "", says(action)), make("small", "", where));
  });
  return make("ol", "areas", ...rows);
}

const says = ({ data, text, uri, clipboardText, richMenuAliasId, label }) => [label, richMenuAliasId && `→ ${richMenuAliasId}`, data ?? text ?? uri ?? clipboardText].filter(Boolean).join(" · ");

// ---- a bot may change them

let timer;
const stream = new EventSource(`api/events?as=${$("#person").value}`);
const soon = () => { clearTimeout(timer); timer = setTimeout(load, 100); };
stream.addEventListener("open", soon);
stream.addEventListener("menu", soon);
stream.addEventListener("call", ({ data }) => { if (JSON.parse(data).route.includes("richmenu")) soon(); });

load();
