// The fault buttons and the line to copy, on every panel. The page decides nothing: the server says what is broken.

const make = (tag, facts, ...children) => {
  const element = Object.assign(document.createElement(tag), facts);
  element.append(...children);
  return element;
};
const now = () => performance.now() / 1000;

const WORDS = {
  title: ["Break it", "弄壞看看"],
  stop: ["Freeze the server, 5\u00a0s", "停住伺服器 5 秒"],
  slow: ["Slow it down, 10\u00a0s", "讓它變慢 10 秒"],
  switch: ["Switch masters, 15\u00a0s", "切換主機 15 秒"],
  undo: ["Undo now", "立刻復原"],
  copy: ["Copy", "複製"],
  copied: ["Copied", "已複製"],
  other: ["Another visitor did it.", "是另一位訪客做的。"],
  left: [(s) => `${s}\u00a0s more`, (s) => `還有 ${s} 秒`],
};
/** What is broken, and how it comes back. */
const BROKEN = {
  stop: [({ what }) => `${title(what)} is frozen (SIGSTOP). It resumes on its own.`, ({ what }) => `${server(what)} 已停住（SIGSTOP），時間到會自己恢復。`],
  slow: [({ what }) => `${title(what)} answers only ten times a second, and speeds up again on its own.`, ({ what }) => `${server(what)} 每秒只回答十次，時間到會自己恢復。`],
  switch: [({ what }, master) => `The replica, server ${master}, is the master now; ${what} follows it. They change back on their own.`, ({ what }, master) => `複本（伺服器 ${master}）現在是主機，${server(what)} 跟隨它，時間到會自己換回來。`],
  kill: [({ what }) => `${title(what)} was killed (SIGKILL). A new one starts on its own.${what === "the bot" ? " What it was at work on is lost, unless LINE delivers it again." : ""}`, () => "機器人的程序已被強制結束（SIGKILL），稍後會自己重新啟動。進行中的工作已遺失，除非 LINE 重新傳送。"],
};
const WAS = {
  stop: [({ what, lasted }) => `${title(what)} was frozen for ${lasted.toFixed(1)}\u00a0s, and runs again.`, ({ what, lasted }) => `${server(what)} 停了 ${lasted.toFixed(1)} 秒，已恢復。`],
  slow: [({ what, lasted }) => `${title(what)} was slow for ${lasted.toFixed(1)}\u00a0s, and is quick again.`, ({ what, lasted }) => `${server(what)} 慢了 ${lasted.toFixed(1)} 秒，已恢復。`],
  switch: [({ lasted }, master) => `Server ${master} is the master again, after ${lasted.toFixed(1)}\u00a0s.`, ({ lasted }, master) => `${lasted.toFixed(1)} 秒後，伺服器 ${master} 又是主機。`],
  kill: [({ what, lasted }) => `${title(what)} was killed; a new one was up ${lasted.toFixed(1)}\u00a0s later.`, ({ lasted }) => `程序被強制結束，${lasted.toFixed(1)} 秒後已重新啟動。`],
};
const WELL = [(master) => `Nothing is broken. Server ${master} is the master.`, (master) => `一切正常。主機是伺服器 ${master}。`];

const title = (text) => text[0].toUpperCase() + text.slice(1);
const server = (what) => what.replace("server", "伺服器");

let state = null; // the last thing the server said,
let heardAt = 0; // and when
const bars = [];

/** What is broken now: stop, slow, kill or switch; undefined: nothing is. */
export const broken = () => state?.fault?.kind;

