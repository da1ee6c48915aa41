// Flex messages as HTML: boxes become flex boxes. Only what the JSON says is set, never as markup.

import { offerPicture } from "./chat-pictures.js";
import { word } from "./chat-words.js";

const FONT = { xxs: 11, xs: 13, sm: 14, md: 16, lg: 19, xl: 22, xxl: 29, "3xl": 35, "4xl": 48, "5xl": 74 };
const SPACE = { none: 0, xs: 2, sm: 4, md: 8, lg: 12, xl: 16, xxl: 20 };
const BORDER = { none: 0, light: 0.5, normal: 1, medium: 2, "semi-bold": 3, bold: 4 };
const PICTURE = { xxs: 40, xs: 60, sm: 80, md: 100, lg: 120, xl: 140, xxl: 160, "3xl": 180, "4xl": 200, "5xl": 220, full: "100%" };
const AXIS = { top: "flex-start", center: "center", bottom: "flex-end", start: "flex-start", end: "flex-end" };

const make = (tag, className, ...children) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...children);
  return element;
};

/** A word of the table, or a length as it stands. */
function length(table, value) {
  if (value === undefined || value === null) return "";
  const known = table[value];
  return known === undefined ? String(value) : typeof known === "number" ? `${known}px` : known;
}

/** The card of a Flex container; *act* is called with the action of the tapped element. */
export function drawFlex(container, act) {
  if (container.type !== "carousel") return bubble(container, act);
  const row = make("div", "fx-carousel", ...container.contents.map((each) => bubble(each, act)));
  row.tabIndex = 0;
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", word("cards", container.contents.length));
  return row;
}

function bubble(json, act) {
  const card = make("article", `fx-bubble fx-${json.size ?? "mega"}`);
  card.dir = json.direction ?? "ltr";
  for (const name of ["header", "hero", "body", "footer"]) {
    if (json[name]) card.append(block(name, json[name], json.styles?.[name] ?? {}, card.children.length > 0, act));
  }
  tappable(card, json.action, act);
  return card;
}

function block(name, json, style, mayBeParted, act) {
  const inner = component(json, { layout: "vertical" }, act);
  const outer = make("div", `fx-block fx-${name}`, inner);
  if (style.backgroundColor) outer.style.backgroundColor = style.backgroundColor;
  if (style.separator && mayBeParted) outer.style.borderTop = `1px solid ${style.separatorColor ?? "#d4d6da"}`;
  return outer;
}

// ---- components

function component(json, parent, act) {
  const element = (KINDS[json.type] ?? filler)(json, parent, act);
  placeIn(element, json, parent);
  if (json.type !== "button") tappable(element, json.action, act);
  return element;
}

const KINDS = { box, text, image, video: image, button, icon, separator, filler, spacer };

function box(json, parent, act) {
  const element = make("div", `fx-box fx-${json.layout}`);
  const { style } = element;
  json.contents.forEach((child, index) => {
    const part = component(child, json, act);
    const gap = index ? child.margin ?? (isLoose(child) ? "none" : json.spacing) : undefined; // the first has nothing before it
    if (gap !== undefined) part.style[json.layout === "vertical" ? "marginTop" : "marginInlineStart"] = length(SPACE, gap);
    element.append(part);
  });
  if (json.backgroundColor) style.backgroundColor = json.backgroundColor;
  if (json.background) style.backgroundImage = gradient(json.background);
  style.borderRadius = length(SPACE, json.cornerRadius);
  frame(style, json);
  for (const side of ["width", "height", "maxWidth", "maxHeight"]) if (json[side]) style[side] = json[side];
  if (json.justifyContent) style.justifyContent = json.justifyContent;
  if (json.alignItems) style.alignItems = json.alignItems;
  pad(style, json);
  return element;
}

const isLoose = (json) => json.type === "filler" || json.type === "spacer" || json.position === "absolute";

function frame(style, { borderWidth, borderColor }) {
  if (!borderWidth && !borderColor) return;
  style.borderStyle = "solid";
  style.borderWidth = length(BORDER, borderWidth ?? "normal");
  style.borderColor = borderColor ?? "#00000000";
}

function pad(style, json) {
  if (json.paddingAll) style.padding = length(SPACE, json.paddingAll);
  if (json.paddingTop) style.paddingTop = length(SPACE, json.paddingTop);
  if (json.paddingBottom) style.paddingBottom = length(SPACE, json.paddingBottom);
  if (json.paddingStart) style.paddingInlineStart = length(SPACE, json.paddingStart);
  if (json.paddingEnd) style.paddingInlineEnd = length(SPACE, json.paddingEnd);
}

function gradient({ angle, startColor, centerColor, centerPosition, endColor }) {
  const stops = centerColor ? [startColor, `${centerColor} ${centerPosition ?? "50%"}`, endColor] : [startColor, endColor];
  return `linear-gradient(${angle}, ${stops.join(", ")})`;
}

