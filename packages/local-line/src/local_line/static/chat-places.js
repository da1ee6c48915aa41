// The location to send: a place from the list, two numbers, or a point on a map that is drawn here.

import { word } from "./chat-words.js";

const $ = (selector) => document.querySelector(selector);
const SVG = "http://www.w3.org/2000/svg";
const WEST = 117.9, EAST = 122.4, SOUTH = 21.6, NORTH = 26.5;
const STRETCH = Math.cos((24 * Math.PI) / 180); // a degree of longitude is shorter there
const x = (longitude) => (longitude - WEST) * STRETCH * 100;
const y = (latitude) => (NORTH - latitude) * 100;
const WIDTH = x(EAST), HEIGHT = y(SOUTH);

const KNOWN = [
  ["臺北 101", 25.034, 121.5645], ["板橋車站", 25.0143, 121.4637], ["基隆港", 25.1337, 121.7435],
  ["桃園機場", 25.0797, 121.2342], ["新竹車站", 24.8016, 120.9717], ["臺中車站", 24.1369, 120.6869],
  ["日月潭", 23.8573, 120.9160], ["阿里山", 23.5109, 120.8054], ["臺南車站", 22.9971, 120.2127],
  ["高雄港", 22.6163, 120.2677], ["墾丁", 21.9483, 120.7798], ["臺東車站", 22.7937, 121.1231],
  ["花蓮車站", 23.9928, 121.6011], ["宜蘭車站", 24.7545, 121.7583], ["澎湖馬公", 23.5655, 119.5660],
  ["金門金城", 24.4324, 118.3186], ["馬祖南竿", 26.1597, 119.9519], ["蘭嶼", 22.0560, 121.5490],
  ["臺灣海峽", 24.2, 119.6], ["東京車站", 35.6812, 139.7671],
];

// The coast, clockwise from the north, a few dozen points of it.
const COAST = [
  [121.54, 25.3], [121.66, 25.23], [121.75, 25.16], [121.92, 25.12], [122.01, 25.01], [121.9, 24.97], [121.84, 24.86],
  [121.83, 24.7], [121.88, 24.59], [121.8, 24.45], [121.74, 24.31], [121.64, 24.17], [121.62, 23.98], [121.52, 23.66],
  [121.48, 23.4], [121.39, 23.12], [121.25, 22.88], [121.17, 22.73], [121.03, 22.61], [120.9, 22.34], [120.87, 22.1],
  [120.85, 21.9], [120.74, 21.93], [120.69, 22.1], [120.62, 22.31], [120.46, 22.43], [120.3, 22.53], [120.22, 22.74],
  [120.06, 23.03], [120.07, 23.22], [120.13, 23.45], [120.15, 23.66], [120.21, 23.83], [120.38, 24.04], [120.49, 24.23],
  [120.6, 24.43], [120.73, 24.6], [120.86, 24.72], [120.94, 24.87], [121.07, 25.05], [121.29, 25.12], [121.41, 25.18],
];
const ISLANDS = [[119.57, 23.57, 10], [118.35, 24.45, 9], [119.94, 26.16, 6], [121.55, 22.05, 5], [121.49, 22.66, 4], [120.37, 22.34, 4]];

// ---- the map

function draw(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const pin = draw("circle", { class: "pin", r: 9 });
const map = draw("svg", { viewBox: `0 0 ${WIDTH.toFixed(0)} ${HEIGHT.toFixed(0)}` });
for (let degree = 118; degree <= 122; degree += 1) map.append(draw("path", { class: "grid", d: `M${x(degree)} 0V${HEIGHT}` }));
for (let degree = 22; degree <= 26; degree += 1) map.append(draw("path", { class: "grid", d: `M0 ${y(degree)}H${WIDTH}` }));
map.append(draw("polygon", { class: "land", points: COAST.map(([east, north]) => `${x(east)},${y(north)}`).join(" ") }));
map.append(...ISLANDS.map(([east, north, r]) => draw("circle", { class: "land", cx: x(east), cy: y(north), r })));
map.append(pin);
$("#map").append(map);

map.addEventListener("click", (event) => {
  const spot = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
  $("#known-place").value = "";
  choose(NORTH - spot.y / 100, WEST + spot.x / STRETCH / 100);
});

// ---- the list and the numbers

$("#known-place").append(new Option(word("spot"), ""), ...KNOWN.map(([name], index) => new Option(name, index)));
$("#known-place").addEventListener("change", () => {
  const known = KNOWN[$("#known-place").value];
  if (known) choose(known[1], known[2]);
});
for (const field of ["#latitude", "#longitude"]) {
  $(field).addEventListener("input", () => { $("#known-place").value = ""; movePin(); });
}

function choose(latitude, longitude) {
  $("#latitude").value = latitude.toFixed(4);
  $("#longitude").value = longitude.toFixed(4);
  movePin();
}

function movePin() {
  const latitude = Number($("#latitude").value), longitude = Number($("#longitude").value);
  pin.setAttribute("cx", x(longitude));
  pin.setAttribute("cy", y(latitude));
}

$("#known-place").value = "0";
choose(KNOWN[0][1], KNOWN[0][2]);

/** What is sent; null: nothing was chosen. */
export function askForPlace() {
  const box = $("#places");
  box.returnValue = "";
  box.showModal();
  return new Promise((resolve) => {
    box.addEventListener("close", () => resolve(box.returnValue === "send" ? chosen() : null), { once: true });
  });
}

function chosen() {
  const place = { latitude: Number($("#latitude").value), longitude: Number($("#longitude").value) };
  const known = KNOWN[$("#known-place").value];
  const address = $("#address").value.trim() || known?.[0]; // LINE's app always names one
  return { ...place, ...(known && { title: known[0] }), ...(address && { address }) };
}
