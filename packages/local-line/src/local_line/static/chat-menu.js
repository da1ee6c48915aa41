// The rich menu: its picture, and a button for each of its areas; imagemaps have such buttons, too.

import { word } from "./chat-words.js";

const SAID = ["location", "camera", "cameraRoll"];

/** What a screen reader says about an area. */
const nameOf = (action, index) => action.label || action.displayText || action.text || (SAID.includes(action.type) ? word(action.type) : word("menuArea", index + 1));

export function drawMenu(box, { richMenuId, size, areas, hasPicture = true }, act) {
  const picture = Object.assign(document.createElement("img"), { alt: "", ...(hasPicture && { src: `api/menu/${richMenuId}` }) });
  picture.width = size.width;
  picture.height = size.height;
  box.style.aspectRatio = `${size.width} / ${size.height}`;
  box.replaceChildren(...(hasPicture ? [picture] : []), ...areas.map((area, index) => areaButton(area, index, size, act)));
}

export function areaButton({ bounds, action }, index, size, act) {
  const element = Object.assign(document.createElement("button"), { type: "button", className: "area" });
  element.setAttribute("aria-label", nameOf(action, index));
  element.addEventListener("click", () => act(action));
  return placed(element, bounds, size);
}

/** *element* stands where *bounds* says in a picture of that *size*. */
export function placed(element, bounds, size) {
  element.style.left = `${(bounds.x / size.width) * 100}%`;
  element.style.top = `${(bounds.y / size.height) * 100}%`;
  element.style.width = `${(bounds.width / size.width) * 100}%`;
  element.style.height = `${(bounds.height / size.height) * 100}%`;
  return element;
}
