// A date, a time or both, asked for by the browser's own picker.

import { word } from "./chat-words.js";

const TYPE = { date: "date", time: "time", datetime: "datetime-local" };

const box = document.querySelector("#picker"), field = document.querySelector("#picked");

/** LINE's reference writes `2026-07-01t09:30`; the browser wants a T. */
const spelled = (value) => (value ?? "").replace("t", "T");

function now(mode) {
  const local = new Date(Date.now() - new Date().getTimezoneOffset() * 60_000).toISOString();
  return mode === "date" ? local.slice(0, 10) : mode === "time" ? local.slice(11, 16) : local.slice(0, 16);
}

const within = (value, min, max) => (min && value < min ? min : max && value > max ? max : value);

/** `2026-07-01`, `09:30` or `2026-07-01T09:30`; null: nothing was chosen. */
export function askForTime({ mode, initial, min, max }) {
  document.querySelector("#picker-label").textContent = word(mode);
  field.type = TYPE[mode];
  field.min = spelled(min);
  field.max = spelled(max);
  field.value = spelled(initial) || within(now(mode), field.min, field.max);
  box.returnValue = "";
  box.showModal();
  return new Promise((resolve) => {
    box.addEventListener("close", () => resolve(box.returnValue === "send" ? field.value : null), { once: true });
  });
}
