// Making elements, and saying durations and sizes.

export const $ = (id) => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.map((each) => (typeof each === "string" ? visible(each) : each)));
  return element;
}

// Only what has changed is written: it must not disturb a selection or a screen reader.
export function write(node, text) {
  const shown = visible(String(text));
  if (node.textContent !== shown) node.textContent = shown;
}

// A key may hold marks that turn the direction of what follows, or invisible characters.
function visible(text) {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]/gu, (each) => {
    const code = each.codePointAt(0).toString(16); // as the command line writes it
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  });
}

// A number and its unit stay on one line.
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${Math.round(value * 1e6)}\u00a0µs`;
  if (value < 1) return `${(value * 1000).toPrecision(value < 0.1 ? 2 : 3)}\u00a0ms`;
  return long(value);
}

export function long(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10) return `${value.toFixed(1)}\u00a0s`;
  if (value < 120) return `${Math.floor(value)}\u00a0s`;
  if (value < 7200) return `${Math.floor(value / 60)}\u00a0min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)}\u00a0h`;
  return `${Math.floor(value / 86400)}\u00a0days`;
}

export function bytes(value) {
  if (value < 1024) return `${value}\u00a0B`;
  if (value < 1048576) return `${(value / 1024).toFixed(1)}\u00a0kB`;
  if (value < 1073741824) return `${(value / 1048576).toFixed(1)}\u00a0MB`;
  return `${(value / 1073741824).toFixed(1)}\u00a0GB`;
}

export const number = (value) => value.toLocaleString("en").replaceAll(",", " ");

export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;

export const clock = (epoch) => new Date(epoch * 1000).toLocaleTimeString("en-GB");
