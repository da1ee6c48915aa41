// The restaurant. The page decides nothing: it shows what the services say, and passes clicks on.

import { Replay } from "./replay.js";

const $ = (selector, from = document) => from.querySelector(selector);
const make = (tag, className, ...children) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...children);
  return element;
};
const time = (seconds) => (seconds < 1 ? `${Math.max(Math.round(seconds * 1000), 1)} ms` : `${seconds.toFixed(2)} s`);

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.error ?? answer.statusText), { code: said.code });
  return said;
}

const note = (text, isStatus = false) => {
  $("#menu-note").textContent = text;
  $("#menu-note").classList.toggle("quiet", isStatus);
};

// ---- opening time

let opened = false;
$("#cached").addEventListener("shown", open);

async function open() {
  if (opened) return;
  opened = true;
  note("The restaurant opens: five processes are started …", true);
  try {
    const { branches } = await ask("/menu/branches");
    $("#branch").replaceChildren(...branches.map((each) => new Option(each.name, each.branchId)));
    note("");
    await read();
  } catch (error) {
    opened = false; // the next click on the panel tries again
    note(error.message);
  }
}

const branch = () => $("#branch").value;

// ---- the menu

let shown = null; // the menu that was drawn last

async function read() {
  try {
    const { menu, how, took, bff } = await ask(`/menu/active?branch=${encodeURIComponent(branch())}`);
    drawMenu(menu);
    $("#got").textContent = `version ${menu.versionNo} · ${HOW[how]} · ${time(took)} · BFF\u00a0${bff}`;
  } catch (error) {
    drawClosed(error);
  }
}

const HOW = {
  hit: "from the cache",
  stale: "an old one, being refreshed",
  miss: "from the store-service",
  shared: "from another’s request",
  bypass: "past the cache, which is out",
};

function drawMenu(menu) {
  const before = shown?.branch === branch() ? shown.prices : new Map();
  const at = (iso) => iso.slice(11, 16);
  $("#menu").setAttribute("aria-busy", "false");
  $("#menu").classList.remove("closed");
  $("#menu-name").textContent = $("#branch").selectedOptions[0].text;
  $("#menu-meal").textContent = `${menu.timeWindow.name}　${at(menu.timeWindow.startsAt)}–${at(menu.timeWindow.endsAt)}`;
  const top = $("#dishes").scrollTop;
  $("#courses").replaceChildren(...menu.categories.map(courseLink));
  $("#dishes").replaceChildren(...menu.categories.map((each) => course(each, menu.items, before)));
  $("#dishes").scrollTop = shown?.branch === branch() ? top : 0;
  shown = { branch: branch(), prices: new Map(menu.items.map((item) => [item.itemId, item.price])) };
}

function courseLink({ categoryId, name }) {
  const link = make("button", "", name);
  link.type = "button";
  link.addEventListener("click", () => {
    const box = $("#dishes"), heading = $(`#course-${categoryId}`);
    box.scrollTo({ top: heading.offsetTop - box.offsetTop });
  });
  return link;
}

function course({ categoryId, name }, items, before) {
  const heading = make("h3", "", name);
  heading.id = `course-${categoryId}`;
  const own = items.filter((item) => item.categoryId === categoryId);
  return make("section", "course", heading, make("ul", "", ...own.map((item) => dish(item, before.get(item.itemId)))));
}

function dish(item, priceBefore) {
  const name = make("span", "dish-name", item.name);
  const tags = item.tags.map((tag) => make("em", "", tag));
  const row = make("li", item.available ? "dish" : "dish sold-out", make("p", "first", name, ...tags));
  const price = make("span", "price", make("small", "", "$"), String(item.price));
  if (priceBefore !== undefined && priceBefore !== item.price) price.classList.add("changed");
  $(".first", row).append(make("i", "leader"), item.available ? price : make("span", "price", "售完"));
  const allergens = item.allergens.length ? make("small", "allergens", `過敏原：${item.allergens.join("、")}`) : "";
  row.append(make("p", "about", item.description, " ", allergens));
  return row;
}

function drawClosed(error) {
  shown = null;
  $("#menu").setAttribute("aria-busy", "false");
  $("#menu").classList.add("closed");
  $("#menu-name").textContent = $("#branch").selectedOptions[0]?.text ?? "穗光食堂";
  $("#menu-meal").textContent = "休息中";
  $("#courses").replaceChildren();
  $("#dishes").replaceChildren(make("p", "nothing", error.message));
  $("#got").textContent = error.code ? `the store-service answered ${error.code}: nothing is cached` : "";
}

// ---- clicks

