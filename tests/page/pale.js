// Texts whose contrast is below that of WCAG 2.2, level AA: 4.5, or 3 for large ones.
() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  canvas.canvas.width = canvas.canvas.height = 1;
  const over = (colors) => { // the last color is on top
    canvas.clearRect(0, 0, 1, 1);
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode()); ) {
    const element = text.parentElement;
    const isSeen = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!isSeen || !text.data.trim()) continue;
    const style = getComputedStyle(element), below = [];
    for (let at = element; at; at = at.parentElement) below.unshift(getComputedStyle(at).backgroundColor);
    const ink = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [luminance(over(["Canvas", ...below, ink])), luminance(over(["Canvas", ...below]))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), isBold = style.fontWeight >= 700;
    if (ratio >= (size >= 24 || (size >= 18.66 && isBold) ? 3 : 4.5)) continue;
    found.add(`${ratio.toFixed(2)} ${element.outerHTML.slice(0, 60)}: ${text.data.trim().slice(0, 40)}`);
  }
  return [...found];
}
