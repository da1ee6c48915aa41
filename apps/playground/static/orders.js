// The shop. The page decides nothing: it shows what was sent and what came back, and passes clicks on.

const $ = (selector, from = document) => from.querySelector(selector);
const make = (tag, className, ...children) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...children);
  return element;
};
const now = () => performance.now() / 1000;
const ms = (value) => `${value < 0.0995 ? (value * 1000).toFixed(1) : Math.round(value * 1000)} ms`;
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const narrow = matchMedia("(max-width: 40rem)"); // the answers are below the buttons, out of sight
const MOST_EVENTS = 60;
const MOST_OF_ONE = 9;

const SHELF = [
  ["egg-pancake", "蛋餅", "egg pancake", 1],
  ["turnip-cake", "蘿蔔糕", "turnip cake", 0],
  ["rice-roll", "飯糰", "rice roll", 0],
  ["soy-milk", "冰豆漿", "iced soy milk", 2],
];
const NAMES = new Map(SHELF.map(([sku, name]) => [sku, name]));

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error ?? answer.statusText);
  return said;
}

const note = (text, isStatus = false) => {
  $("#orders-note").textContent = text;
  $("#orders-note").classList.toggle("quiet", isStatus);
};

// ---- opening time

let opened = false;
$("#once").addEventListener("shown", open);

async function open() {
  if (opened) return;
  opened = true;
  note("The shop opens: a process and a database are started …", true);
  try {
    const { orders, keys } = await ask("/orders/all");
    note("");
    drawTickets(orders, false);
    keep(keys);
  } catch (error) {
    opened = false; // the next click on the panel tries again
    note(error.message);
  }
}

// ---- the slip

for (const [sku, name, gloss, quantity] of SHELF) $("#lines").append(line(sku, name, gloss, quantity));

function line(sku, name, gloss, quantity) {
  const input = Object.assign(make("input", ""), { type: "number", id: `of-${sku}`, name: sku, min: 0, max: MOST_OF_ONE, value: quantity, inputMode: "numeric" });
  const chinese = Object.assign(make("span", "", name), { lang: "zh-Hant" });
  const label = Object.assign(make("label", "", chinese, make("small", "", gloss)), { htmlFor: input.id });
  const row = make("li", "", label, make("div", "stepper", step(input, -1, `One ${gloss} less`, "−"), input, step(input, 1, `One ${gloss} more`, "+")));
  const shade = () => row.classList.toggle("none", !Number(input.value));
  input.addEventListener("input", shade);
  shade();
  return row;
}

function step(input, by, name, sign) {
  const button = Object.assign(make("button", "", sign), { type: "button" });
  button.setAttribute("aria-label", name);
  button.addEventListener("click", () => {
    input.value = Math.min(Math.max(Number(input.value) + by, 0), MOST_OF_ONE);
    input.dispatchEvent(new Event("input"));
  });
  return button;
}

function items() {
  const chosen = [...document.querySelectorAll("#lines input")].filter((input) => Number(input.value) > 0);
  return Object.fromEntries(chosen.map((input) => [input.name, Number(input.value)]));
}

// ---- clicks

let isSending = false;
async function order(way) {
  if (isSending) return;
  const slip = items();
  if (!Object.keys(slip).length) { note("Put something on the slip first."); return; }
  isSending = true;
  note("");
  for (const id of ["#double", "#retry", "#forget"]) $(id).setAttribute("aria-disabled", "true");
  $(".wires").classList.add("sending");
  try {
    draw(way, await ask(`/orders/${way}`, { items: slip }));
  } catch (error) {
    note(error.message);
  } finally {
    isSending = false;
    $(".wires").classList.remove("sending");
    for (const id of ["#double", "#retry", "#forget"]) $(id).removeAttribute("aria-disabled");
  }
}

$("#slip").addEventListener("submit", (event) => { event.preventDefault(); order("double"); });
$("#retry").addEventListener("click", () => order("retry"));
$("#forget").addEventListener("click", () => order("forget"));
$("#once").addEventListener("kill", () => order("kill"));

function draw(way, report) {
  drawTries(way, report.exchanges);
  $("#sum").replaceChildren(...sum(report));
  drawTickets(report.orders, true);
  keep(report.keys);
  drawCode(way);
  if (narrow.matches) $(".wires").scrollIntoView({ behavior: calm.matches ? "instant" : "smooth" });
  const isOut = report.events.some(({ kind }) => kind === "outage");
  const means = { ...MEANS, ...(isOut && UNGUARDED), ...(way === "forget" && FORGOTTEN) };
  for (const event of report.events.sort((a, b) => RANK.indexOf(a.kind) - RANK.indexOf(b.kind))) addEvent(event, means[event.kind]);
}

