// Pictures that a bot sends by URL: the page asks nobody but its own server, until somebody clicks on one.

import { word } from "./chat-words.js";

/** A click on *frame* puts the picture at *url* in it; only the second one does what the bot wants. */
export function offerPicture(frame, url) {
  if (!url?.startsWith("https://")) return frame;
  const label = Object.assign(document.createElement("button"), { type: "button", className: "show-picture", textContent: word("showPicture") });
  label.addEventListener("click", (event) => {
    event.stopPropagation();
    const picture = Object.assign(document.createElement("img"), { className: "shot", alt: word("image"), referrerPolicy: "no-referrer" });
    picture.addEventListener("load", () => frame.replaceChildren(picture));
    picture.addEventListener("error", () => { label.textContent = word("noPicture"); });
    picture.src = url;
  });
  frame.replaceChildren(label);
  return frame;
}