function busy(button, work) {
  return async () => {
    if (button.getAttribute("aria-disabled") === "true" || !branch()) return;
    button.setAttribute("aria-disabled", "true");
    note("");
    try {
      await work();
    } catch (error) {
      note(error.message);
    } finally {
      button.removeAttribute("aria-disabled");
    }
  };
}

function onClick(id, work) { $(id).addEventListener("click", busy($(id), work)); }

async function publish(edition) {
  await ask("/menu/publish", { branch: branch(), ...edition });
  await read();
}

$("#branch").addEventListener("change", read);
onClick("#scan", read);
onClick("#raise", () => publish({ percent: 5 }));
onClick("#restore", () => publish({ copyOf: 1 }));
onClick("#rush", async () => {
  const reports = {};
  replay.end();
  for (const side of ["dibs", "seed"]) drawSide(side, null);
  for (const side of ["dibs", "seed"]) {
    $(`#side-${side}`).classList.add("running");
    try {
      drawSide(side, (reports[side] = await ask("/menu/rush", { branch: branch(), algorithm: side })));
    } finally {
      $(`#side-${side}`).classList.remove("running");
    }
  }
  offerReplay(reports);
});

/** Both runs once more, at the same time: the guests get their menus when they got them. */
function offerReplay(reports) {
  const sides = Object.entries(reports);
  const last = Math.max(...sides.flatMap(([, report]) => report.took));
  replay.offer(last, (seconds) => {
    for (const [side, report] of sides) {
      const isOver = seconds >= last;
      const how = report.how.map((each, number) => (report.took[number] <= seconds ? each : ""));
      const asked = how.filter((each) => SEAT[each] === "asked").length;
      drawSide(side, isOver ? report : { ...report, how, reached: asked, isUnderWay: true });
    }
  });
}

/** The BFF that loads the menu is killed, with 200 guests there. */
async function kill() {
  const side = $("#side-dibs");
  replay.end();
  if ($("#rush").getAttribute("aria-disabled") === "true" || !branch()) return;
  for (const each of ["dibs", "seed"]) drawSide(each, null);
  side.classList.add("running");
  try {
    drawSide("dibs", await ask("/menu/kill", { branch: branch() }));
  } catch (error) {
    note(error.message);
  } finally {
    side.classList.remove("running");
  }
}
$("#cached").addEventListener("kill", kill);

// ---- two sides

const SEAT = { miss: "asked", none: "unserved", bypass: "asked" };

function drawSide(side, report) {
  const box = $(`#side-${side}`);
  $(".reached b", box).textContent = report ? report.reached : "–";
  $(".reached span", box).textContent = report ? `of ${report.guests} reached the store-service` : "reached the store-service";
  const isOver = report && !report.isUnderWay;
  $(".p50", box).textContent = isOver ? time(report.p50) : "–";
  $(".p99", box).textContent = isOver ? time(report.p99) : "–";
  $(".verdict", box).textContent = isOver ? verdict(side, report) : "";
  const hows = report?.how ?? Array(200).fill("");
  $(".seats", box).replaceChildren(...hows.map((how) => make("i", how && (SEAT[how] ?? "spared"))));
}

function verdict(side, { served, guests, reached, delay, killed }) {
  if (killed === null) return "The menu was there before anybody could be killed. Try again.";
  if (killed) return `BFF\u00a0${killed} was killed while it loaded: its ${guests - served} guests got nothing. When its lock had ended, one of the others loaded the menu.`;
  if (!served) return "Nobody got a menu: the restaurant is closed.";
  if (served < guests) return `${guests - served} of ${guests} got no menu.`;
  if (side === "dibs") return reached === 1 ? "One asked; the others were handed its answer." : `${reached} asked.`;
  return reached > guests / 2
    ? `After 80 ms there was no menu yet – it takes ${Math.round(delay * 1000)} ms – so they all went to ask for it.`
    : "The menu was there in time for most.";
}

const replay = new Replay($("#rush-replay"), time);
for (const side of ["dibs", "seed"]) drawSide(side, null);

// ---- the code

const CODE = `@dibs.cached("cis:menu:active:v1:{branch_id}",
             ttl=180, jitter=0.2, stale=600)
async def menu(branch_id: str, table_id: str | None = None) -> ActiveMenu:
    return await store.resolve_active(branch_id, table_id)

await menu("tpe-main", "A7")
await menu.invalidate("tpe-main")`;
for (const line of CODE.split("\n")) {
  const element = make("span", "line");
  for (const part of line.split(/\b(async|def|await|return)\b/)) {
    element.append(/^(async|def|await|return)$/.test(part) ? make("span", "word", part) : part);
  }
  element.append("\n");
  $("#menu-code").append(element);
}
