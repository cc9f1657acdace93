
// The page: its head, the search, the keys, and what stands behind the # in its address.

const state = { run: null, here: 0, query: "", hits: [], hit: -1, failure: null, busy: 0, finish: () => {} };

/** Counts what is done piece by piece. The document says when none of it is left. */
function busy(by) {
  state.busy += by;
  const { dataset } = document.documentElement;
  if (state.busy) delete dataset.ready;
  else dataset.ready = String(state.run.rows.length);
}

// The head.

function facts(run) {
  const { figures } = run.head;
  const { tokens } = figures;
  const tools = Object.values(figures.tools);
  const sum = (key) => tools.reduce((all, tool) => all + tool[key], 0);
  const some = (n, words) => (n ? ` (${count(n)} ${words})` : "");
  const own = figures.flow ? factsOfFlow(figures) : [
    ["iterations", count(figures.iterations)],
    ["time", time(figures.times_ms.total)],
    ["starts", count(figures.starts)],
  ];
  const list = [...own,
    ["model calls", count(figures.model_calls) + some(figures.model_failures, "failed") + some(figures.retries, "retries")],
    ["tool calls", count(sum("calls")) + some(sum("failures"), "failed")],
    ["tokens in", count(tokens.prompt_tokens) + some(figures.cached_tokens, "cached")],
    ["tokens out", count(tokens.completion_tokens)],
  ];
  if (!figures.flow) list.push(["cache losses", count(figures.prefix_breaks.length)]);
  if (typeof figures.cost === "number") list.push(["cost", figures.cost.toFixed(6)]);
  const el = make("dl", "facts");
  for (const [name, value] of list) {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", value));
    el.append(pair);
  }
  return el;
}

/** Where the time went, as one bar. */
function split(times) {
  const el = make("div", "split");
  const line = make("div", "whole");
  const legend = make("div", "legend");
  for (const [name, part, look] of [["model", times.model, "model"], ["waits", times.waits, "waiting"], ["tools", times.tools, "tools"], ["hooks", times.hooks, "hooks"],
    ["people", times.people, "waiting"], ["delta", times.delta, "own"]]) {
    const percent = times.total ? (part / times.total) * 100 : 0;
    const piece = make("i", `lane ${look}`);
    piece.style.width = `${percent}%`;
    line.append(piece);
    const entry = make("span");
    entry.append(make("i", `lane ${look}`), `${name} ${time(part)}`, make("span", "dim", ` ${Math.round(percent)} %`));
    legend.append(entry);
  }
  el.append(line, legend);
  return el;
}

/** Figures by name, behind a fold: `cells` makes a row of those of one. */
function table(what, all, head, cells) {
  const names = Object.keys(all);
  return fold([make("span", "dim", `${names.length} ${what}`)], () => {
    const el = make("table");
    const row = (list, tag) => {
      const tr = make("tr");
      for (const cell of list) tr.append(make(tag, "", cell));
      el.append(tr);
    };
    row(head, "th");
    for (const name of names) row([name, ...cells(all[name])], "td");
    return [["", el]];
  });
}

function toolTable(tools) {
  return table("tools", tools, ["tool", "calls", "failed", "median", "longest", "output"],
    (t) => [count(t.calls), count(t.failures), time(t.median_ms), time(t.longest_ms), size(t.bytes)]);
}

function nodeTable(nodes) {
  return table("nodes", nodes, ["node", "count", "failed", "median", "longest", "waited", "cpu", "memory", "context", "tokens in", "out"],
    (n) => [count(n.count), count(n.failures), time(n.median_ms), time(n.longest_ms), time(n.queue_ms), time(n.cpu_ms), size(n.memory_bytes),
      size(n.context_bytes), count(n.tokens.prompt_tokens), count(n.tokens.completion_tokens)]);
}