function text(json, parent) {
  const element = make("div", json.wrap ? "fx-text fx-wrap" : "fx-text");
  letters(element.style, json);
  element.style.textAlign = json.align ?? "";
  if (json.lineSpacing) element.style.lineHeight = `calc(1.4em + ${json.lineSpacing})`;
  if (json.contents?.length) element.append(...json.contents.map(span));
  else element.textContent = json.text;
  if (json.wrap && json.maxLines > 0) {
    element.classList.add("fx-clamped");
    element.style.webkitLineClamp = json.maxLines;
  }
  if (json.gravity && parent.layout !== "vertical") element.style.alignSelf = AXIS[json.gravity];
  return element;
}

function span(json) {
  const element = make("span", "", json.text ?? "");
  letters(element.style, json);
  return element;
}

function letters(style, json) {
  if (json.size) style.fontSize = length(FONT, json.size);
  if (json.color) style.color = json.color;
  if (json.weight) style.fontWeight = json.weight === "bold" ? "700" : "400";
  if (json.style) style.fontStyle = json.style;
  if (json.decoration) style.textDecoration = json.decoration;
}

/** Show an empty frame of its size until the user asks for the picture. */
function image(json, parent) {
  const picture = make("div", "fx-picture", make("span", "", word("picture")));
  if (json.type !== "video") offerPicture(picture, json.url);
  picture.style.aspectRatio = (json.aspectRatio ?? "1:1").replace(":", " / ");
  if (json.backgroundColor) picture.style.backgroundColor = json.backgroundColor;
  const element = make("div", "fx-image", picture);
  picture.style.width = length(PICTURE, json.size ?? (json.type === "video" ? "full" : "md"));
  element.style.justifyContent = AXIS[json.align ?? "center"];
  if (json.gravity && parent.layout === "horizontal") element.style.alignSelf = AXIS[json.gravity];
  return element;
}

function button(json, parent, act) {
  const element = make("button", `fx-button fx-${json.style ?? "link"} fx-height-${json.height ?? "md"}`, json.action.label);
  element.type = "button";
  if (json.color) element.style[json.style === "primary" || json.style === "secondary" ? "backgroundColor" : "color"] = json.color;
  if (json.gravity && parent.layout === "horizontal") element.style.alignSelf = AXIS[json.gravity];
  element.addEventListener("click", (event) => { event.stopPropagation(); act(json.action); });
  return element;
}

function icon(json) {
  const element = make("span", "fx-icon");
  element.style.width = element.style.height = length(FONT, json.size ?? "md");
  return element;
}

function separator(json, parent) {
  const element = make("div", parent.layout === "vertical" ? "fx-rule" : "fx-rule fx-upright");
  if (json.color) element.style.backgroundColor = json.color;
  return element;
}

function filler() { return make("div", "fx-filler"); }

function spacer(json) {
  const element = make("div", "fx-spacer");
  element.style.flexBasis = length(SPACE, json.size ?? "md");
  return element;
}

// ---- what all of them have

const FIXED = ["icon", "separator", "spacer"];

function placeIn(element, json, parent) {
  const { style } = element;
  if (json.position === "absolute") style.position = "absolute";
  else if (["offsetTop", "offsetBottom", "offsetStart", "offsetEnd"].some((side) => json[side])) style.position = "relative";
  if (json.offsetTop) style.top = length(SPACE, json.offsetTop);
  if (json.offsetBottom) style.bottom = length(SPACE, json.offsetBottom);
  if (json.offsetStart) style.insetInlineStart = length(SPACE, json.offsetStart);
  if (json.offsetEnd) style.insetInlineEnd = length(SPACE, json.offsetEnd);
  style.flex = share(json, parent.layout === "vertical");
}

/** Components side by side share the width; components on top of each other take what they need. */
function share(json, isVertical) {
  if (FIXED.includes(json.type)) return json.type === "spacer" ? "" : "none";
  const isSized = json.type === "box" && (isVertical ? json.height : json.width);
  const usual = json.type === "filler" ? 1 : isVertical || isSized ? 0 : 1;
  const flex = json.flex ?? usual;
  if (!flex) return isVertical ? "0 0 auto" : "0 1 auto";
  return isVertical ? `${flex} 0 auto` : `${flex} ${flex} 0px`;
}

function tappable(element, action, act) {
  if (!action) return;
  element.classList.add("fx-tap");
  element.tabIndex = 0;
  element.setAttribute("role", "button");
  if (action.label) element.setAttribute("aria-label", action.label);
  const tap = (event) => { event.stopPropagation(); act(action); };
  element.addEventListener("click", tap);
  element.addEventListener("keydown", (event) => {
    if (event.target !== element || !["Enter", " "].includes(event.key)) return;
    event.preventDefault();
    tap(event);
  });
}
