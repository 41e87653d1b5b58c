"use strict";
// The page is complete without this script: it sorts tables, and opens the section of an address.

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

for (const table of document.querySelectorAll(".scroll > table")) makeSortable(table);
if (location.hash) openTarget();
addEventListener("hashchange", openTarget);
