"use strict";
// The page is complete without this script: it sorts tables, shows the values at the pointer in charts, zooms
// charts over time, and opens the section of an address.

const FACTORS = {
  "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400,
  "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2 ** 10, "MiB": 2 ** 20, "GiB": 2 ** 30, "TiB": 2 ** 40,
};

// The value of a cell, without its interval: "1 min 04 s" is 64, "−19.8 [−20.2, −19.4]" is −19.8.
function valueOf(text) {
  const plain = text.split("[")[0].replace(/[\s,]/g, "").replace(/−/g, "-");
  const parts = [...plain.matchAll(/(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)([a-zA-Zµ]*)/g)];
  const found = parts.filter((part, i) => i === 0 || part[2] in FACTORS);
  return found.length ? found.reduce((sum, part) => sum + Number(part[1]) * (FACTORS[part[2]] ?? 1), 0) : NaN;
}

function compareTexts(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

// Cells without a value are last, in both directions.
function compareValues(a, b, sign) {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
  return sign * (a - b);
}

function makeSortable(table) {
  const body = table.tBodies[0], original = [...body.rows];
  if (original.length < 2) return;
  // The first cells of a row are empty if they repeat those of the row above.
  const written = original.map((row) => [...row.cells].map((cell) => cell.textContent));
  const full = [];
  for (const [r, texts] of written.entries()) {
    const repeats = texts.findIndex((text) => text !== "");
    const isFirst = original[r].classList.contains("first");
    full.push(texts.map((text, c) => (!isFirst && c < repeats && r > 0 ? full[r - 1][c] : text)));
  }
  const heads = [...table.tHead.rows[0].cells];
  const show = (order, texts) => {
    for (const [r, row] of original.entries()) {
      for (const [c, cell] of [...row.cells].entries()) {
        if (cell.textContent !== texts[r][c]) cell.textContent = texts[r][c];
      }
    }
    body.append(...order.map((r) => original[r]));
    body.classList.toggle("sorted", texts === full);
  };
  const sort = (column) => {
    const head = heads[column], isNumeric = head.classList.contains("n");
    // Numbers begin with the largest, texts with the first; a third click restores the order of the report.
    const directions = isNumeric ? ["descending", "ascending", null] : ["ascending", "descending", null];
    const direction = directions[(directions.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
    for (const one of heads) one.removeAttribute("aria-sort");
    const order = [...original.keys()];
    if (direction === null) return show(order, written);
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    order.sort((a, b) =>
      isNumeric
        ? compareValues(valueOf(full[a][column]), valueOf(full[b][column]), sign)
        : sign * compareTexts(full[a][column], full[b][column]),
    );
    show(order, full);
  };
  for (const [column, head] of heads.entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(column));
  }
}

function openTarget() {
  let at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const target = at;
  for (; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target?.scrollIntoView();
}

function overlay(className) {
  const found = document.createElement("div");
  found.className = className;
  found.hidden = true;
  return document.body.appendChild(found);
}

const [readout, cross, chosen] = ["readout", "cross", "chosen"].map(overlay);
const place = (of, left, top, width, height) => {
  of.hidden = false;
  Object.assign(of.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
};
const AXIS = ".grid, .zero"; // the first line is as long as the axis of time
const middle = (box) => [box.left + box.width / 2, box.top + box.height / 2];

// The readout takes the place of the tooltips, so the titles move to an attribute.
function marksOf(picture) {
  for (const title of picture.querySelectorAll("title")) {
    title.parentNode.dataset.title = title.textContent;
    title.remove();
  }
  const visible = [...picture.querySelectorAll("[data-title]")].filter((one) => one.getClientRects().length);
  const isZoomed = picture.querySelector("svg"), inside = (isZoomed ? picture.querySelector(AXIS) : picture).getBoundingClientRect();
  return visible
    .map((one) => ({ text: one.dataset.title, kind: one.localName, arm: /\barm\d/.exec(one.getAttribute("class"))?.[0], at: middle(one.getBoundingClientRect()) }))
    .filter(({ at: [x] }) => x >= inside.left - 1 && x <= inside.right + 1);
}

// Over an axis of time, rates or percentiles: the nearest mark of each arm. Elsewhere: the nearest mark.
function showValues(picture, x, y) {
  const isSeries = picture.matches(".rates, .curves"), nearest = new Map();
  for (const mark of marksOf(picture)) {
    const away = isSeries ? Math.abs(mark.at[0] - x) : Math.hypot(mark.at[0] - x, mark.at[1] - y);
    const key = isSeries ? mark.arm + mark.kind : "", reach = !isSeries ? 24 : mark.kind === "circle" ? 40 : 6;
    if (away < (nearest.get(key)?.away ?? reach)) nearest.set(key, { ...mark, away });
  }
  const found = [...nearest.values()].sort((a, b) => a.at[1] - b.at[1]), first = [...found].sort((a, b) => a.away - b.away)[0];
  readout.hidden = cross.hidden = !first;
  if (!first) return;
  readout.textContent = found.map((one) => one.text).join("\n");
  readout.style.left = 0; // an edge of the window would narrow it
  const box = picture.getBoundingClientRect(), { width, height } = readout.getBoundingClientRect();
  const left = x + 14 + width > document.documentElement.clientWidth ? Math.max(4, x - 14 - width) : x + 14;
  Object.assign(readout.style, { left: `${left}px`, top: `${Math.max(4, y - 14 - height)}px` });
  if (isSeries) place(cross, first.at[0], box.top, 0, box.height);
  else cross.hidden = true;
}

// The marks of a chart over time get a view of their own, whose box is the chosen part of the axis.
function zoom(picture, from, to) {
  let view = picture.querySelector("svg");
  const line = picture.querySelector(AXIS), labels = [...picture.querySelectorAll(".middle.small")];
  const [left, right] = ["x1", "x2"].map((name) => Number(line.getAttribute(name)));
  const height = picture.viewBox.baseVal.height, box = picture.getBoundingClientRect(), scale = box.width / picture.viewBox.baseVal.width;
  if (!view) {
    view = document.createElementNS(picture.namespaceURI, "svg");
    view.append(...picture.querySelectorAll(":scope > [class*=arm]"));
    const [width, viewBox] = [right - left, `${left} 0 ${right - left} ${height}`];
    for (const [name, value] of Object.entries({ x: left, width, height, viewBox, preserveAspectRatio: "none" })) view.setAttribute(name, value);
    Object.assign(view.style, { width: `${width}px`, height: `${height}px` }); // the style sheet has other sizes
    picture.append(view);
    for (const one of labels) one.dataset.text = one.textContent;
  }
  const now = view.viewBox.baseVal, inView = (x) => now.x + (((x - box.left) / scale - left) / (right - left)) * now.width;
  const [low, high] = from === undefined ? [left, right] : [from, to].map((x) => Math.min(right, Math.max(left, inView(x)))).sort((a, b) => a - b);
  if (high - low < 0.5) return;
  view.setAttribute("viewBox", `${low} 0 ${high - low} ${height}`);
  view.style.setProperty("--narrow", (high - low) / (right - left));
  // The labels keep their places and get the values there. The last one may stand beside its place.
  const [a, b] = [labels[0], labels.at(labels.length > 2 ? -2 : -1)].map((one) => [Number(one.getAttribute("x")), parseFloat(one.dataset.text.replaceAll(",", ""))]);
  for (const one of labels) {
    const x = low + ((Number(one.getAttribute("x")) - left) / (right - left)) * (high - low);
    const value = a[1] + ((x - a[0]) / (b[0] - a[0])) * (b[1] - a[1]);
    one.textContent = from === undefined ? one.dataset.text : `${value.toLocaleString("en-US", { maximumFractionDigits: 2 })} s`;
  }
}

let pressed = null; // the chart and the place where a drag began
const pictureAt = (event) => event.target.closest?.("main svg:not(.flame, svg svg)");
addEventListener("pointerdown", (event) => {
  const picture = pictureAt(event);
  if (picture) showValues(picture, event.clientX, event.clientY);
  pressed = picture?.matches(".rates") && event.button === 0 ? { picture, x: event.clientX } : null;
});
addEventListener("pointermove", (event) => {
  const picture = pictureAt(event);
  if (picture) showValues(picture, event.clientX, event.clientY);
  else readout.hidden = cross.hidden = true;
  if (!pressed) return;
  const box = pressed.picture.getBoundingClientRect();
  place(chosen, Math.min(pressed.x, event.clientX), box.top, Math.abs(event.clientX - pressed.x), box.height);
});
addEventListener("pointerup", (event) => {
  chosen.hidden = true;
  if (pressed && Math.abs(event.clientX - pressed.x) > 5) zoom(pressed.picture, pressed.x, event.clientX);
  pressed = null;
});
addEventListener("pointercancel", () => {
  chosen.hidden = true;
  pressed = null;
});
addEventListener("dblclick", (event) => {
  const picture = pictureAt(event);
  if (picture?.matches(".rates")) zoom(picture);
});
for (const panels of document.querySelectorAll(".small:has(.rates), .medium:has(.rates)")) {
  const note = document.createElement("p");
  note.className = "note by-pointer";
  note.textContent = "Drag over a chart to zoom; double-click to show all of it.";
  panels.after(note);
}
addEventListener("scroll", () => (readout.hidden = cross.hidden = true), { passive: true });

for (const table of document.querySelectorAll(".scroll > table")) makeSortable(table);
if (location.hash) openTarget();
addEventListener("hashchange", openTarget);
