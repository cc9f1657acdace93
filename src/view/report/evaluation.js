
// The page of an evaluation: for each suite the verdict, the settings side by side, and a matrix of its cases. What is
// folded is made when it is unfolded for the first time.

const MARKS = { passed: "\u2713", failed: "\u2717", not_measured: "\u2013" };

/** Beyond so many pairs of words two texts are not compared. */
const MOST_PAIRS = 4e6;

const FILTERS = [
  ["all", () => true],
  ["failed", (row) => row.trials.some((trial) => trial.status === "failed")],
  ["differing", (row) => row.differs],
  ["not measured", (row) => row.trials.some((trial) => trial.status === "not_measured")],
];

const view = { rows: [], made: 0, filter: 0, here: null };

/** How many rows are there when the page opens, and how many come at once after that. */
const FIRST_ROWS = 60;
const MORE_ROWS = 200;

function readData(text) {
  const suites = [];
  for (const line of text.split("\n")) {
    if (!line) continue;
    const rec = JSON.parse(line);
    const suite = suites[suites.length - 1];
    if (rec.type === "page") view.id = rec.id;
    else if (rec.type === "suite") suites.push({ ...rec, cases: new Map() });
    else if (rec.type === "case") suite.cases.set(rec.id, { ...rec, suite, cells: new Map(), trials: [] });
    else if (rec.type === "trial") {
      const row = suite.cases.get(rec.case);
      if (!row) continue;
      if (!row.cells.has(rec.setting)) row.cells.set(rec.setting, []);
      row.cells.get(rec.setting).push(rec);
      row.trials.push(rec);
    }
  }
  for (const suite of suites) for (const row of suite.cases.values()) weigh(row);
  return suites;
}

const counted = (trials, status) => trials.filter((trial) => trial.status === status).length;

function rate(trials) {
  const passed = counted(trials, "passed");
  const measured = passed + counted(trials, "failed");
  return measured ? passed / measured : null;
}

/** How far the settings of a case are apart, by which cases are sorted, and its lowest rate. */
function weigh(row) {
  for (const trials of row.cells.values()) trials.sort((a, b) => a.trial - b.trial);
  const rates = row.suite.settings.map((name) => rate(row.cells.get(name) || []));
  const known = rates.filter((one) => one !== null);
  row.lowest = Math.min(1, ...known);
  row.difference = known.length ? Math.max(...known) - row.lowest : 0;
  row.differs = new Set(rates).size > 1;
}

// Texts beside each other.

/** The words of two texts: plus marks what only the first has, minus what only the second has. Null if they are too long. */
function compareWords(before, after) {
  const [a, b] = [before, after].map((text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || []);
  let from = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from += 1;
  let until = 0;
  while (until < a.length - from && until < b.length - from && a[a.length - 1 - until] === b[b.length - 1 - until]) until += 1;
  const [n, m] = [a.length - from - until, b.length - from - until];
  if (n * m > MOST_PAIRS) return null;
  const longest = new Uint32Array((n + 1) * (m + 1));
  const at = (i, j) => i * (m + 1) + j;
  for (let i = n - 1; i >= 0; i -= 1) {
    for (let j = m - 1; j >= 0; j -= 1) {
      longest[at(i, j)] = a[from + i] === b[from + j] ? longest[at(i + 1, j + 1)] + 1 : Math.max(longest[at(i + 1, j)], longest[at(i, j + 1)]);
    }
  }
  const parts = [[], []];
  const add = (side, mark, word) => {
    const last = parts[side][parts[side].length - 1];
    if (last && last[0] === mark) last[1] += word;
    else parts[side].push([mark, word]);
  };
  const both = (word) => [0, 1].forEach((side) => add(side, "", word));
  a.slice(0, from).forEach(both);
  for (let i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m && a[from + i] === b[from + j]) {
      both(a[from + i]);
      i += 1;
      j += 1;
    } else if (j === m || (i < n && longest[at(i + 1, j)] >= longest[at(i, j + 1)])) add(0, "plus", a[from + i++]);
    else add(1, "minus", b[from + j++]);
  }
  a.slice(a.length - until).forEach(both);
  return parts;
}

function box(title, text, parts) {
  const el = make("div", "text");
  const pre = make("pre");
  pre.tabIndex = 0;
  if (parts) pre.append(...parts.map(([mark, words]) => (mark ? make(mark === "plus" ? "ins" : "del", mark, words) : words)));
  else put(pre, text);
  if (title) el.append(make("div", "title", title));
  el.append(pre);
  return el;
}

/** What is made when it is unfolded. */
function fold(title, content) {
  const el = make("details", "fold");
  el.append(make("summary", "title", title));
  el.addEventListener("toggle", () => el.append(content()), { once: true });
  return el;
}

// What a case unfolds to.

function facts(trial) {
  const scores = Object.entries(trial.scores || {}).map(([name, score]) => `${name} ${score}`);
  return [...scores, trial.cost !== null && `cost ${trial.cost}`, trial.tokens !== null && `${count(trial.tokens)} tokens`,
    trial.duration_ms !== null && time(trial.duration_ms), trial.retries > 0 && `${trial.retries} retries`].filter(Boolean).join(" \u00b7 ");
}

