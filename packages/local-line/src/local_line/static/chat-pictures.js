// Pictures that a bot sends by URL: the page calls only its own server until the user clicks on one.

import { word } from "./chat-words.js";

/** The button puts the picture at *url* in *frame*; where it stands itself, unless there is a *holder* for it. */
export function offerPicture(frame, url, holder = frame) {
  if (!url?.startsWith("https://")) return frame;
  const label = Object.assign(document.createElement("button"), { type: "button", className: "show-picture", textContent: word("showPicture") });
  label.addEventListener("click", (event) => {
    event.stopPropagation();
    const picture = Object.assign(document.createElement("img"), { className: "shot", alt: word("image"), referrerPolicy: "no-referrer" });
    picture.addEventListener("load", () => { label.remove(); frame.replaceChildren(picture); });
    picture.addEventListener("error", () => { label.textContent = word("noPicture"); });
    picture.src = url;
  });
  holder.replaceChildren(label);
  return frame;
}

const shown = new Set(); // icons that were asked for

/** The face of a *sender* of the bot: a letter, until a click asks for the icon. */
export function senderFace({ name, iconUrl }) {
  if (shown.has(iconUrl)) return icon(iconUrl);
  const button = Object.assign(document.createElement("button"), { type: "button", className: "face letter", textContent: [...name][0] });
  button.setAttribute("aria-label", word("showIcon", name));
  button.dataset.icon = iconUrl;
  button.addEventListener("click", () => icon(iconUrl).addEventListener("load", () => showIcon(iconUrl)));
  return button;
}

function showIcon(url) {
  shown.add(url);
  for (const button of document.querySelectorAll(`.face[data-icon="${CSS.escape(url)}"]`)) button.replaceWith(icon(url));
}

const icon = (src) => Object.assign(document.createElement("img"), { className: "face drawn", alt: "", referrerPolicy: "no-referrer", src });
