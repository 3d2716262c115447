"use strict";
const INK = "var(--ink)", MUTED = "var(--soft)", GRID = "var(--rule)", BLUE = "var(--series-1)";
const FASTER = 1000, SLOWER = 3000;  // milliseconds between two requests: of a run that goes on
const PATIENCE = 5000, STALE = 6000;  // … for an answer, and until a status is called old
const byId = (id) => document.getElementById(id);
const counted = (number) => number.toLocaleString("en");

function sized(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (bytes >= 1000 && place < units.length - 1) { bytes /= 1000; place += 1; }
  return `${place && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[place]}`;
}

function lasted(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min ${Math.floor(seconds % 60)} s`;
}

function clock(iso) {
  const at = new Date(iso), two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function made(name, words, kind) {
  const element = document.createElement(name);
  element.textContent = words;
  if (kind) element.className = kind;
  return element;
}

function drawn(name, attributes, words) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (words !== undefined) element.textContent = words;
  return element;
}

const shown = new Map();  // by place, what it shows
function unlessShown(place, content, show) {  // leaves a selection alone where nothing changed
  const text = JSON.stringify(content);
  if (shown.get(place) === text) return;
  shown.set(place, text);
  show();
}

function axisOf(low, high, whole) {  // round numbers from end to end, about five steps
  const least = (high - low) / 5, power = 10 ** Math.floor(Math.log10(least));
  const round = power * [1, 2, 5, 10].find((factor) => factor * power >= least * 0.999);
  const step = whole ? Math.max(1, round) : round;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), ticks = [];
  for (let n = Math.floor(low / step + 1e-9); n < high / step + 1 - 1e-9; n += 1) {
    const words = (n * step).toFixed(digits);
    ticks.push([n * step, Number(words) ? words.replace("-", "−") : "0"]);
  }
  return {ticks, low: ticks[0][0], high: ticks[ticks.length - 1][0]};
}

function runningMean(points) {
  const half = Math.max(1, Math.floor(points.length / 12));
  return points.map(([x], place) => {
    const near = points.slice(Math.max(0, place - half), place + half + 1);
    return [x, near.reduce((sum, [, y]) => sum + y, 0) / near.length];
  });
}

function chart(title, points, axis, unit) {
  const right = 506, top = 62, bottom = 262, smooth = points.length >= 12;
  const all = points.map(([, y]) => y), first = points[0][0];
  const last = Math.max(points[points.length - 1][0], first + 1);
  const least = unit ? 0 : Math.min(...all), most = Math.max(...all);
  const flat = most - least < 1e-9 * Math.max(1, Math.abs(most)) ? 0.5 : 0;
  const {ticks, low, high} = axisOf(least - (unit ? 0 : flat), most + flat, false);
  const left = 14 + 7.5 * Math.max(...ticks.map(([, words]) => words.length + unit.length));
  const across = (x) => left + (x - first) / (last - first) * (right - left - 6);
  const up = (y) => bottom - (y - low) / (high - low) * (bottom - top);
  const svg = drawn("svg", {viewBox: "0 0 520 306", role: "img"});
  const final = points[points.length - 1];
  svg.append(drawn("title", {}, title));
  svg.append(drawn("desc", {}, `${points.length} points; the last is ${final[1].toPrecision(4)}${unit} at ${axis} ${final[0]}.`));
  svg.append(drawn("text", {x: 0, y: 19, "font-size": 15, "font-weight": 600, fill: INK}, title));
  const legend = smooth ? [[MUTED, 1, `each ${axis}`], [BLUE, 2.5, "running mean"]] : [];
  legend.forEach(([colour, width, words], place) => {
    const x = 130 * place;
    svg.append(drawn("line", {x1: x, y1: 39, x2: x + 26, y2: 39, stroke: colour, "stroke-width": width}));
    svg.append(drawn("text", {x: x + 32, y: 43.5, "font-size": 13, fill: INK}, words));
  });
  for (const [y, words] of ticks) {
    svg.append(drawn("line", {x1: left, y1: up(y), x2: right, y2: up(y), stroke: GRID}));
    svg.append(drawn("text", {x: left - 6, y: up(y) + 4.5, "font-size": 13, "text-anchor": "end", fill: MUTED}, words + unit));
  }
  svg.append(drawn("line", {x1: left, y1: bottom, x2: right, y2: bottom, stroke: MUTED}));
  for (const [x, words] of axisOf(first, last, true).ticks.filter(([x]) => x >= first && x <= last)) {
    svg.append(drawn("text", {x: across(x), y: bottom + 18, "font-size": 13, "text-anchor": "middle", fill: MUTED}, words));
  }
  svg.append(drawn("text", {x: (left + right) / 2, y: bottom + 40, "font-size": 13, "text-anchor": "middle", fill: INK}, axis));
  const path = (series) => series.map(([x, y], place) => `${place ? "L" : "M"}${across(x).toFixed(1)} ${up(y).toFixed(1)}`).join("");
  const line = (series, colour, width) => svg.append(drawn("path", {d: path(series), fill: "none", stroke: colour, "stroke-width": width, "stroke-linejoin": "round"}));
  if (smooth) {
    line(points, MUTED, 1);
    line(runningMean(points), BLUE, 2.5);
  } else {
    line(points, BLUE, 2);
    for (const [x, y] of points) svg.append(drawn("circle", {cx: across(x), cy: up(y), r: 4, fill: BLUE}));
  }
  const figure = document.createElement("figure");
  figure.append(svg);
  return figure;
}

function showFigures(status) {
  const figures = [];
  status.stages.forEach((stage, place) => {
    const next = status.stages[place + 1];
    const points = status.losses.filter(([epoch]) => epoch >= stage.first && (!next || epoch < next.first));
    const title = status.stages.length > 1 ? `Training loss: ${stage.name}` : "Training loss";
    if (points.length) figures.push(chart(title, points, "epoch", ""));
  });
  byId("about-losses").textContent = figures.length ? status.about_losses : "There is no loss yet.";
  if (status.recent_seconds.length) {
    figures.push(chart("Seconds from one sum to the next", status.recent_seconds, "sum", " s"));
  }
  byId("figures").replaceChildren(...figures);
}

function tile(name, value, note) {
  const box = document.createElement("div");
  box.append(made("dt", name), made("dd", value, "value"));
  if (note) box.append(made("dd", note, "note"));
  return box;
}

function onlineNote(status) {
  const parts = [], silent = status.silent.slice(0, 8).join(", ");
  if (status.left_out.length) parts.push(`${counted(status.left_out.length)} left out`);
  if (status.silent.length > 8) parts.push(`${counted(status.silent.length)} do not answer`);
  else if (status.silent.length) parts.push(`no answer from ${silent}`);
  return parts.join("; ") || "all of them answer";
}

function stageOf(status, epoch) {
  const begun = status.stages.filter((stage) => stage.first <= epoch);
  return status.stages.length > 1 && begun.length ? `, ${begun[begun.length - 1].name}` : "";
}

function showFacts(status) {
  const epoch = status.phase_number - 2, trains = epoch >= 1 && epoch <= status.epochs;
  const loss = status.losses[status.losses.length - 1];
  const second = status.seconds_per_sum;
  const again = status.attempt ? `; began again ${counted(status.attempt)} ×` : "";
  const ran = (new Date(status.updated) - new Date(status.started)) / 1000;
  byId("facts").replaceChildren(
    tile("Devices online", `${counted(status.online)} of ${counted(status.devices)}`, status.ended === null ? onlineNote(status) : `when the run ended; ${onlineNote(status)}`),
    tile("Phase", status.phase, `${counted(status.phase_number)} of ${counted(status.phases)}${trains ? stageOf(status, epoch) : ""}${again}`),
    tile("Seconds per sum", second === null ? "–" : `${second < 10 ? second.toFixed(2) : second.toFixed(0)} s`, `${second === null ? "" : `median of ${counted(status.recent_seconds.length)}; `}${counted(status.sums)} opened so far`),
    tile("Loss", loss ? loss[1].toPrecision(3).replace("-", "−") : "–", loss ? `epoch ${loss[0]}${stageOf(status, loss[0])}` : "none yet"),
    tile("On the wire", sized(status.wire_sent + status.wire_received), `${sized(status.wire_received)} received, ${sized(status.wire_sent)} sent`),
    tile("Running time", lasted(ran), `since ${clock(status.started)}`),
  );
}

function row(cells, numeric) {
  const line = document.createElement("tr");
  cells.forEach((cell, place) => {
    const element = made(place ? "td" : "th", cell, numeric.includes(place) ? "number" : "");
    if (!place) element.scope = "row";
    element.setAttribute("role", place ? "cell" : "rowheader");
    line.append(element);
  });
  line.setAttribute("role", "row");
  return line;
}

function showLeftOut(status) {
  byId("nobody").hidden = status.left_out.length > 0;
  byId("left-out").hidden = !status.left_out.length;
  const together = new Map();  // devices that were left out at once share a row
  for (const {device, phase, at} of status.left_out) {
    const key = JSON.stringify([phase, clock(at)]);
    together.set(key, [...(together.get(key) || []), device]);
  }
  const rows = [...together].map(([key, devices]) => row([devices.join(", "), ...JSON.parse(key)], []));
  byId("left-out").querySelector("tbody").replaceChildren(...rows);
}

function showLedger(status) {
  const words = {sent: "to devices", received: "from devices"};
  const rows = status.ledger.map((flow) => row(
    [flow.topic, flow.door, words[flow.direction], counted(flow.messages), counted(flow.bytes)], [3, 4]));
  const sum = (field) => counted(status.ledger.reduce((total, flow) => total + flow[field], 0));
  byId("ledger").querySelector("tbody").replaceChildren(...rows);
  byId("ledger").querySelector("tfoot").replaceChildren(
    row(["all topics", "", "", sum("messages"), sum("bytes")], [3, 4]));
}

function show(status) {
  const kind = status.ended === null ? "running" : status.ended ? "failed" : "finished";
  const mark = {running: "", failed: "✕ ", finished: "✓ "}[kind];
  document.title = `${mark}${status.phase} · Lumos run ${status.run}`;
  byId("title").textContent = `Run ${status.run}`;
  byId("subtitle").textContent = `${status.profile} profile · ${status.task} · ${counted(status.devices)} devices · randomness: ${status.randomness}`;
  byId("state").className = `state ${kind}`;
  byId("headline").textContent = status.headline;
  byId("progress").value = status.phases_done / status.phases;
  byId("updated").textContent = `Last update ${clock(status.updated)}.`;
  showFacts(status);
  unlessShown("figures", [status.losses, status.recent_seconds], () => showFigures(status));
  unlessShown("left out", status.left_out, () => showLeftOut(status));
  unlessShown("ledger", status.ledger, () => showLedger(status));
}

let latest = null, changed = 0;

function notice(words) {
  byId("notice").textContent = words;
  byId("notice").hidden = !words;
}

function noticeOfLoss() {
  if (latest === null) notice("The coordinator has not begun yet.");
  else if (latest.ended !== null) notice(`The coordinator has stopped after its run; last update ${clock(latest.updated)}.`);
  else notice(`Connection lost, last update ${clock(latest.updated)}. Trying again …`);
}

async function update() {
  try {
    const answer = await fetch("/status.json", {cache: "no-store", signal: AbortSignal.timeout(PATIENCE)});
    if (!answer.ok) throw new Error(answer.statusText);
    const status = await answer.json();
    if (status === null) throw new Error("nothing is published");
    if (latest === null || latest.updated !== status.updated) changed = performance.now();
    latest = status;
    show(status);
    const old = status.ended === null && performance.now() - changed > STALE;
    notice(old ? `The coordinator is busy or stuck, last update ${clock(status.updated)}.` : "");
  } catch {
    noticeOfLoss();
  }
  setTimeout(update, latest === null || latest.ended === null ? FASTER : SLOWER);
}

update();
