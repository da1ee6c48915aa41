// What the playground adds to the chat: the way to its other panels, how slow the bot's weather is, and its lock.

import { language } from "/chat/static/chat-words.js";
import { addCopy, addFaults } from "/static/faults.js";

const $ = (selector) => document.querySelector(selector);
const make = (tag, facts, ...children) => {
  const element = Object.assign(document.createElement(tag), facts);
  element.append(...children);
  return element;
};
const say = (english, chinese) => (language === "zh" ? chinese : english);
const person = new URLSearchParams(location.search).get("as") ?? "ann";
const isBare = new URLSearchParams(location.search).has("bare");

// ---- the way

const WAYS = [["/#cached", "cached"], ["/#once", "once"], ["/#hold", "hold"], ["/chat/", "LINE bot"]];

$(".wordmark").replaceChildren(make("a", { href: "/", textContent: "dibs" }));
document.title = "dibs – a LINE bot";
$("#gone").replaceChildren(say("This page has lost its server. Start it again with ", "這個頁面連不上伺服器。請執行 "), make("code", { textContent: "make run" }), say("; the page then reconnects on its own.", "，頁面會自動恢復。"));
const nav = make("nav", {}, make("ul", {}, ...WAYS.map(([href, textContent]) => make("li", {}, make("a", { href, textContent })))));
nav.setAttribute("aria-label", say("Panels", "其他頁面"));
nav.querySelector('[href="/chat/"]').setAttribute("aria-current", "page");
$(".motto").after(nav);

// ---- the controls

const slider = make("input", { type: "range", id: "delay", min: 0, max: 4, step: 1, value: 2 });
const shown = make("output", { id: "delay-now", htmlFor: "delay" });
const home = make("button", { type: "button", id: "set-home", textContent: say("Set 板橋 as my home", "先把住家設成板橋") });
const hint = make("p", { className: "fact" },
  say("A newcomer has no home yet. ", "新朋友還沒有住家。"), home,
  say(" Then tap ", " 然後趁查詢時連點"), make("span", { lang: "zh-Hant", textContent: "住家" }),
  say(" again and again while the weather is looked up: one forecast, and a word to be patient for the other taps.", "好幾次：只會有一份預報，其他的會請您稍候。"));
const controls = make("div", { className: "ttl" }, make("label", { htmlFor: "delay", textContent: say("The weather takes", "查天氣需要") }), shown, slider, hint);
const lock = make("p", { className: "lock", id: "lock" });
lock.setAttribute("role", "status");
const LINE = 'async with dibs.hold(f"processing:user:{user_id}", ttl=5, at_least=1):';
const write = make("p", { className: "write" }, make("span", { textContent: say("Around the answer, write", "在回覆的外面，寫這一行") }), make("code", { textContent: LINE }));
const faults = make("section", { className: "faults" });
if (!isBare) {
  const number = language === "zh" ? 1 : 0;
  addCopy(write, number);
  addFaults(faults, { kill: [say("Kill the bot", "強制結束機器人"), "/chat/kill"], mortals: /bot/, language: number });
  $(".tools").prepend(write, lock, controls, faults);
}

home.addEventListener("click", async () => {
  const body = JSON.stringify({ as: person, data: "action=set&type=home&place=65000010", displayText: "把住家設成板橋" });
  try {
    const answer = await fetch("api/tap", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    note(answer.ok ? "" : (await answer.json()).error);
  } catch {
    // The stream notices, too, and says so.
  }
});

function show() {
  shown.value = `${slider.value} s`;
  slider.style.setProperty("--full", `${(slider.value / slider.max) * 100}%`);
}

const note = (text) => { $("#note").textContent = text; };

async function ask(options) {
  const answer = await fetch("/chat/bot", options);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
  slider.value = said.delay;
  show();
}

slider.addEventListener("input", show);
slider.addEventListener("change", async () => {
  note(say("Another bot is being started, with other weather …", "正在啟動另一個機器人…"));
  try {
    await ask({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ delay: Number(slider.value) }) });
    note("");
  } catch (error) {
    note(error.message);
    ask().catch(() => {}); // as it was
  }
});
show();
ask().catch(() => {}); // the stream notices, too, and says so

// ---- the lock

const EVERY = 300;

/** Poll who holds the lock, while the page is visible. */
async function look() {
  if (document.visibilityState !== "visible") return;
  try {
    const answer = await fetch(`/chat/lock?as=${encodeURIComponent(person)}`);
    if (answer.ok) drawLock((await answer.json()).remaining);
  } catch {
    // The stream notices, too, and says so.
  }
}

function drawLock(remaining) {
  const name = $("#owner").textContent || "Ann", left = remaining.toFixed(1);
  lock.classList.toggle("held", remaining > 0);
  const text = remaining > 0 ? say(`The lock: ${name} has it, for ${left} s at most.`, `處理鎖：${name} 持有中，最多再 ${left} 秒。`) : say("The lock is free.", "處理鎖：目前沒有人持有。");
  if (lock.textContent !== text) lock.textContent = text;
}

if (!isBare) setInterval(look, EVERY);
