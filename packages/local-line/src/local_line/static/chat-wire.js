// One line of what went over the wire.

const make = (tag, className, ...children) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...children);
  return element;
};

const took = (seconds) => (seconds < 1 ? `${Math.max(Math.round(seconds * 1000), 1)} ms` : `${seconds.toFixed(2)} s`);
const REASON = { request_timeout: "no answer in 2 s", could_not_connect: "nobody there", error_status_code: "" };

function clock(at) {
  const date = new Date(at * 1000);
  return `${date.toLocaleTimeString("en-GB")}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

export function wireRow(row) {
  const isWebhook = row.kind === "delivery";
  const isFine = isWebhook ? row.reason === "ok" : row.status < 400;
  const line = make("li", `${isWebhook ? "out" : "in"} ${isFine ? "fine" : "failed"}`);
  const arrow = make("b", "arrow", isWebhook ? "→" : "←");
  arrow.setAttribute("aria-hidden", "true");
  const what = make("span", "what", make("span", "unseen", isWebhook ? "webhook: " : "call: "), ...(isWebhook ? events(row) : call(row)));
  const status = make("span", "status", String(row.status ?? "–"));
  line.append(make("time", "", clock(row.at)), arrow, what, status, make("span", "took", took(row.took)));
  const remark = isWebhook ? REASON[row.reason] : row.note;
  if (remark) line.append(make("small", "remark", remark));
  return line;
}

function events({ events, isRedelivery, isStandby }) {
  const tags = [isRedelivery && "redelivered", isStandby && "standby"].filter(Boolean);
  return [events.join(" + "), ...tags.map((tag) => make("em", "", tag))];
}

function call({ method, route }) {
  return [`${method} `, make("code", "", route.replace("/v2/bot/", ""))];
}
