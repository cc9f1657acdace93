
// The whole run on one axis of time: what was going on, and how many tokens each answer took. A pause
// between two starts of the engine is as wide as a gap, however long it was.

const LEFT = 66;
const RIGHT = 62;
const LANE = 11;
const STEP = 15;
const CHART_IN = 30;
const CHART_OUT = 18;
const AXIS = 15;

const overview = {
  canvas: null, run: null, axis: null, from: 0, to: 0, hover: null, drag: null, seen: [0, 0], answers: [],
  colours: null, still: null,
};

/** Places in time as milliseconds of work, pauses left out. */
function makeAxis(run) {
  const pauses = run.starts
    .filter((start) => start.before !== null && start.t > start.before)
    .map((start) => ({ from: start.before, to: start.t }));
  const end = run.note === "live" ? Math.max(run.last, run.head.now) : run.last;
  const work = Math.max(1, end - run.begin - pauses.reduce((sum, p) => sum + (p.to - p.from), 0));
  const gap = pauses.length ? (work * Math.min(0.015, 0.2 / pauses.length)) : 0;
  for (const pause of pauses) pause.gap = Math.min(gap, pause.to - pause.from);
  const at = (t) => {
    let x = t - run.begin;
    for (const { from, to, gap: width } of pauses) {
      if (t >= to) x -= to - from - width;
      else if (t > from) x -= (t - from) * (1 - width / (to - from));
    }
    return x;
  };
  return { at, pauses, end: at(end) || 1 };
}

function startOverview(run, canvas) {
  overview.run = run;
  overview.canvas = canvas;
  overview.axis = axisOf(run);
  overview.answers = run.rows.filter((row) => isCounted(row.rec) && row.span);
  zoom(0, overview.axis.end);
  const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointerdown", (event) => {
    overview.drag = { from: place(event), to: place(event) };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    overview.hover = place(event);
    if (overview.drag) overview.drag.to = place(event);
    draw();
  });
  canvas.addEventListener("pointerleave", () => {
    overview.hover = null;
    draw();
  });
  canvas.addEventListener("pointerup", () => {
    const drag = overview.drag;
    overview.drag = null;
    if (!drag) return;
    const [a, b] = [drag.from, drag.to].map(timeAt).sort((x, y) => x - y);
    if (Math.abs(drag.to - drag.from) > 6) zoom(a, b);
    else goTo(nearestRow(a));
  });
  canvas.addEventListener("dblclick", () => zoom(0, overview.axis.end));
  new ResizeObserver(draw).observe(canvas);
}

function zoom(from, to) {
  overview.from = Math.max(0, from);
  overview.to = Math.min(overview.axis.end, Math.max(to, from + 1));
  overview.still = null;
  draw();
}

function plotWidth() {
  return Math.max(10, overview.canvas.clientWidth - LEFT - RIGHT);
}

function timeAt(x) {
  const part = Math.min(1, Math.max(0, (x - LEFT) / plotWidth()));
  return overview.from + part * (overview.to - overview.from);
}

/** The row that was going on at a place of the axis, or came next. */
function nearestRow(x) {
  let best = null;
  let distance = Infinity;
  for (const row of overview.run.rows) {
    const begin = row.span ? row.span.begin : row.rec.t;
    if (begin === undefined) continue;
    const [a, b] = [overview.axis.at(begin), overview.axis.at(row.span ? row.span.end : begin)];
    const d = x < a ? a - x : x > b ? x - b : 0;
    if (d < distance || (d === distance && row.span && !best.span)) [best, distance] = [row, d];
  }
  return best;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = [...LANES, "bad", "ink", "dim", "rule", "paper", "shade"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function forgetColours() {
  overview.colours = null;
  overview.still = null;
  draw();
}

let drawing = false;

/** Draws soon, once, however often it is asked for. */
function draw() {
  if (drawing || !overview.canvas) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    drawNow();
  });
}

/** A canvas of the right size, and what is needed to draw on it. */
function plotOn(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(overview.canvas.clientWidth * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";
  const width = plotWidth();
  const scale = width / (overview.to - overview.from);
  const x = (t) => LEFT + (overview.axis.at(t) - overview.from) * scale;
  const c = overview.colours || (overview.colours = colours());
  return { g, c, x, width, right: LEFT + width, scale };
}

/** What stays while the list is scrolled: everything but the part on the screen and the pointer. */
function drawStill(height) {
  const plot = plotOn(document.createElement("canvas"), height);
  const { g, width } = plot;
  drawAxis(plot, height);
  g.save();
  g.beginPath();
  g.rect(LEFT, 0, width, height);
  g.clip();
  drawPauses(plot, height);
  drawLanes(plot, overview.run);
  g.restore();
  if (overview.run.isFlow) drawAtOnce(plot);
  else drawTokens(plot);
  drawLabels(plot);
  return g.canvas;
}

function drawNow() {
  const { canvas } = overview;
  const height = LANES.length * STEP + CHART_IN + CHART_OUT + AXIS + 14;
  const plot = plotOn(canvas, height);
  const { still } = overview;
  if (!still || still.width !== canvas.width || still.height !== canvas.height) overview.still = drawStill(height);
  plot.g.clearRect(0, 0, canvas.clientWidth, height);
  drawSeen(plot, height);
  if (canvas.width) plot.g.drawImage(overview.still, 0, 0, canvas.clientWidth, height);
  drawPointer(plot, height);
}

/** The part of the run that the list shows now. */
function drawSeen({ g, c, x, right }, height) {
  const [from, to] = overview.seen;
  if (!from) return;
  const a = Math.min(Math.max(x(from), LEFT), right);
  const b = Math.max(Math.min(x(to), right), a);
  g.fillStyle = c.shade;
  g.fillRect(a, 0, Math.max(2, b - a), height - AXIS);
}

function drawAxis({ g, c, width, right, scale }, height) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5, 288e5, 864e5];
  const step = steps.find((s) => s * scale >= 70) || Math.ceil((width / scale) / 8);
  g.strokeStyle = c.rule;
  g.fillStyle = c.dim;
  g.textAlign = "center";
  const y = height - AXIS / 2;
  for (let t = Math.ceil(overview.from / step) * step; t <= overview.to; t += step) {
    const at = Math.round(LEFT + (t - overview.from) * scale) + 0.5;
    g.beginPath();
    g.moveTo(at, 0);
    g.lineTo(at, height - AXIS);
    g.stroke();
    if (at < right - 14) g.fillText(step < 1000 ? `${t} ms` : shortClock(t), at, y);
  }
}

