// Five machines, one schedule; a limit and a throttle. The page decides nothing: it draws what the services say.

const $ = (selector, from = document) => from.querySelector(selector);
const make = (tag, facts = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), facts);
  element.append(...children);
  return element;
};
const SHOWN = 40;

async function post(path) {
  const answer = await fetch(path, { method: "POST" });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error ?? answer.statusText);
  return said;
}

// ---- machines

let source = null;
$("#machines").addEventListener("shown", () => {
  if (source) return;
  $("#machines-note").textContent = "Five processes are started …";
  source = new EventSource("/machines/events");
  source.addEventListener("machines", ({ data }) => draw(JSON.parse(data)));
  source.addEventListener("error", () => { $("#machines-note").textContent = "This page gets no answer; it asks again on its own."; });
});

function draw({ machines, runs }) {
  const leaders = machines.filter((each) => each.fence !== null);
  $("#machines-note").textContent = leaders.length ? "" : "Nobody leads: the lease of the last leader has not ended yet.";
  const racks = $("#racks");
  while (racks.children.length < machines.length) racks.append(rack(racks.children.length + 1));
  machines.forEach(({ alive, fence }, place) => {
    const box = racks.children[place];
    box.classList.toggle("leads", fence !== null);
    box.classList.toggle("dead", !alive);
    const text = !alive ? "killed; it comes back" : fence !== null ? `leads, fence …${String(fence).slice(-5)}` : "follows";
    if ($(".role", box).textContent !== text) $(".role", box).textContent = text;
  });
  $("#runs").replaceChildren(...runs.map(({ ago, machine }) => {
    const dot = make("i");
    dot.style.left = `${100 * (1 - ago / SHOWN)}%`;
    dot.style.top = `${20 * machine + 10}%`;
    return dot;
  }));
  $("#runs-text").textContent = `${runs.length} runs in the last ${SHOWN} seconds, each on one machine.`;
}

function rack(number) {
  const button = make("button", { type: "button", className: "second", textContent: "Kill it" });
  button.setAttribute("aria-label", `Kill machine ${number}`);
  button.addEventListener("click", async () => {
    try {
      await post(`/machines/kill/${number}`);
    } catch (error) {
      $("#machines-note").textContent = error.message;
    }
  });
  return make("article", { className: "rack" }, make("h2", { textContent: `Machine ${number}` }), make("p", { className: "role" }), button);
}

// ---- a limit

const PLACES = 3;
let inside = 0;
const places = $("#places");
for (let each = 0; each < PLACES; each++) places.append(make("i"));
const drawPlaces = () => [...places.children].forEach((each, place) => each.classList.toggle("full", place < inside));

$("#call").addEventListener("click", async () => {
  inside += 1;
  drawPlaces();
  const said = await post("/machines/call").catch((error) => ({ busy: error.message }));
  inside -= 1;
  drawPlaces();
  $("#call-says").textContent = said.busy ?? "Done: its place is free again.";
});

// ---- a rate

const bucket = $("#bucket");
for (let each = 0; each < 5; each++) bucket.append(make("i", { className: "full" }));

$("#message").addEventListener("click", async () => {
  const said = await post("/machines/message").catch((error) => ({ busy: error.message }));
  const left = said.left ?? 0;
  [...bucket.children].forEach((each, place) => each.classList.toggle("full", place < left));
  $("#message-says").textContent = said.busy ?? `Sent. ${left} more at once; one comes back every 2 s.`;
});
