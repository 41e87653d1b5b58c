// Elements that make the page scroll sideways.
() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > width + 1)
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.trim().slice(0, 40)}`);
}
