// The width of a page that scrolls sideways, and the elements that are the reason, unless they are in a box that scrolls.
() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const isInBox = (one) => one && (getComputedStyle(one).overflowX !== "visible" || isInBox(one.parentElement));
  const found = [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > width + 1 && !isInBox(one.parentElement))
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.trim().slice(0, 40)}`);
  return [`${document.documentElement.scrollWidth} px`, ...found];
}
