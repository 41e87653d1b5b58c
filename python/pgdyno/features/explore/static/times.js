// Series of a results file in linked charts.

import { STEPS_S, answerTo, armName, begin, changed, chosen, clock, fit, form, inputs, logScale, nearest, query, shown } from "./choice.js";

const HEIGHT = 190, STEP_S = 0.01;
let data = null;
const charts = new Map(); // by metric

function zoom(from, to) {
  chosen.span = to > from ? [Math.max(0, from), to] : null;
  if (chosen.span) for (const { plot } of charts.values()) plot.setScale("x", { min: chosen.span[0], max: chosen.span[1] });
  changed();
}

// ------------------------------------------------------------------ data

async function load() {
  const wanted = query();
  wanted.delete("metric");
  for (const one of inputs("metric")) if (one.checked) wanted.append("metric", one.value);
  wanted.set("points", Math.max(100, byId("charts").clientWidth));
  byId("chosen").textContent = wanted.getAll("metric").length;
  const answer = await answerTo(wanted);
  if (answer) [data = answer, draw()];
}

function decoded(line) {
  let at = 0;
  return [line.x.map((step) => (at += step) * STEP_S), form.scale.checked ? line.y.map((y) => (y > 0 ? y : null)) : line.y];
}

// ------------------------------------------------------------------ charts

function draw() {
  const keys = data.charts.map((one) => one.key);
  for (const [key, { plot, figure }] of charts) {
    plot.destroy();
    if (!keys.includes(key)) figure.remove(), charts.delete(key);
  }
  for (const [i, of] of data.charts.entries()) {
    const figure = charts.get(of.key)?.figure ?? newFigure(of), there = byId("charts").children[i] ?? null;
    if (there !== figure) byId("charts").insertBefore(figure, there); // a moved element loses the focus
    charts.set(of.key, { figure, of, plot: newPlot(of, figure.querySelector(".chart")) });
  }
  const n = data.charts.reduce((sum, of) => sum + of.lines.reduce((part, line) => part + line.n, 0), 0);
  const whole = `${clock(Math.floor(data.from_s))} to ${clock(Math.ceil(data.to_s))} since the start of the study, ${number(n, 0)} values`;
  const omitted = inputs("metric").filter((one) => one.checked).length - keys.length;
  byId("state").textContent = !keys.length ? "No metric is chosen." : omitted > 0 ? `${whole}, without the last ${omitted} metrics: at most ${keys.length} at once` : whole;
  form.from.value = data.from_s.toFixed(1);
  form.to.value = data.to_s.toFixed(1);
  const rows = data.charts.flatMap((of) => of.lines.map((line) => row([caption(of), armName(line.arm), number(line.n, 0), shown(line.low), shown(line.median), shown(line.high)])));
  byId("numbers").querySelector("tbody").replaceChildren(...rows);
}

const caption = (of) => (of.unit ? `${of.name}, ${of.unit}` : of.name);

function newFigure(of) {
  const figure = document.createElement("figure"), title = document.createElement("figcaption"), place = document.createElement("div");
  title.textContent = caption(of);
  place.className = "chart";
  place.tabIndex = 0;
  for (const [name, value] of [["role", "slider"], ["aria-label", `${caption(of)}: crosshair`], ["aria-valuenow", 0]]) place.setAttribute(name, value);
  place.addEventListener("keydown", (event) => keyed(event, charts.get(of.key)));
  figure.append(title, place);
  return figure;
}

function newPlot(of, place) {
  const table = of.lines.length ? uPlot.join(of.lines.map(decoded), of.lines.map(() => [0, 2])) : [[]];
  const series = of.lines.map((line) => ({
    label: armName(line.arm),
    stroke: armColor(line.arm),
    width: 1.25,
    points: { show: line.n < 80, size: 4 },
    value: (_, value) => shown(value),
  }));
  const [times, values] = axes(clock, (tick) => (tick == null ? "" : shown(tick)));
  const options = {
    width: place.clientWidth,
    height: HEIGHT,
    series: [{ label: "time", value: (_, value) => (value == null ? "–" : clock(value)) }, ...series],
    axes: [{ ...times, incrs: STEPS_S, size: 32 }, { ...values, size: 58 }],
    scales: { x: { time: false, range: () => chosen.span ?? [data.from_s, data.to_s > data.from_s ? data.to_s : data.from_s + 1] }, y: form.scale.checked ? logScale : { range: fromZero } },
    cursor: {
      sync: { key: "explore", filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => zoom(0, 0) },
      dataIdx: nearest,
    },
    hooks: { setSelect: [selected], drawClear: [shade], draw: [mark], setCursor: [spoken] },
  };
  return new uPlot(options, table, place);
}

