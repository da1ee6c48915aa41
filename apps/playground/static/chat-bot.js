// What the playground adds to the chat: the way to its other panels, and how slow the bot's weather is.

const $ = (selector) => document.querySelector(selector);
const make = (tag, facts, ...children) => {
  const element = Object.assign(document.createElement(tag), facts);
  element.append(...children);
  return element;
};

// ---- the way

$(".wordmark").replaceChildren(make("a", { href: "/", textContent: "dibs" }));
document.title = "dibs – a LINE bot";
$("#gone").replaceChildren("This page has lost its server. Start it again with ", make("code", { textContent: "make run" }), "; the page finds it by itself.");

const WAYS = [["/#hold", "hold"], ["/#once", "once"], ["/#cached", "cached"], ["/chat/", "LINE bot"]];

const nav = make("nav", {}, make("ul", {}, ...WAYS.map(([href, textContent]) => make("li", {}, make("a", { href, textContent })))));
nav.setAttribute("aria-label", "Panels");
nav.querySelector('[href="/chat/"]').setAttribute("aria-current", "page");
$(".masthead").append(nav);

// ---- the lever

const slider = make("input", { type: "range", id: "delay", min: 0, max: 4, step: 1, value: 2 });
const shown = make("output", { id: "delay-now", htmlFor: "delay" });
const hint = make("p", { className: "fact" }, "Meanwhile tap ", make("span", { lang: "zh-Hant", textContent: "住家" }), " again and again: one forecast, and a word to be patient for every other tap.");
const lever = make("div", { className: "ttl" }, make("label", { htmlFor: "delay", textContent: "The weather takes" }), shown, slider, hint);
$(".backstage").prepend(lever);

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
  note("Another bot is being started, with other weather …");
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
