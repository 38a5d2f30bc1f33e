/* Returns the problems of the layout and of the contrast of the page, as texts. */
const problems = [];
const isShown = node => node.checkVisibility({ checkVisibilityCSS: true }) && !node.closest(".visually-hidden, noscript");
const name = node => (node.closest("[id]")?.id ?? "") + " '" + node.textContent.trim().slice(0, 40) + "'";

function luminance([r, g, b]) {
  const [x, y, z] = [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}

const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function backgroundAndText(node) {
  const chain = [];
  for (let it = node; it; it = it.parentElement) chain.unshift(getComputedStyle(it).backgroundColor);
  canvas.clearRect(0, 0, 1, 1);
  const pixel = colors => {
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  return [luminance(pixel(chain)), luminance(pixel([getComputedStyle(node).color]))];
}

document.body.getBoundingClientRect();
for (const it of document.getAnimations()) if (it instanceof CSSTransition) it.finish();
if (document.documentElement.scrollWidth > innerWidth) problems.push("the page scrolls horizontally: " + document.documentElement.scrollWidth);
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode, node = text.parentElement;
  if (!text.data.trim() || node.closest("script, style") || !isShown(node)) continue;
  const style = getComputedStyle(node);
  if (style.textOverflow === "ellipsis") problems.push("ellipsis: " + name(node));
  const range = document.createRange();
  range.selectNodeContents(text);
  for (const box of range.getClientRects()) {
    for (const frame of [node.closest("button"), node.closest(".ring"), node.closest("li"), node.closest(".card"), document.body]) {
      const outer = frame?.getBoundingClientRect();
      if (outer && (box.left < outer.left - 1 || box.right > outer.right + 1 || box.top < outer.top - 1 || box.bottom > outer.bottom + 1)) {
        problems.push("text outside of " + (frame.className || frame.tagName) + ": " + name(node));
      }
    }
  }
  const [back, front] = backgroundAndText(node);
  const contrast = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
  const isLarge = parseFloat(style.fontSize) >= 24;
  if (contrast < (isLarge ? 3 : 4.5)) problems.push("contrast " + contrast.toFixed(2) + ": " + name(node));
}
for (const group of document.querySelectorAll(".group")) {
  const style = getComputedStyle(group);
  if (parseFloat(style.borderLeftWidth) || parseFloat(style.borderRightWidth)) problems.push("a divider between buttons");
}
const buttons = [...document.querySelectorAll("button")];
for (const button of buttons) {
  if (!button.textContent.trim()) problems.push("a button without a name");
  const box = button.getBoundingClientRect();
  if (box.height < 36 || innerWidth < 500 && box.height < 40) problems.push("a low button: " + name(button));
  for (const other of buttons) {
    const it = other.getBoundingClientRect();
    if (other !== button && box.left < it.right && it.left < box.right && box.top < it.bottom && it.top < box.bottom) problems.push("buttons overlap: " + name(button));
  }
}
return [...new Set(problems)];
