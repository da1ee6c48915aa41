import { word } from "./chat-words.js";

/** JSON with its words in colour. */
export function pretty(value) {
  const box = document.createElement("pre");
  box.tabIndex = 0;
  const text = value === null ? word("nothing") : typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const parts = text.split(/("(?:[^"\\]|\\.)*"(?:\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/);
  parts.forEach((part, index) => box.append(index % 2 ? coloured(part) : part));
  return box;
}

const coloured = (part) => Object.assign(document.createElement("span"), { className: kindOf(part), textContent: part });

const kindOf = (part) => (part.endsWith(":") ? "json-key" : part.startsWith('"') ? "json-text" : "json-value");
