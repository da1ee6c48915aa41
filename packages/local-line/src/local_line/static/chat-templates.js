// Template messages as Flex messages: one way to draw a card is enough.

const button = (action) => ({ type: "button", style: "link", height: "sm", action });
const text = (words, rest = {}) => ({ type: "text", text: words, wrap: true, ...rest });

function card({ thumbnailImageUrl, imageAspectRatio, title, text: words, actions, defaultAction }) {
  const contents = [];
  if (title) contents.push(text(title, { weight: "bold", size: "md" }));
  contents.push(text(words, { size: "sm", color: title ? "#666666" : "#111111", margin: "sm" }));
  return {
    type: "bubble",
    size: "kilo",
    ...(thumbnailImageUrl && { hero: { type: "image", url: thumbnailImageUrl, size: "full", aspectRatio: imageAspectRatio === "square" ? "1:1" : "1.51:1" } }),
    body: { type: "box", layout: "vertical", contents, ...(defaultAction && { action: defaultAction }) },
    footer: { type: "box", layout: "vertical", contents: actions.map(button) },
    styles: { footer: { separator: true } },
  };
}

function confirm({ text: words, actions }) {
  return {
    type: "bubble",
    size: "kilo",
    body: { type: "box", layout: "vertical", contents: [text(words, { size: "sm" })] },
    footer: { type: "box", layout: "horizontal", contents: actions.map(button) },
    styles: { footer: { separator: true } },
  };
}

function picture({ imageUrl, action }) {
  const footer = action.label && { type: "box", layout: "vertical", contents: [button(action)] };
  return { type: "bubble", size: "micro", hero: { type: "image", url: imageUrl, size: "full", action }, ...(footer && { footer }) };
}

const carousel = (bubbles) => ({ type: "carousel", contents: bubbles });

/** The same card as a Flex container. */
export function asFlex(template) {
  switch (template.type) {
    case "confirm": return confirm(template);
    case "carousel": return carousel(template.columns.map((column) => card({ ...template, ...column })));
    case "image_carousel": return carousel(template.columns.map(picture));
    default: return card(template);
  }
}
