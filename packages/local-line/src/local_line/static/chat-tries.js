// A tap that is tried out: the webhook that the bot would get is shown; a button sends it.

import { asked } from "./chat-actions.js";
import { pretty } from "./chat-json.js";
import { spelledNow } from "./chat-times.js";
import { word } from "./chat-words.js";

const $ = (selector) => document.querySelector(selector);
const SAMPLE = { title: "臺北 101", address: "臺北 101", latitude: 25.034, longitude: 121.5645 };

const post = (path, body) => fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** Why it was not done; a server that is gone, or a proxy, says nothing. */
export async function errorOf(answer) {
  const body = await answer?.json().catch(() => null);
  return body?.error ?? word("notSent");
}

/** What a person might answer to what the phone asks them. */
function answered(action) {
  if (action.type === "location") return ["location", SAMPLE];
  if (action.type !== "datetimepicker") return asked(action);
  return ["tap", { data: action.data, params: { [action.mode]: spelledNow(action) } }];
}

/** What a phone does without the bot. */
function alone({ type, uri, clipboardText }) {
  if (type === "uri") return word("wouldOpen", uri);
  return type === "clipboard" ? word("wouldCopy", clipboardText) : "";
}

let request = null; // what the button sends

/** *who* says whose phone it is, and where. */
export async function tryOut(action, who) {
  request = answered(action);
  $("#tried").hidden = false;
  $("#tried-send").hidden = !request;
  $("#tried-words").textContent = request ? "" : alone(action);
  $("#tried-json").replaceChildren();
  if (!request) return inSight();
  const [verb, facts] = request;
  request = [verb, { ...who, ...facts }];
  const answer = await post(`api/preview/${verb}`, request[1]).catch(() => null);
  if (answer?.ok) $("#tried-json").replaceChildren(pretty(await answer.json()));
  else $("#tried-words").textContent = await errorOf(answer);
  inSight();
}

/** On a narrow screen it stands below everything. */
const inSight = () => $("#tried").scrollIntoView({ block: "nearest" });

$("#tried-send").addEventListener("click", async () => {
  const [verb, facts] = request;
  const answer = await post(`api/${verb}`, facts).catch(() => null);
  $("#tried-words").textContent = answer?.ok ? word("eventSent") : await errorOf(answer);
});

/** Whose phone it is: that of the address, and then the one that is chosen. */
export function choosePerson() {
  const person = new URLSearchParams(location.search).get("as");
  if (["ann", "ben", "cleo"].includes(person)) $("#person").value = person;
}