const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

/** What it comes to, in a sentence. */
function sum({ exchanges, placed }) {
  const requests = exchanges.reduce((sum, each) => sum + 1 + (each.refused ?? 0), 0);
  const counted = make("b", "", `${count(requests, "request")}, ${placed ? count(placed, "new order") : "no new order"}.`);
  if (!placed && exchanges.every((each) => each.status === 429)) return [counted, " It was placed a moment ago."];
  return [counted];
}

// ---- two tries

const NAMED = { double: ["First click", "Second click"], retry: ["First try", "Second try"], kill: ["First try", "Sent again"], forget: ["First try", "Sent again"] };
const TRIES = [...document.querySelectorAll(".try")];
const clocks = [null, null]; // { until, of }: when the same order may be sent again

/** What became of it: a word for the look, and a sentence. */
function verdict(exchange, way) {
  const { status, headers, body, refused } = exchange;
  if (status === undefined && way === "kill") return ["lost", "The service was killed at work. Was it placed? Nobody here knows."];
  if (status === undefined && way === "forget") return ["lost", "Committed; then the service was killed, before it could answer, and Redis forgot the order."];
  if (status === undefined) return ["lost", "The line broke before the answer was read. Was it placed? Nobody here knows."];
  if (headers["Idempotent-Replayed"] && way === "forget") return ["replayed", "The answer that was committed with the order, from the database. Nothing was placed again."];
  if (headers["Idempotent-Replayed"]) return ["replayed", "The answer of the first, to the byte. Nothing was placed again."];
  if (status === 201 && refused) return ["placed", "Placed, when the claim of the dead process had ended."];
  if (status === 201) return ["placed", "Placed."];
  return ["refused", body.message ?? body.detail];
}

function drawTries(way, exchanges) {
  exchanges.forEach((exchange, index) => {
    const box = TRIES[index], [is, says] = verdict(exchange, way);
    const wait = Number(exchange.headers?.["Retry-After"]);
    clocks[index] = wait ? { until: now() + wait, of: wait, says } : null;
    box.dataset.is = is;
    $("h3", box).textContent = NAMED[way][index];
    $(".says", box).textContent = says;
    $(".talk", box).replaceChildren(...talk(exchange, way));
  });
  tick();
}

