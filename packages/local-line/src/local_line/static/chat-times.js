// A date, a time or both, asked for by the browser's own picker.

import { word } from "./chat-words.js";

const TYPE = { date: "date", time: "time", datetime: "datetime-local" };

const box = document.querySelector("#picker"), field = document.querySelector("#picked");

/** `2026-07-01`, `09:30` or `2026-07-01T09:30`; null: nothing was chosen. */
export function askForTime({ mode, initial, min, max }) {
  document.querySelector("#picker-label").textContent = word(mode);
  field.type = TYPE[mode];
  field.min = min ?? "";
  field.max = max ?? "";
  field.value = (initial ?? "").replace("t", "T");
  box.returnValue = "";
  box.showModal();
  return new Promise((resolve) => {
    box.addEventListener("close", () => resolve(box.returnValue === "send" ? field.value : null), { once: true });
  });
}