/** A bar in *box*. `kill`: what its button says, and a path or a function; `mortals`: what can be killed there; `language`: 0 English, 1 Chinese. */
export function addFaults(box, { kill: [killLabel, kill], mortals, language = 0 }) {
  const word = (name) => WORDS[name][language];
  const titled = make("h2", { textContent: word("title"), id: `faults-${bars.length}` });
  const button = (kind, textContent, work) => {
    const element = make("button", { type: "button", className: "second", textContent });
    element.dataset.fault = kind;
    element.addEventListener("click", () => { if (!state?.fault) send(bar, work); });
    return element;
  };
  const buttons = [
    ...["stop", "slow"].map((kind) => button(kind, word(kind), `/faults/${kind}`)),
    button("kill", killLabel, kill),
    button("switch", word("switch"), "/faults/switch"),
  ];
  const says = make("span", { className: "fault-says" });
  says.setAttribute("role", "status");
  const left = make("span", { className: "fault-left" });
  left.setAttribute("aria-hidden", "true"); // a status that counts would be read over and over
  const undo = make("button", { type: "button", className: "undo", textContent: word("undo"), hidden: true });
  undo.addEventListener("click", () => { buttons[0].focus(); send(bar, "/faults/", "DELETE"); });
  const bar = { language, buttons, says, left, undo, mortals, problem: "" };
  box.append(titled, make("div", { className: "buttons" }, ...buttons), make("p", { className: "fault-state" }, says, " ", left, " ", undo));
  box.setAttribute("aria-labelledby", titled.id);
  bars.push(bar);
  draw();
}

async function send(bar, work, method = "POST") {
  bar.problem = "";
  if (typeof work === "function") { work(); return; }
  try {
    const answer = await fetch(work, { method });
    if (!answer.ok && answer.status !== 404) bar.problem = (await answer.json()).error;
  } catch {
    // The other streams notice, too, and say so.
  }
  draw();
}

// ---- what the server says

const stream = new EventSource("/faults/events");
stream.addEventListener("faults", (message) => {
  const before = state?.fault?.kind;
  state = JSON.parse(message.data);
  heardAt = now();
  if (before !== state.fault?.kind) for (const bar of bars) bar.problem = "";
  draw();
});
addEventListener("pagehide", () => stream.close()); // what this page broke is undone

function draw() {
  if (!state) return;
  for (const bar of bars) drawBar(bar);
}

function drawBar({ language, buttons, says, left, undo, mortals, problem }) {
  const { fault, master } = state;
  const last = state.last && (state.last.kind !== "kill" || mortals.test(state.last.what)) ? state.last : null; // what died on another panel is told there
  for (const button of buttons) {
    button.setAttribute("aria-disabled", Boolean(fault));
    button.classList.toggle("on", fault?.kind === button.dataset.fault);
  }
  const well = last ? WAS[last.kind][language](last, master) : WELL[language](master);
  const whose = fault && !fault.mine ? ` ${WORDS.other[language]}` : "";
  write(says, problem || (fault ? BROKEN[fault.kind][language](fault, master) + whose : well));
  says.parentElement.classList.toggle("broken", Boolean(fault || problem));
  const seconds = fault ? Math.max(fault.left - (now() - heardAt), 0) : 0;
  write(left, seconds ? WORDS.left[language](seconds.toFixed(1)) : "");
  undo.hidden = !fault?.undo;
}

/** Only where it differs: a live region would read it again. */
function write(element, text) { if (element.textContent !== text) element.textContent = text; }

setInterval(() => { if (state?.fault) draw(); }, 100);

// ---- the line to copy

export function addCopy(box, language = 0) {
  const button = make("button", { type: "button", className: "copy", textContent: WORDS.copy[language] });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(box.querySelector("code").textContent);
      button.textContent = WORDS.copied[language];
      setTimeout(() => { button.textContent = WORDS.copy[language]; }, 2000);
    } catch {
      getSelection().selectAllChildren(box.querySelector("code")); // Ctrl-C does it then
    }
  });
  box.append(button);
}

// ---- the panels of the first page

for (const box of document.querySelectorAll(".write, .install")) addCopy(box);
for (const box of document.querySelectorAll(".faults")) {
  const panel = box.closest(".panel");
  const path = box.dataset.path ?? (() => panel.dispatchEvent(new Event("kill")));
  addFaults(box, { kill: [box.dataset.kill, path], mortals: new RegExp(box.dataset.mortals) });
}
