"use strict";
// Follows a study by server-sent events. Every text of the study is set as text, never as HTML.

const main = byId("content");
const percent = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${number(Math.abs(value), 1)}%`;
const time = (unix_s) => new Date(unix_s * 1000).toLocaleTimeString("en-GB");
const POINTS_MAX = 7200, HEIGHT = 220; // two hours, in pixels
const RETRY_MS = 3000; // after an answer that is no stream: the server has another token, or the file was moved
const GAP_S = 5; // between slices of a block; a longer one interrupts a line

let arms = [], points = [], study = "", charts = {}, narrowing = [];

function options(element, series, more) {
  return { width: element.clientWidth, height: HEIGHT, series, legend: { live: true }, ...more };
}

// Two lines per arm: measured, and the warm-up in a pale color.
function timeSeries(digits) {
  const line = (arm, i, pale) => ({
    label: pale ? `${arm}, warm-up` : arm,
    stroke: pale ? `${armColor(i)}66` : armColor(i),
    width: pale ? 1 : 1.5,
    points: { size: 4 },
    value: (_, value) => (value == null ? "–" : number(value, digits)),
  });
  return [{ label: "time", value: (_, value) => (value === null ? "–" : time(value)) }, ...arms.flatMap((arm, i) => [line(arm, i, false), line(arm, i, true)])];
}

// uPlot joins points over undefined values, and interrupts a line at null.
function lineOf(arm, measured, key) {
  const isOwn = (one) => one.arm === arm && one.measured === measured;
  const line = points.map((one) => (isOwn(one) ? one[key] : undefined));
  const own = points.flatMap((one, i) => (isOwn(one) ? [i] : []));
  for (const [n, i] of own.entries()) {
    const next = own[n + 1];
    if (next && points[next].at_s - points[i].at_s > GAP_S) line.fill(null, i + 1, next);
  }
  return line;
}

function drawTimes() {
  const lines = (key) => arms.flatMap((arm) => [lineOf(arm, true, key), lineOf(arm, false, key)]);
  const data = (key) => [points.map((one) => one.at_s), ...lines(key)];
  for (const [id, key, digits] of [["tps", "tps", 0], ["p99", "p99_ms", 2]]) {
    if (charts[id]) charts[id].setData(data(key));
    else {
      const more = { axes: axes(time, (tick) => number(tick, 2)), cursor: { sync: { key: "time" }, drag: { x: true, y: false } }, scales: { y: { range: fromZero } } };
      charts[id] = new uPlot(options(byId(id), timeSeries(digits), more), data(key), byId(id));
    }
  }
}

// The first intervals are too wide for the axis of the last ones.
function drawNarrowing(standings) {
  for (const chart of narrowing) chart.destroy();
  byId("narrowing").replaceChildren();
  narrowing = standings.filter((one) => one.history.length > 1).map((one, i) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), place = document.createElement("div");
    caption.textContent = `${name(one)}: change by block, %`;
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", `${caption.textContent}; now ${one.change}`);
    figure.append(caption, place);
    byId("narrowing").append(figure);
    const [n, middle, low, high] = [0, 1, 2, 3].map((column) => one.history.map((row) => row[column]));
    const last = one.history.at(-1), reach = last[2] === null ? 10 : 1.5 * Math.max(last[3] - last[2], 1);
    const near = Math.min(reach, 3 * Math.abs(last[1]) + 20);
    const from = Math.min(0, last[1] - near), to = Math.max(0, last[1] + near);
    const own = armColor(i + 1), value = (_, v) => (v === null ? "–" : percent(v));
    const series = [
      { label: "block" },
      { label: "change", stroke: own, width: 2, points: { show: true, size: 5 }, value },
      { label: "low", stroke: `${own}99`, width: 1, value },
      { label: "high", stroke: `${own}99`, width: 1, value },
    ];
    const more = {
      bands: [{ series: [3, 2], fill: `${own}22` }],
      axes: axes(time, (tick) => percent(tick)),
      scales: { x: { time: false, range: (_, a, b) => [Math.min(a, 1) - 0.2, b + 0.2] }, y: { range: [from, to] } },
    };
    more.axes[0].values = (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick : ""));
    return new uPlot(options(place, series, more), [n, middle, low, high], place);
  });
}

function name(one) {
  return `${one.case ? `${one.case}: ` : ""}${one.arm} vs. ${one.baseline}`;
}

function chip(element, text) {
  element.className = `chip v-${text}`;
  element.textContent = text;
  return element;
}

function showLatest() {
  const last = arms.map((arm) => points.findLast((one) => one.arm === arm));
  const rows = arms.map((arm, i) =>
    row([arm, last[i] ? number(last[i].tps, 0) : "–", last[i]?.p99_ms != null ? number(last[i].p99_ms, 2) : "–"]),
  );
  byId("latest").tBodies[0].replaceChildren(...rows);
}

function showProgress(update) {
  const expected = update.blocks_expected, done = update.blocks_done;
  const parts = [`${done} ${expected ? `of about ${expected} ` : ""}block${(expected ?? done) === 1 ? "" : "s"} done`];
  if (update.case) parts.unshift(update.case);
  if (update.state.match(/running|stopping/) && update.ends_unix_s) {
    const ends = new Date(update.ends_unix_s * 1000).toLocaleTimeString("en-GB", { timeStyle: "short" });
    parts.push(`ends at ${ends} at the latest, or with the block that runs then`);
  }
  byId("progress").textContent = parts.join(" · ");
  byId("share").hidden = !expected || !update.state.match(/running|stopping/);
  byId("share").value = expected ? Math.min(1, done / expected) : 0;
}

// A form is for some states. A study that has no file yet cannot be continued.
function showForms(update) {
  for (const form of document.querySelectorAll("[data-in]")) {
    const fits = form.dataset.in.split(" ").includes(update.state);
    form.hidden = !fits || (form.id !== "stop" && !update.title);
  }
  byId("stopped").hidden = update.state !== "stopped";
  byId("stopping").hidden = update.state !== "stopping";
  byId("messages").hidden = !update.log.length;
  if (update.state === "waiting") byId("messages").open = true; // why it has not begun
  byId("log").textContent = update.log.join("\n");
}

function show(update) {
  chip(byId("chip"), update.state);
  showForms(update);
  if (!update.title) return;
  byId("title").textContent = document.title = update.title;
  showProgress(update);
  const key = JSON.stringify([update.case, update.arms]);
  if (key !== study) {
    for (const chart of Object.values(charts)) chart.destroy();
    [study, arms, points, charts] = [key, update.arms, [], {}];
  }
  points = [...points, ...update.readings].sort((a, b) => a.at_s - b.at_s).slice(-POINTS_MAX);
  if (points.length > 1) drawTimes();
  showLatest();
  if (update.standings?.length) {
    const rows = update.standings.map((one) =>
      row([name(one), one.change, chip(document.createElement("span"), one.verdict), String(one.blocks)]),
    );
    byId("standings").tBodies[0].replaceChildren(...rows);
    drawNarrowing(update.standings);
  }
  if (update.caveats) {
    const items = (update.caveats.length ? update.caveats : ["None."]).map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    });
    byId("caveats").replaceChildren(...items);
  }
}

function follow() {
  const events = new EventSource(main.dataset.events);
  events.onopen = () => {
    byId("gone").hidden = true;
    [study, points] = ["", []]; // a new connection begins with all points
  };
  events.onerror = () => {
    byId("gone").hidden = false;
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, RETRY_MS);
  };
  events.onmessage = (event) => {
    const update = JSON.parse(event.data);
    show(update);
    if (update.state !== "ended") return;
    events.close();
    byId("gone").hidden = true;
    const link = document.createElement("a");
    link.href = main.dataset.run;
    link.textContent = "The study has ended: open its report";
    byId("progress").append(" · ", link);
  };
}

addEventListener("resize", () => {
  for (const chart of [...Object.values(charts), ...narrowing]) chart.setSize({ width: chart.root.parentElement.clientWidth, height: HEIGHT });
});
follow();