function trialBox(row, trial) {
  const el = make("section", "trial");
  const head = make("div", "head");
  head.append(make("b", trial.status, `${MARKS[trial.status] || "\u2026"} ${trial.setting}.${trial.trial}`),
    make("span", "", trial.status === "passed" ? "" : `${trial.status.replace("_", " ")}: ${trial.stop_reason}`), make("span", "dim", facts(trial)));
  if (trial.page) {
    const link = make("a", "", "its run");
    link.href = trial.page.split("/").map(encodeURIComponent).join("/");
    head.append(link);
  } else head.append(make("span", "dim", trial.workspace));
  el.append(head);
  if (trial.reason) el.append(make("p", "reason", whole(trial.reason)));
  const { output } = trial;
  if (trial.status === "passed") {
    if (output !== undefined) el.append(fold("output", () => box("", output)));
    return el;
  }
  const texts = [row.expected, output];
  if (texts.every((text) => text === undefined)) return el;
  const parts = trial.status === "failed" && texts.every((text) => typeof text === "string") ? compareWords(...texts) : null;
  const pair = make("div", "pair");
  [["expected", "plus", "green: missing from the output"], ["output", "minus", "red: not expected"]].forEach(([name, mark, legend], side) => {
    const has = parts && parts[side].some(([one]) => one === mark);
    const text = texts[side];
    if (text !== undefined || side) pair.append(box(has ? `${name} \u00b7 ${legend}` : name, text === undefined ? "(none)" : text, has && parts[side]));
  });
  el.append(pair);
  return el;
}

function unfold(row, open) {
  if (open && !row.detail) {
    const cell = make("td");
    cell.colSpan = row.suite.settings.length + 1;
    const link = make("a", "link", "link to this case");
    link.href = address({ case: row.id });
    cell.append(link);
    if (row.input !== undefined) cell.append(box("input", row.input));
    for (const trial of row.suite.settings.flatMap((name) => row.cells.get(name) || [])) cell.append(trialBox(row, trial));
    row.detail = make("tr", "detail");
    row.detail.append(cell);
  }
  row.button.setAttribute("aria-expanded", String(open));
  row.el.classList.toggle("open", open);
  if (open) row.el.after(row.detail);
  else if (row.detail) row.detail.remove();
}

const isOpen = (row) => row.button.getAttribute("aria-expanded") === "true";

// The matrix.

function cellOf(trials) {
  const td = make("td", "cell");
  const shares = make("span", "share", `${counted(trials, "passed")}/${counted(trials, "passed") + counted(trials, "failed")} `);
  const share = rate(trials);
  td.classList.add(share === null ? "none" : share === 1 ? "full" : share === 0 ? "zero" : "part");
  td.append(shares);
  for (const trial of trials) {
    const mark = make(trial.page ? "a" : "span", trial.status, MARKS[trial.status] || "\u2026");
    if (trial.page) mark.href = trial.page.split("/").map(encodeURIComponent).join("/");
    mark.title = `trial ${trial.trial}: ${trial.status.replace("_", " ")}${trial.reason ? `: ${whole(trial.reason).slice(0, 300)}` : ""}`;
    td.append(mark);
  }
  return td;
}

function rowOf(row) {
  const el = make("tr", "case");
  const head = make("th");
  head.scope = "row";
  row.el = el;
  row.button = make("button", "", row.name || row.id);
  if (row.name) row.button.title = row.id;
  row.button.setAttribute("aria-expanded", "false");
  row.button.addEventListener("click", () => {
    mark(row);
    unfold(row, !isOpen(row));
  });
  head.append(row.button);
  el.append(head, ...row.suite.settings.map((name) => cellOf(row.cells.get(name) || [])));
  return el;
}

function matrix(suite) {
  const table = make("table", "matrix");
  const head = make("tr");
  for (const name of ["case", ...suite.settings]) {
    const th = make("th", "", name);
    th.scope = "col";
    head.append(th);
  }
  const thead = make("thead");
  thead.append(head);
  const body = make("tbody");
  const rows = [...suite.cases.values()].sort((a, b) => b.difference - a.difference || b.differs - a.differs || a.lowest - b.lowest);
  for (const row of rows) row.body = body;
  view.rows.push(...rows);
  table.append(thead, body);
  return table;
}

/** Makes more rows. The page says when all are there. */
function grow(some) {
  const more = view.rows.slice(view.made, view.made + some);
  view.made += more.length;
  for (const row of more) row.body.append(rowOf(row));
  if (view.made === view.rows.length) document.documentElement.dataset.ready = String(view.made);
}

function growLater() {
  if (view.made === view.rows.length) return;
  setTimeout(() => {
    grow(MORE_ROWS);
    growLater();
  });
}

