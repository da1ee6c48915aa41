// Whose phone it is, and the phones of the others beside it.

import { word } from "./chat-words.js";

const $ = (selector) => document.querySelector(selector);
const make = (tag, facts, ...children) => {
  const element = Object.assign(document.createElement(tag), facts);
  element.append(...children);
  return element;
};

const beside = new Set(new URLSearchParams(location.search).getAll("beside"));

function addressOf(person, more = {}) {
  const address = new URL(location.href);
  address.searchParams.set("as", person);
  for (const [name, value] of Object.entries(more)) address.searchParams.set(name, value);
  return address;
}

export function drawPeople({ person, people }, { isBare }) {
  if (isBare || $("#people label")) return;
  for (const [id, name] of Object.entries(people)) $("#people").append(choice(id, name, id === person));
  for (const [id, name] of Object.entries(people)) if (id !== person) $("#people").append(besideSwitch(id, name));
  for (const id of beside) if (people[id] && id !== person) show(id, people[id]);
}

function choice(id, name, isChosen) {
  const radio = make("input", { type: "radio", name: "person", value: id, checked: isChosen });
  radio.addEventListener("change", () => {
    const address = addressOf(id);
    address.searchParams.delete("beside");
    location.assign(address);
  });
  return make("label", {}, radio, ` ${name}`);
}

function besideSwitch(id, name) {
  const box = make("input", { type: "checkbox", checked: beside.has(id) });
  box.addEventListener("change", () => (box.checked ? show(id, name) : hide(id)));
  return make("label", { className: "beside" }, box, ` ${word("beside", name)}`);
}

function show(id, name) {
  const address = addressOf(id, { bare: "" });
  address.searchParams.delete("beside");
  const frame = make("iframe", { src: address, title: word("besideOf", name), className: "other-phone" });
  frame.dataset.person = id;
  $("#others").append(frame);
  keep(id, true);
}

function hide(id) {
  $(`#others [data-person="${id}"]`)?.remove();
  keep(id, false);
}

function keep(id, isShown) {
  if (isShown) beside.add(id);
  else beside.delete(id);
  const address = new URL(location.href);
  address.searchParams.delete("beside");
  for (const each of beside) address.searchParams.append("beside", each);
  history.replaceState(null, "", address);
}
