// A date, a time or both, asked for by the browser's own picker.

import { word } from "./chat-words.js";

const TYPE = { date: "date", time: "time", datetime: "datetime-local" };

/** LINE's reference writes `2026-07-01t09:30`; the browser wants a T. */
const spelled = (value) => (value ?? "").replace("t", "T");

function now(mode) {
  const local = new Date(Date.now() - new Date().getTimezoneOffset() * 60_000).toISOString();
  return mode === "date" ? local.slice(0, 10) : mode === "time" ? local.slice(11, 16) : local.slice(0, 16);
}

const within = (value, min, max) => (min && value < min ? min : max && value > max ? max : value);

/** What stands in the picker at first. */
export const spelledNow = ({ mode, initial, min, max }) => spelled(initial) || within(now(mode), spelled(min), spelled(max));

/** `2026-07-01`, `09:30` or `2026-07-01T09:30`; null: nothing was chosen. */
export function askForTime(action) {
  const { mode, min, max } = action, box = document.querySelector("#picker"), field = document.querySelector("#picked");
  document.querySelector("#picker-label").textContent = word(mode);
  field.type = TYPE[mode];
  field.min = spelled(min);
  field.max = spelled(max);
  field.value = spelledNow(action);
  box.returnValue = "";
  box.showModal();
  return new Promise((resolve) => {
    box.addEventListener("close", () => resolve(box.returnValue === "send" ? field.value : null), { once: true });
  });
}
