// What is chosen on a page of Explore: the form shows it, and the query of the address has all of it.
// The scripts of Explore are modules, whose names cannot meet those of other scripts.

export const form = byId("choice");
export const inputs = (name) => [...form.querySelectorAll(`input[name=${name}]`)];
const firstMetrics = (form.dataset.metrics || "").split(" ");
export const chosen = { span: null }; // from, to; null: all
let asked = null, load = null;

export const shown = (value) => (value == null ? "–" : Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 20 }));
export const armName = (arm) => inputs("arm")[arm].parentElement.textContent.trim();

export const STEPS_S = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];


// Times since the begin of the study, such as 1:02:03.
export function clock(at_s) {
  at_s = Math.round(at_s * 10) / 10;
  const whole = Math.floor(at_s), two = (n) => String(n).padStart(2, "0"), part = at_s - whole;
  const hours = Math.floor(whole / 3600), rest = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return `${hours}:${rest}${part > 0.05 ? number(part, 1).slice(1) : ""}`.replace(/^0:0?(?=\d)/, "");
}

// One significant digit, because a logarithmic axis begins its labels at its end.
export function digit(value, rounded) {
  const power = 10 ** Math.floor(Math.log10(value));
  return rounded(Number((value / power).toPrecision(12))) * power;
}

export const logScale = { distr: 3, range: (_, low, high) => (low > 0 ? [digit(low, Math.floor), digit(high, Math.ceil)] : [1, 10]) };

// The crosshair shows for each arm the nearest value, unless it is far away.
export function nearest(plot, i, index, at) {
  const [times, values] = [plot.data[0], plot.data[i]];
  if (i === 0 || values[index] != null) return index;
  let [a, b] = [index, index];
  while (a >= 0 && values[a] == null) a--;
  while (b < values.length && values[b] == null) b++;
  const distance = (n) => (n < 0 || n >= values.length ? Infinity : Math.abs(times[n] - at));
  const found = distance(a) <= distance(b) ? a : b;
  return distance(found) <= Math.max(5, 0.03 * (plot.scales.x.max - plot.scales.x.min)) ? found : null;
}

// ------------------------------------------------------------------ the state in the address

function ranges(numbers) {
  const parts = [];
  for (const n of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else parts.push([n, n]);
  }
  return parts.map(([a, b]) => (a === b ? a : `${a}-${b}`)).join(",");
}

function inRanges(text) {
  const parts = text.split(",").map((part) => part.split("-").map(Number));
  return (n) => parts.some(([a, b]) => a <= n && n <= (b ?? a));
}

export function query() {
  const found = new URLSearchParams();
  if (form.dataset.case !== "0") found.set("case", form.dataset.case);
  for (const name of ["arm", "block"]) {
    const on = inputs(name).filter((one) => one.checked);
    if (on.length < inputs(name).length) found.set(name, ranges(on.map((one) => Number(one.value))) || "none");
  }
  const metrics = inputs("metric").filter((one) => one.checked).map((one) => one.value);
  if (metrics.join(" ") !== firstMetrics.join(" ")) for (const key of metrics.length ? metrics : [""]) found.append("metric", key);
  if (chosen.span) for (const [i, name] of ["from", "to"].entries()) found.set(name, chosen.span[i].toFixed(2));
  if (form.scale.checked) found.set("scale", "log");
  if (form.kind?.value) found.set("kind", form.kind.value);
  return found;
}

function showState() {
  const given = new URLSearchParams(location.search), metrics = given.getAll("metric");
  for (const name of ["arm", "block"]) {
    const has = given.has(name) ? inRanges(given.get(name)) : () => true;
    for (const one of inputs(name)) one.checked = has(Number(one.value));
  }
  for (const one of inputs("metric")) one.checked = (metrics.length ? metrics : firstMetrics).includes(one.value);
  form.scale.checked = given.get("scale") === "log";
  if (form.kind) form.kind.value = given.get("kind") ?? "";
  const [from, to] = ["from", "to"].map((name) => parseFloat(given.get(name)));
  chosen.span = from < to ? [from, to] : null;
  keepInViews();
}

// Other views keep the case, the arms and the blocks.
function keepInViews() {
  const kept = [...query()].filter(([name]) => ["case", "arm", "block"].includes(name));
  for (const link of document.querySelectorAll(".views a")) link.search = new URLSearchParams(kept);
}

export function changed() {
  const text = query().toString();
  keepInViews();
  history.pushState(null, "", text ? `?${text}` : location.pathname);
  load();
}

// The answer of the server for the choice; undefined if a later choice has replaced it.
export async function answerTo(wanted) {
  asked?.abort();
  asked = new AbortController();
  try {
    const answer = await fetch(`${form.dataset.source}?${wanted}`, { signal: asked.signal });
    if (!answer.ok) throw new Error(answer.statusText);
    return await answer.json();
  } catch (error) {
    if (error.name !== "AbortError") byId("state").textContent = `The server does not answer: ${error.message}`;
  }
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("click", ({ target }) => {
  if (!target.dataset.blocks) return;
  for (const one of inputs("block")) one.checked = target.dataset.blocks === "all";
  changed();
});
form.addEventListener("change", ({ target }) => {
  if (target.id === "find" || target.type === "number") return;
  if (target.name === "case") location.assign(target.value === "0" ? location.pathname : `?case=${target.value}`);
  else changed();
});
addEventListener("popstate", () => (showState(), load()));

// Give charts the width of their places, without drawing those that have it.
export function fit(plots) {
  for (const plot of plots) {
    const width = plot.root.parentElement.clientWidth;
    if (width !== plot.width) plot.setSize({ width, height: plot.height });
  }
}

// Begin a page. Its function asks for the values, here and after each change.
export function begin(loadValues) {
  load = loadValues;
  showState();
  load();
}