function header(run) {
  const { head } = run;
  const el = make("header");
  const first = (kind) => (run.rows.find((row) => row.rec.type === kind) || { rec: {} }).rec;
  const begun = first("ENGINE_START");
  const title = make("h1");
  title.append(make("span", "id", head.id), make("b", { COMPLETED: "good", RUNNING: "live", WAITING_FOR_INPUT: "live" }[head.status] || "bad", head.status));
  const { flow } = head.figures;
  const about = [head.agent && `${flow ? "flow" : "agent"} ${head.agent}`, begun.model && `model ${begun.model}`, begun.t !== undefined && date(begun.t),
    head.parent && `started by run ${head.parent}`];
  el.append(title, make("p", "dim", about.filter(Boolean).join(" \u00b7 ")));
  const task = whole(flow ? first("TASK_CREATED").input : first("USER_MESSAGE").content);
  if (task) el.append(make("p", "task", task.length > 600 ? `${task.slice(0, 600)}\u2026` : task));
  el.append(facts(run), flow ? nodeTable(flow.nodes) : split(head.figures.times_ms));
  if (Object.keys(head.figures.tools).length) el.append(toolTable(head.figures.tools));
  return el;
}

function tools() {
  const el = make("div", "tools-bar");
  const input = make("input");
  input.id = "search";
  input.type = "search";
  input.placeholder = "search  /";
  input.setAttribute("aria-label", "search");
  input.spellcheck = false;
  let timer = 0;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => search(input.value), 120);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      clearTimeout(timer);
      if (input.value !== state.query) search(input.value);
      else step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") input.blur();
  });
  const found = make("output", "found");
  found.id = "found";
  const told = make("span", "dim");
  told.id = "told";
  el.append(input, button("\u2191", "previous hit (N)", () => step(-1)), button("\u2193", "next hit (n)", () => step(1)), found, told,
    button("next failure", "f", nextFailure), button("unfold all", "e", () => unfold(document)),
    button("light / dark", "t", toggleTheme), button("keys", "?", showHelp));
  return el;
}

// Going to places.

function chain(row) {
  const rows = [];
  for (let at = row; at; at = at.group.run.above) rows.unshift(at);
  return rows;
}

/** Makes a row visible, whatever it is folded into, and returns its element. */
function reveal(row, inside) {
  for (const at of chain(row)) {
    const { run } = at.group;
    if (run.fold) {
      run.fold.fill();
      run.fold.open = true;
    }
    if (at.group.task) at.group.open();
  }
  if (inside) {
    for (const el of row.el.querySelectorAll(":scope > .body > .fold:not(.run)")) {
      el.fill();
      el.open = true;
    }
    for (const box of row.el.querySelectorAll(":scope > .body > div")) if (box.showAll) box.showAll();
  }
  return row.el;
}

function goTo(row, inside) {
  if (!row) return;
  const top = chain(row)[0].group;
  if (!top.el) state.finish();
  const el = reveal(row, inside);
  mark(top.index);
  el.scrollIntoView({ block: row.el === top.el.firstChild ? "start" : "center" });
}

function mark(index) {
  const before = state.run.groups[state.here];
  if (before) before.el.classList.remove("here");
  state.here = index;
  state.run.groups[index].el.classList.add("here");
}

function goToGroup(index) {
  const group = state.run.groups[Math.min(Math.max(index, 0), state.run.groups.length - 1)];
  if (!group) return;
  if (!group.task) {
    goTo(group.rows[0]);
    return;
  }
  // A task that is folded stays so.
  if (!group.el) state.finish();
  mark(group.index);
  group.el.scrollIntoView({ block: "start" });
}

/** All rows, those of sub-agents behind the action that started them. */
function* everyRow(run) {
  for (const row of run.rows) {
    yield row;
    for (const child of row.children) yield* everyRow(child);
  }
}

function nextFailure() {
  const bad = [...everyRow(state.run)].filter(isBad);
  if (!bad.length) return;
  state.failure = bad[(bad.indexOf(state.failure) + 1) % bad.length];
  goTo(state.failure);
  flash(state.failure.el);
}

function flash(el) {
  for (const old of document.querySelectorAll(".hit")) old.classList.remove("hit");
  el.classList.add("hit");
}