/** The figures as the terminal shows them: the first row has the names of the settings. */
function figures(rows) {
  const table = make("table", "figures");
  for (const cells of rows) table.append(make("tr"));
  rows.forEach((cells, at) => cells.forEach((text, column) => table.rows[at].append(make(at && column ? "td" : "th", "", text))));
  const around = make("div", "scroll");
  around.append(table);
  return around;
}

function sectionOf(suite) {
  const el = make("section", "suite");
  const title = make("h2");
  title.append(make("span", "", suite.suite), make("b", { passed: "good", failed: "bad" }[suite.verdict] || "live", suite.verdict.toUpperCase()));
  const verdict = make("p", "verdict", (suite.answer || "").trim());
  el.append(title, make("p", "dim", `${suite.target} \u00b7 ${suite.about.trim().split(/ {3}|\n/).join(" \u00b7 ")}`), verdict, make("p", "said", suite.words.trim()));
  for (const warning of suite.warnings) el.append(make("p", "bad", `warning: ${warning}`));
  el.append(figures(suite.figures), matrix(suite));
  return el;
}

// The filters and the keys.

function apply() {
  grow(Infinity);
  const wanted = document.getElementById("search").value.toLowerCase();
  const fits = FILTERS[view.filter][1];
  let shown = 0;
  for (const row of view.rows) {
    const is = fits(row) && `${row.id} ${row.name || ""}`.toLowerCase().includes(wanted);
    if (!is && isOpen(row)) unfold(row, false);
    row.el.hidden = !is;
    shown += is;
  }
  tell(shown);
}

function tell(shown) {
  [...document.querySelectorAll(".filter")].forEach((el, at) => el.setAttribute("aria-pressed", String(at === view.filter)));
  document.getElementById("told").textContent = `${count(shown)} of ${count(view.rows.length)} cases`;
}

function filter(at) {
  view.filter = at;
  apply();
}

function choose(at) {
  filter(at);
  history.replaceState(null, "", address({}));
}

/** The address of what is shown, with other parts behind the #. */
function address(other) {
  const { theme } = document.documentElement.dataset;
  const parts = { ...(view.filter && { filter: FILTERS[view.filter][0] }), ...(theme && { theme }), ...other };
  return `#${Object.entries(parts).map((pair) => pair.map(encodeURIComponent).join("=")).join("&")}`;
}

function mark(row) {
  if (view.here) view.here.el.classList.remove("here");
  view.here = row;
  row.el.classList.add("here");
}

function move(by) {
  grow(Infinity);
  const rows = view.rows.filter((row) => !row.el.hidden);
  const at = rows.indexOf(view.here);
  const row = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
  if (!row) return;
  mark(row);
  row.button.focus({ preventScroll: true });
  row.el.scrollIntoView({ block: "nearest" });
}

function toggleTheme() {
  const { dataset } = document.documentElement;
  const isDark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = isDark ? "light" : "dark";
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  o: () => view.here && unfold(view.here, !isOpen(view.here)),
  f: () => choose((view.filter + 1) % FILTERS.length),
  "/": () => document.getElementById("search").focus(),
  t: toggleTheme,
};

addEventListener("keydown", (event) => {
  if (event.target.matches("input")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});

function tools() {
  const el = make("div", "tools-bar");
  const input = make("input");
  input.id = "search";
  input.type = "search";
  input.placeholder = "case  /";
  input.setAttribute("aria-label", "case");
  input.addEventListener("input", apply);
  FILTERS.forEach(([name, fits], at) => {
    const one = button(`${name} ${count(view.rows.filter(fits).length)}`, "f", () => choose(at));
    one.classList.add("filter");
    el.append(one);
  });
  const told = make("output", "dim");
  told.id = "told";
  el.append(input, told, button("light / dark", "t", toggleTheme), make("span", "dim keys", "j k move \u00b7 o unfold \u00b7 f filter \u00b7 / case \u00b7 t theme"));
  return el;
}

/** What stands behind the #: filter=failed, case=ID, theme=dark, joined by &. */
function followAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (["light", "dark"].includes(wanted.get("theme"))) document.documentElement.dataset.theme = wanted.get("theme");
  const at = FILTERS.findIndex(([name]) => name === wanted.get("filter"));
  if (at >= 0 && at !== view.filter) filter(at);
  if (wanted.has("case")) grow(Infinity);
  const row = wanted.has("case") && view.rows.find((one) => one.id === wanted.get("case"));
  if (!row) return;
  if (row.el.hidden) filter(0);
  mark(row);
  unfold(row, true);
  row.el.scrollIntoView({ block: "center" });
}

function start() {
  const suites = readData(document.getElementById("data").textContent);
  const header = make("header");
  const title = make("h1");
  title.append(make("span", "", "Evaluation"), make("span", "id", view.id));
  header.append(title);
  const main = make("main", "evaluation");
  main.append(...suites.map(sectionOf));
  const sticky = make("div", "sticky");
  sticky.append(tools());
  document.body.append(header, sticky, main, make("footer", "dim", "Made by delta eval report."));
  tell(view.rows.length);
  grow(FIRST_ROWS);
  followAddress();
  addEventListener("hashchange", followAddress);
  growLater();
}

start();
