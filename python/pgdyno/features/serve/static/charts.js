"use strict";
// What the charts of all pages share: colors, numbers, axes, rows of tables.

const byId = (id) => document.getElementById(id);
const style = getComputedStyle(document.documentElement);
const color = (name) => style.getPropertyValue(`--${name}`).trim();
const armColor = (i) => color(`a${i % 6}`);
const number = (value, digits) => value.toLocaleString("en-US", { maximumFractionDigits: digits });
const fromZero = (_, low, high) => [0, (high || 1) * 1.05];

function axes(x, y) {
  const shown = { stroke: color("quiet"), grid: { stroke: color("rule"), width: 1 }, ticks: { stroke: color("rule") } };
  return [{ ...shown, space: 80, values: (_, ticks) => ticks.map(x) }, { ...shown, size: 70, values: (_, ticks) => ticks.map(y) }];
}

function row(cells) {
  const found = document.createElement("tr");
  for (const [i, cell] of cells.entries()) {
    const one = document.createElement(i ? "td" : "th");
    if (!i) one.scope = "row";
    if (cell instanceof Node) one.append(cell);
    else one.textContent = cell;
    if (i && /^[\d.,–]+$/.test(one.textContent)) one.className = "n";
    found.append(one);
  }
  return found;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