function selected(plot) {
  const { left, width } = plot.select;
  if (width < 4) return;
  plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
}

function shade(plot) {
  const { left, top, width, height } = plot.bbox;
  plot.ctx.fillStyle = color("wash");
  for (const [from, to] of data.warm_ups) {
    const [a, b] = [from, to].map((at) => Math.min(left + width, Math.max(left, plot.valToPos(at, "x", true))));
    if (b > a) plot.ctx.fillRect(a, top, b - a, height);
  }
}

function mark(plot) {
  const { left, top, width } = plot.bbox, half = 4 * devicePixelRatio;
  for (const { arm, at_s } of data.marks) {
    plot.ctx.fillStyle = armColor(arm);
    let before = -Infinity;
    for (const at of at_s) {
      const x = plot.valToPos(at, "x", true);
      if (x < left || x > left + width || x - before < 2) continue;
      before = x;
      plot.ctx.beginPath();
      plot.ctx.moveTo(x - half, top);
      plot.ctx.lineTo(x + half, top);
      plot.ctx.lineTo(x, top + 1.6 * half);
      plot.ctx.fill();
    }
  }
}

// ------------------------------------------------------------------ keyboard and screen readers

function spoken(plot) {
  const { idx, idxs } = plot.cursor, place = plot.root.parentElement;
  if (idx == null) return;
  const values = plot.series.slice(1).map((one, i) => `${one.label} ${shown(plot.data[i + 1][idxs[i + 1]])}`);
  place.setAttribute("aria-valuenow", plot.data[0][idx]);
  place.setAttribute("aria-valuetext", `${clock(plot.data[0][idx])}: ${values.join(", ")}`);
}

function keyed(event, { plot }) {
  const times = plot.data[0], step = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (step && times.length) {
    const { min, max } = plot.scales.x, inside = times.flatMap((at, i) => (at >= min && at <= max ? [i] : []));
    const place = inside.indexOf(plot.cursor.idx), last = inside.length - 1;
    const next = place < 0 ? (step > 0 && step < Infinity ? 0 : step > 0 ? last : 0) : Math.min(last, Math.max(0, place + step));
    plot.setCursor({ left: plot.valToPos(times[inside[next]], "x"), top: plot.over.clientHeight / 2 }, true, true);
  } else if (event.key in { "+": 1, "-": 1, 0: 1 }) zoomBy({ "+": "in", "-": "out", 0: "all" }[event.key], plot.cursor.idx == null ? null : times[plot.cursor.idx]);
  else return;
  event.preventDefault();
}

function zoomBy(how, around = null) {
  const [from, to] = [data.from_s, data.to_s], width = to - from;
  if (how === "all") return zoom(0, 0);
  if (how === "left" || how === "right") {
    const shift = how === "left" ? -Math.min(width / 2, from) : width / 2;
    return zoom(from + shift, to + shift);
  }
  const middle = around ?? (from + to) / 2, half = how === "in" ? width / 4 : width;
  zoom(middle - half, middle + half);
}

// ------------------------------------------------------------------ events

form.addEventListener("click", ({ target }) => target.dataset.zoom && data && zoomBy(target.dataset.zoom));
form.addEventListener("change", ({ target }) => target.type === "number" && zoom(form.from.valueAsNumber, form.to.valueAsNumber));
byId("find").addEventListener("input", ({ target }) => {
  for (const one of inputs("metric")) one.parentElement.hidden = !one.parentElement.textContent.toLowerCase().includes(target.value.toLowerCase());
});
new ResizeObserver(() => fit([...charts.values()].map(({ plot }) => plot))).observe(byId("charts"));
begin(load);
