// Texts whose contrast with what is behind them is less than WCAG AA asks for.
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  const known = new Map(); // a page has few colours and many texts
  const rgba = (color) => known.get(color) ?? known.set(color, read(color)).get(color);
  const read = (color) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = color;
    brush.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const grounds = new Map();
  const behind = (node) => {
    if (!node) return [255, 255, 255, 1];
    if (!grounds.has(node)) grounds.set(node, over(rgba(getComputedStyle(node).backgroundColor), behind(node.parentElement)));
    return grounds.get(node);
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let looked = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || /SCRIPT|NOSCRIPT|OPTION/.test(node.tagName)) continue;
    const style = getComputedStyle(node);
    const under = behind(node);
    const [a, b] = [light(over(rgba(style.color), under)), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    looked++;
    if (ratio < (large ? 3 : 4.5)) poor.push(`${node.tagName}.${node.className} “${walker.currentNode.data.trim().slice(0, 30)}” ${ratio.toFixed(2)}`);
  }
  return { looked, poor };
};
