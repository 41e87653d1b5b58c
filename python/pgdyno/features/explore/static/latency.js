// Percentile curves and heat maps of the latency.

import { STEPS_S, answerTo, armName, begin, clock, digit, fit, form, logScale, nearest, query, shown } from "./choice.js";

let plots = [];

async function load() {
  const found = await answerTo(query());
  if (!found) return;
  for (const one of plots) one.destroy();
  byId("curves").replaceChildren();
  byId("heat").replaceChildren();
  const n = found.curves.reduce((sum, one) => sum + one.n, 0), skipped = found.curves.reduce((sum, one) => sum + one.skipped, 0);
  byId("state").textContent = `${number(n, 0)} transactions${skipped ? `, ${number(skipped, 0)} of them skipped` : ""} in ${found.columns.length} trials`;
  plots = found.curves.length ? [curves(found.curves), ...heats(found)] : [];
  numbers(found.curves);
}

function place(under, title) {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption"), area = document.createElement("div");
  caption.textContent = title;
  area.className = "chart";
  area.setAttribute("role", "img");
  area.setAttribute("aria-label", `${title}; the table below has the percentiles`);
  figure.append(caption, area);
  byId(under).append(figure);
  return area;
}

// The axis is −log10 of the share of slower transactions: 1 is p90, 2 is p99.
const percentile = (x) => `p${Number((100 * (1 - 10 ** -x)).toFixed(Math.max(0, Math.ceil(x) - 1)))}`;

function curves(lines) {
  const area = place("curves", "Latency, ms");
  const [x, y] = axes((tick) => (Number.isInteger(tick) && tick > 0 ? percentile(tick) : ""), (tick) => (tick == null ? "" : shown(tick)));
  const series = lines.map((line) => ({ label: armName(line.arm), stroke: armColor(line.arm), width: 1.6, points: { show: false }, value: (_, value) => shown(value) }));
  return new uPlot(
    {
      width: area.clientWidth,
      height: 300,
      series: [{ label: "percentile", value: (_, value) => (value == null ? "–" : percentile(value)) }, ...series],
      axes: [{ ...x, size: 32, incrs: [1], space: 42 }, { ...y, size: 58 }],
      scales: { x: { time: false }, y: form.scale.checked ? logScale : { range: fromZero } },
      cursor: { dataIdx: nearest, drag: { x: false, y: false } },
    },
    uPlot.join(lines.map((line) => [line.beyond.map((share) => -Math.log10(share)), line.ms])),
    area,
  );
}

function heats({ columns, per_decade }) {
  const cells = columns.flatMap((one) => [one.first, one.first + one.shares.length]);
  const ends = [Math.min(...cells), Math.max(...cells)].map((cell) => 10 ** (cell / per_decade));
  const largest = Math.max(10 * SHARE_MIN, ...columns.flatMap((one) => one.shares));
  const span = [Math.min(...columns.map((one) => one.from_s)), Math.max(...columns.map((one) => one.to_s))];
  return [...new Set(columns.map((one) => one.arm))].sort((a, b) => a - b).map((arm) => {
    const own = columns.filter((one) => one.arm === arm), area = place("heat", `${armName(arm)}: latency, ms`);
    const [x, y] = axes(clock, (tick) => (tick == null ? "" : shown(tick)));
    const line = (label, dash) => ({ label, stroke: color("ink"), width: 1, dash, points: { show: true, size: 4 }, value: (_, value) => shown(value) });
    return new uPlot(
      {
        width: area.clientWidth,
        height: 240,
        series: [{ label: "time", value: (_, value) => (value == null ? "–" : clock(value)) }, line("p50"), line("p99", [4, 3])],
        axes: [{ ...x, incrs: STEPS_S, size: 32 }, { ...y, size: 58 }],
        scales: { x: { time: false, range: span }, y: { distr: 3, range: [digit(ends[0], Math.floor), digit(ends[1], Math.ceil)] } },
        cursor: { sync: { key: "heat" }, drag: { x: false, y: false } },
        hooks: { drawAxes: [(plot) => cellsOf(plot, own, per_decade, largest)] },
      },
      [own.map((one) => (one.from_s + one.to_s) / 2), own.map((one) => one.p50_ms), own.map((one) => one.p99_ms)],
      area,
    );
  });
}

const SHARE_MIN = 1e-5; // of the transactions of a trial, in a cell that is drawn

// The opacity of a cell grows with the logarithm of its share, up to the largest of all arms.
function cellsOf(plot, columns, per_decade, largest) {
  const { ctx } = plot, strength = (share) => Math.log(share / SHARE_MIN) / Math.log(largest / SHARE_MIN);
  const at = (cell) => Math.round(plot.valToPos(10 ** (cell / per_decade), "y", true));
  for (const { arm, from_s, to_s, first, shares } of columns) {
    const [left, right] = [from_s, to_s].map((s) => Math.round(plot.valToPos(s, "x", true)));
    ctx.fillStyle = armColor(arm);
    for (const [i, share] of shares.entries()) {
      if (share < SHARE_MIN) continue;
      ctx.globalAlpha = 0.06 + 0.94 * strength(share) ** 2;
      ctx.fillRect(left, at(first + i + 1), Math.max(1, right - left), at(first + i) - at(first + i + 1));
    }
  }
  ctx.globalAlpha = 1;
}

function numbers(lines) {
  const names = Object.keys(lines[0]?.quantiles_ms ?? {}), head = row(["Arm", ...names]);
  for (const cell of head.cells) cell.replaceWith(Object.assign(document.createElement("th"), { scope: "col", textContent: cell.textContent, className: cell.cellIndex ? "n" : "" }));
  byId("numbers").tHead.replaceChildren(head);
  byId("numbers").tBodies[0].replaceChildren(...lines.map((line) => row([armName(line.arm), ...names.map((name) => shown(line.quantiles_ms[name]))])));
}

new ResizeObserver(() => fit(plots)).observe(byId("curves"));
begin(load);