function shortClock(ms) {
  return clock(ms).replace(/\.0$/, "");
}

function drawPauses({ g, c, x }, height) {
  g.fillStyle = c.dim;
  for (const { from, to } of overview.axis.pauses) {
    const [a, b] = [x(from), x(to)];
    g.fillRect((a + b) / 2 - 1.5, 0, 1, height - AXIS);
    g.fillRect((a + b) / 2 + 0.5, 0, 1, height - AXIS);
  }
}

function drawLanes({ g, c, x }, run) {
  LANES.forEach((lane, at) => {
    const y = at * STEP + 2;
    // Neighbours that fall on the same pixels are one bar.
    let [from, to, bad] = [0, -1, []];
    const flush = () => {
      if (to >= from) g.fillRect(from, y, Math.max(1, to - from), LANE);
    };
    g.fillStyle = c[lane];
    for (const row of run.rows) {
      const span = lane === "waiting" && row.wait ? row.wait : row.span;
      if (!span || (span !== row.wait && span.lane !== lane)) continue;
      const [a, b] = [x(span.begin), Math.max(x(span.end), x(span.begin) + 0.7)];
      if (span === row.span && isBad(row)) bad.push([a, b]);
      if (a <= to + 0.3 && a >= from) to = Math.max(to, b);
      else {
        flush();
        [from, to] = [a, b];
      }
    }
    flush();
    g.fillStyle = c.bad;
    for (const [a, b] of bad) g.fillRect(a, y - 2, Math.max(2, b - a), 2);
  });
}

/** Tokens of each answer: those of the request, the part of them that came from a cache, and those of the answer. */
function drawTokens({ g, c, x, right }) {
  const top = LANES.length * STEP + 6;
  const most = (tokens) => Math.max(1, ...overview.answers.map((row) => tokens(row.rec)));
  const [mostIn, mostOut] = [most(tokensIn), most(tokensOut)];
  const base = top + CHART_IN;
  const baseOut = base + 4 + CHART_OUT;
  g.save();
  g.beginPath();
  g.rect(LEFT, 0, right - LEFT, baseOut + 1);
  g.clip();
  for (const { rec, span } of overview.answers) {
    const a = x(span.begin);
    const b = Math.max(x(span.end), a + 1);
    const tall = (tokensIn(rec) / mostIn) * CHART_IN;
    const cached = (Math.min(rec.cached || 0, tokensIn(rec)) / mostIn) * CHART_IN;
    g.globalAlpha = 0.35;
    g.fillStyle = c.model;
    g.fillRect(a, base - cached, b - a, cached);
    g.globalAlpha = 1;
    g.fillRect(a, base - tall, b - a, tall - cached);
    g.fillStyle = c.dim;
    const out = (tokensOut(rec) / mostOut) * CHART_OUT;
    g.fillRect(a, baseOut - out, b - a, out);
  }
  g.restore();
  g.fillStyle = c.dim;
  g.textAlign = "left";
  if (overview.answers.length) {
    g.fillText(count(mostIn), right + 6, top + 5);
    g.fillText(count(mostOut), right + 6, base + 9);
  }
}

function drawLabels({ g, c }) {
  g.textAlign = "right";
  g.fillStyle = c.dim;
  const names = overview.run.isFlow ? ["agents", "programs", "", "waiting"] : LANES;
  names.forEach((name, at) => g.fillText(name, LEFT - 8, at * STEP + 2 + LANE / 2));
  const top = LANES.length * STEP + 6;
  if (overview.run.isFlow) {
    g.fillText("at once", LEFT - 8, top + (CHART_IN + CHART_OUT) / 2);
    return;
  }
  g.fillText("tokens in", LEFT - 8, top + CHART_IN / 2);
  g.fillText("out", LEFT - 8, top + CHART_IN + 4 + CHART_OUT / 2);
}

function drawPointer({ g, c, right }, height) {
  const { drag, hover } = overview;
  const told = document.getElementById("told");
  if (drag && Math.abs(drag.to - drag.from) > 6) {
    g.fillStyle = c.shade;
    g.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), height - AXIS);
  }
  if (hover === null || hover < LEFT || hover > right) {
    told.textContent = "";
    return;
  }
  g.fillStyle = c.ink;
  g.fillRect(Math.round(hover), 0, 1, height - AXIS);
  const row = nearestRow(timeAt(hover));
  if (!row) return;
  const { rec, span, group } = row;
  const parts = [group.task ? group.number : `iteration ${group.number}`, rec.tool_name || rec.node_id || rec.hook_name || NAMES[rec.type] || (/[a-z]/.test(rec.type) ? rec.type : "note")];
  if (span) parts.push(time(span.end - span.begin));
  if (isCounted(rec)) parts.push(`${count(tokensIn(rec))} + ${count(tokensOut(rec))} tokens`);
  told.textContent = parts.join(" \u00b7 ");
}