function unfold(where) {
  if (where === document) state.finish();
  const folds = [...where.querySelectorAll("details.fold")];
  const open = folds.some((el) => !el.open);
  const some = () => {
    for (const el of folds.splice(0, 400)) {
      if (open) el.fill();
      el.open = open;
      if (open && el.rows) {
        el.rows.hidden = false;
        folds.push(...el.rows.querySelectorAll("details.fold:not([open])"));
      }
      if (open && el.classList.contains("run")) folds.push(...el.querySelectorAll("details.fold:not([open])"));
    }
    if (folds.length) setTimeout(some);
    else busy(-1);
  };
  busy(1);
  some();
}

// The search.

function search(query) {
  state.query = query;
  state.hit = -1;
  state.hits = [];
  if (query) {
    const pattern = new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "iu");
    for (const row of everyRow(state.run)) {
      const [shown, folded] = textsOf(row);
      if (shown.some((text) => pattern.test(text))) state.hits.push([row, whole(words(row.rec)).length > LONG_CHARS]);
      else if (folded.some((text) => pattern.test(text))) state.hits.push([row, true]);
    }
  }
  if (state.hits.length) step(1);
  else tellHits();
}

function step(by) {
  if (!state.hits.length) return;
  state.hit = (state.hit + by + state.hits.length) % state.hits.length;
  const [row, inside] = state.hits[state.hit];
  goTo(row, inside);
  flash(row.el);
  highlight(row.el);
  tellHits();
}

function tellHits() {
  const { query, hits, hit } = state;
  const words = !query ? "" : hits.length ? `${hit + 1} of ${hits.length}` : "not found";
  document.getElementById("found").textContent = words;
  document.documentElement.dataset.hits = query ? String(hits.length) : "";
  if (!hits.length) highlight(null);
}

/** Marks what was looked for, where the browser can do so without changing the page. */
function highlight(el) {
  if (!window.Highlight || !CSS.highlights) return;
  CSS.highlights.delete("found");
  if (!el) return;
  const wanted = state.query.toLowerCase();
  const ranges = [];
  const walker = document.createTreeWalker(el, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.data.toLowerCase();
    if (text.length !== node.data.length) continue;
    for (let at = text.indexOf(wanted); at >= 0 && ranges.length < 2000; at = text.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
  // A long output has a scroll bar of its own.
  const inner = ranges.find((range) => range.startContainer.parentElement.closest("pre"));
  const box = inner && inner.startContainer.parentElement.closest("pre");
  if (box) box.scrollTop += inner.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
}

// Light and dark.

function isDark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  if (theme !== "light" && theme !== "dark") return;
  document.documentElement.dataset.theme = theme;
  forgetColours();
}

function toggleTheme() {
  setTheme(isDark() ? "light" : "dark");
}

// The keys.

const KEYS = [
  ["j  k", "next, previous iteration or task", null],
  ["o", "unfold and fold this iteration or task", () => unfold(state.run.groups[state.here].el)],
  ["e", "unfold and fold everything", () => unfold(document)],
  ["f", "next failure", nextFailure],
  ["/", "search", () => document.getElementById("search").focus()],
  ["n  N", "next, previous hit", null],
  ["g  G", "first, last iteration or task", null],
  ["z", "show the whole time again", () => zoom(0, overview.axis.end)],
  ["t", "light or dark", toggleTheme],
  ["?", "these keys", () => showHelp()],
];

const MOVES = {
  j: () => goToGroup(state.here + 1), k: () => goToGroup(state.here - 1), n: () => step(1), N: () => step(-1),
  g: () => goToGroup(0), G: () => goToGroup(state.run.groups.length - 1),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, dialog *")) return;
  const key = KEYS.find(([keys]) => keys === event.key);
  const action = MOVES[event.key] || (key && key[2]);
  if (!action || !state.run) return;
  event.preventDefault();
  action();
});

function showHelp() {
  let dialog = document.querySelector("dialog");
  if (!dialog) {
    dialog = make("dialog");
    const table = make("table");
    for (const [keys, words] of KEYS) {
      const row = make("tr");
      row.append(make("td", "key", keys), make("td", "", words));
      table.append(row);
    }
    const close = button("close", "Escape", () => dialog.close());
    dialog.append(table, make("p", "dim", "Drag over the overview to see a part of the time; click it to go there. "
      + "The address may end in #i=12 or, of a flow, #i=T1.c0, #open=12, #search=WORDS or #theme=dark, joined by &."), close);
    document.body.append(dialog);
  }
  if (dialog.open) dialog.close();
  else dialog.showModal();
}