/** The request and its answer, as far as they matter. */
function talk({ key, status, reason, headers, took, refused }, way) {
  const sent = [make("b", "", "POST /orders"), "\n", ...(key ? [`Idempotency-Key: ${key}\n`] : [])];
  if (refused) sent.push(`${refused} × 409 Conflict, and waited as Retry-After says\n`);
  if (status === undefined) return [...sent, make("span", "said", way === "retry" ? "✗ hung up" : "✗ connection lost"), ` after ${ms(took)}\n`];
  const tag = headers["Idempotent-Replayed"] ? [make("span", "tag", "replayed")] : [];
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\n`);
  return [...sent, make("b", "said", `${status} ${reason}`), ` in ${ms(took)}`, ...tag, "\n", ...lines];
}

// ---- the kitchen

let seen = new Set();

function drawTickets(orders, marksNew) {
  $("#tickets").replaceChildren(...orders.map((each) => ticket(each, marksNew && !seen.has(each.orderId))));
  $("#no-tickets").hidden = orders.length > 0;
  seen = new Set(orders.map((each) => each.orderId));
  $("#tickets").scrollTop = 0;
}

function ticket({ orderId, placedAt, items }, isFresh) {
  const at = Object.assign(make("time", "", new Date(placedAt).toLocaleTimeString("en-GB")), { dateTime: placedAt });
  const head = make("header", "", at, make("span", "", `№ ${orderId.slice(0, 8)}`));
  const list = make("ul", "", ...items.map(({ sku, quantity }) => make("li", "", make("b", "", `${quantity}×`), NAMES.get(sku) ?? sku)));
  list.lang = "zh-Hant";
  return make("li", isFresh ? "ticket fresh" : "ticket", head, list);
}

// ---- what the server keeps

let kept = []; // { key, way, until, bytes }

function keep(keys) {
  kept = (keys ?? []).map(({ left, ...facts }) => ({ ...facts, until: now() + left }));
  $("#no-kept").textContent = keys ? "No key of yours." : "– no answer";
  $("#kept").replaceChildren(...kept.map(({ key }) => make("li", "", make("code", "", key), make("span", "", ""))));
  drawKept();
}

const KEEPS = { double: "that it was done", retry: "the answer", kill: "the answer", forget: "the answer" };

function drawKept() {
  kept.forEach(({ way, bytes, until }, index) => {
    const row = $("#kept").children[index], left = until - now();
    row.hidden = left <= 0;
    const time = left < 90 ? `${Math.max(left, 0).toFixed(1)} s` : `${Math.round(left / 3600)} h`;
    const text = `remembers ${KEEPS[way]} for ${time} more (${bytes} bytes)`;
    if (row.lastChild.textContent !== text) row.lastChild.textContent = text;
  });
  $("#no-kept").hidden = kept.some(({ until }) => until > now());
}

// ---- the code, and which half of it ran

const CODE = [
  ["double", '@once(window=10, after="hold", within=engine.begin, message="This order was submitted a moment ago.")'],
  ["double", "def place_by_content(connection: Connection, order: NewOrder, customer: str) -> Response: ..."],
  ["", ""],
  ["retry", '@once(window=86400, after="replay", within=engine.begin, key="required")'],
  ["retry", "def place_by_key(connection: Connection, order: NewOrder, customer: str) -> Response: ..."],
];
for (const [way, text] of CODE) {
  const element = make("span", "line");
  element.dataset.way = way;
  for (const part of text.split(/\b(async|def)\b/)) {
    element.append(/^(async|def)$/.test(part) ? make("span", "word", part) : part);
  }
  element.append("\n");
  $("#orders-code").append(element);
}

function drawCode(ran) {
  const way = ran === "double" ? ran : "retry";
  for (const element of $("#orders-code").children) element.classList.toggle("now", element.dataset.way === way);
}

// ---- the events

const RANK = ["outage", "claimed", "duplicate", "mismatch", "completed", "released", "replayed", "late", "recovered"];
const MEANS = {
  claimed: "the first of its kind: go on",
  duplicate: "the same is under way, or was done",
  completed: "done; its answer is stored",
  replayed: "the kept answer was given again",
  outage: "the server did not answer",
  released: "nothing is kept",
};

const FORGOTTEN = {
  claimed: "the server does not know it: the database is asked",
  replayed: "the answer was in the database",
  completed: "the server knows it again",
};
const UNGUARDED = { claimed: "let through: the database decides", completed: "done; the database keeps it" };

function addEvent({ at, kind, name, count }, meaning = "") {
  const row = document.createElement("li");
  const cell = (tag, className, textContent) => row.append(Object.assign(document.createElement(tag), { className, textContent }));
  const date = new Date(at * 1000);
  cell("time", "", `${date.toLocaleTimeString("en-GB")}.${String(date.getMilliseconds()).padStart(3, "0")}`);
  cell("span", "who", `${count}×`);
  cell("span", kind === "outage" ? "kind outage-kind" : "kind", kind);
  cell("span", "facts", meaning);
  cell("span", "name", name);
  $("#orders-events").prepend(row);
  $("#no-orders-events").hidden = true;
  while ($("#orders-events").children.length > MOST_EVENTS) $("#orders-events").lastChild.remove();
}

// ---- time goes by

function drawClock(box, clock) {
  const left = clock ? clock.until - now() : 0;
  const shown = left > 0 ? left.toFixed(1) : "";
  if ($(".clock", box).dataset.shown !== shown) {
    $(".clock", box).dataset.shown = shown;
    $(".clock", box).replaceChildren(...(shown ? [shown, make("small", "", "s")] : []));
  }
  $(".countdown i", box).style.transform = `scaleX(${clock && left > 0 ? left / clock.of : 0})`;
  if (clock && left <= 0 && !clock.isOver) {
    clock.isOver = true;
    $(".says", box).textContent = "That is over: the same order would be a new one now.";
  }
}

let timer = null;
function tick() {
  clearTimeout(timer);
  TRIES.forEach((box, index) => drawClock(box, clocks[index]));
  drawKept();
  const counts = clocks.some((clock) => clock && !clock.isOver) || kept.some(({ until }) => until > now() && until < now() + 90);
  if (counts) timer = setTimeout(tick, calm.matches ? 250 : 50);
}