// What stands behind the #.

function followAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  setTheme(wanted.get("theme"));
  for (const key of ["i", "open"]) {
    if (!wanted.has(key)) continue;
    const group = state.run.groups.find((one) => String(one.number) === wanted.get(key));
    if (group) goToGroup(group.index);
    if (key === "open" && wanted.get(key) === "all") unfold(document);
    else if (key === "open" && group) unfold(group.el);
  }
  if (wanted.has("search")) {
    document.getElementById("search").value = wanted.get("search");
    search(wanted.get("search"));
  }
}

/** Which part of the run is on the screen, for the overview. */
function watch(bar) {
  let asked = false;
  const look = () => {
    asked = false;
    const at = (y) => {
      const el = document.elementFromPoint(document.documentElement.clientWidth / 2, y);
      const section = el && el.closest(".list > .group");
      let { group } = section || {};
      while (group && group.run.above) group = group.run.above.group;
      return group;
    };
    const top = at(bar.getBoundingClientRect().bottom + 6);
    const bottom = at(innerHeight - 6) || (top && state.run.groups[state.run.groups.length - 1]);
    overview.seen = top && bottom ? [top.begin, bottom.end] : [0, 0];
    draw();
  };
  const soon = () => {
    if (!asked) requestAnimationFrame(look);
    asked = true;
  };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon);
  soon();
}

/** Bars are as long as they last, on one scale; the few that are much longer than most are cut. */
function chooseScale(run) {
  const all = [...everyRow(run)].map((row) => row.group);
  const groups = [...new Set(all)].filter((group) => !group.task);
  const durations = groups.map((group) => group.end - group.begin).sort((a, b) => a - b);
  const longest = durations[durations.length - 1] || 1;
  const usual = durations[Math.floor(durations.length * 0.95)] || longest;
  barScale = longest > usual * 4 ? usual * 2 : longest;
  return time(run.isFlow ? axisOf(run).end : barScale);
}

function columns(scale) {
  const el = make("div", "row columns");
  const bars = make("div", "bar");
  bars.append(make("span", "", "0"), make("span", "", scale));
  const tokens = make("div", "tokens");
  tokens.append(make("span", "", "in"), make("span", "", "out"));
  el.append(make("div", "number", "no."), make("div", "at", "time"), make("div", "who", ""), make("div", "body", ""), bars,
    make("div", "took", "took"), tokens);
  return el;
}

/** A list of any length: its beginning is there at once, the rest soon, or when it is needed. */
function growingList(run) {
  const el = make("div", "list");
  let at = 0;
  let whole = false;
  const grow = (some) => {
    if (at >= run.groups.length && at) return;
    for (const end = at + some; at < run.groups.length && at < end; at += 1) el.append(buildGroup(run.groups[at]));
    if (at >= run.groups.length && !whole) {
      whole = true;
      busy(-1);
    }
  };
  const later = () => {
    grow(120);
    if (at < run.groups.length) setTimeout(later);
  };
  busy(1);
  state.finish = () => grow(Infinity);
  grow(60);
  if (at < run.groups.length) setTimeout(later);
  return el;
}

function start() {
  const run = readData(document.getElementById("data").textContent);
  state.run = run;
  busy(1);
  zero = run.begin || 0;
  isShort = run.last - zero < 60000;
  const scale = chooseScale(run);
  const sticky = make("div", "sticky");
  const canvas = make("canvas", "overview");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "the run over time");
  sticky.append(tools(), canvas, columns(scale));
  const main = make("main");
  main.append(growingList(run));
  document.body.append(header(run), sticky, main, make("footer", "dim", `Made by delta report, ${date(run.head.now)}. Times count from the beginning of the run.`));
  startOverview(run, canvas);
  const fit = () => document.documentElement.style.setProperty("--sticky", `${sticky.offsetHeight}px`);
  new ResizeObserver(fit).observe(sticky);
  fit();
  watch(sticky);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forgetColours);
  followAddress();
  addEventListener("hashchange", followAddress);
  busy(-1);
}

start();
