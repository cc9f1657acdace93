
// Rows as elements. Every text goes into the page as a text node; what is folded goes there when it is
// unfolded for the first time.

/** Longer texts are shown by their beginning at first. */
const LONG_CHARS = 2400;
const LONG_LINES = 28;

/** How many milliseconds a whole bar stands for. */
let barScale = 1;

/** When the outermost run began: what its times are relative to. */
let zero = 0;

/** Whether milliseconds matter: in a run of less than a minute. */
let isShort = false;

function make(tag, name, text) {
  const el = document.createElement(tag);
  if (name) el.className = name;
  if (text !== undefined) el.textContent = text;
  return el;
}

/** Puts a text into an element, with a remark where a part of it is missing. */
function put(el, text) {
  if (!Array.isArray(text)) {
    el.textContent = text;
    return;
  }
  const [head, missing, tail, place] = text;
  const remark = make("span", "cut", `\u2026 ${size(missing)} left out here; all of it is in ${place} \u2026`);
  el.replaceChildren(head + "\n", remark, "\n" + tail);
}

function lines(text) {
  let n = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) n += 1;
  return n;
}

/** A text that is always there; a long one has a button that shows the rest. */
function said(text, name) {
  const el = make("div", `said ${name || ""}`);
  const all = whole(text).replace(/\s+$/, "");
  let end = all.length > LONG_CHARS ? LONG_CHARS : all.length;
  for (let n = 0, at = -1; n < LONG_LINES; n += 1) {
    at = all.indexOf("\n", at + 1);
    if (at < 0) break;
    if (n === LONG_LINES - 1) end = Math.min(end, at);
  }
  if (end === all.length && !Array.isArray(text)) {
    el.textContent = all;
    return el;
  }
  el.textContent = all.slice(0, end);
  const more = make("button", "more", `show all of it (${size(all.length)})`);
  const showAll = () => {
    put(el, text);
    more.remove();
  };
  more.addEventListener("click", showAll);
  const box = make("div");
  box.append(el, more);
  box.showAll = showAll;
  return box;
}

/** What is behind a fold: parts with a title each, made when it is opened. */
function fold(summary, parts, open) {
  const el = make("details", "fold");
  const head = make("summary");
  head.append(...summary);
  el.append(head);
  el.fill = () => {
    if (el.filled) return;
    el.filled = true;
    for (const [title, text, name] of parts()) {
      if (title) el.append(make("div", "title", title));
      if (text instanceof Node) {
        el.append(text);
        continue;
      }
      const pre = make("pre", name || "");
      if (name === "diff") putDiff(pre, text);
      else put(pre, text);
      el.append(pre);
    }
  };
  el.addEventListener("toggle", () => el.open && el.fill());
  if (open) {
    el.open = true;
    el.fill();
  }
  return el;
}

function putDiff(pre, text) {
  for (const line of whole(text).replace(/\n$/, "").split("\n")) {
    const name = { "+": "plus", "-": "minus", "@": "place" }[line[0]] || "";
    pre.append(make("div", name, line[0] === "@" ? `\u22ef ${line.slice(2)}` : line));
  }
  if (Array.isArray(text)) pre.append(make("span", "cut", `\u2026 ${size(text[1])} left out; see ${text[3]}`));
}

/** The first line of a text with something in it, for a summary. */
function firstLine(text) {
  const start = text.search(/\S/);
  if (start < 0) return "";
  const end = text.indexOf("\n", start);
  return text.slice(start, Math.min(end < 0 ? text.length : end, start + 160));
}

/** How an action ended: [words, how they look]. */
function outcome(result) {
  // Older engines record the exit code alone.
  if (result.status === "SUCCESS" || (!result.status && result.code === 0)) return ["ok", "good"];
  if (result.code !== undefined && result.code !== null) return [`exit code ${result.code}`, "bad"];
  return [result.ref ? "interrupted" : "not run", "bad"];
}

function resultFold(rec, result) {
  // The summary tells how it ended: the marks that tell the model are no output.
  const text = whole(result.text).replace(/^\[stderr\]\n|\n?\[exit code: \d+\]\s*$|^\(no output\)\s*$/gm, "");
  const [words, look] = outcome(result);
  const n = text.trim() ? lines(text.replace(/\n$/, "")) : 0;
  const summary = [make("b", look, words)];
  if (n === 1) summary.push(make("span", "peek", firstLine(text)));
  else if (n > 1) summary.push(make("span", "dim", `${count(n)} lines`), make("span", "peek", firstLine(text)));
  return fold(summary, () => {
    const parts = [["what the model was shown", result.text || ""]];
    const args = rec && whole(rec.args);
    if (args && args !== "{}") parts.push(["arguments", rec.args]);
    if (rec && rec.command && rec.command !== rec.asked) parts.push(["command", rec.command]);
    if (result.network) parts.push(["connections", result.network]);
    if (result.ref) parts.push(["", record(result), "record"]);
    return parts;
  });
}

function record(result) {
  const sizes = ["stdout", "stderr"]
    .filter((name) => result[name])
    .map((name) => `${name}.log ${size(result[name])}`);
  return [result.ref, ...sizes].join("   ");
}

/** Attached pictures; what is too much for the page, and documents, as links. */
function attached(rec) {
  return (rec.attached || []).map(([line, address]) => {
    if (!address.startsWith("data:")) {
      const link = make("a", "dim", line);
      link.href = `file://${encodeURI(address)}`;
      return link;
    }
    const picture = make("img", "picture");
    picture.alt = line;
    picture.src = address;
    return picture;
  });
}

/** What stands beside the times: [who, its look, elements]. */
function body(row) {
  const { rec, result } = row;
  if (isStep(rec)) return stepBody(row);
  switch (rec.k) {
    case "start":
      return ["run", "", startBody(rec)];
    case "user":
      return ["user", "user", [said(rec.text || "", "words"), ...attached(rec)]];
    case "context": {
      const text = whole(rec.text);
      const summary = [make("span", "dim", `context, ${size(text.length)}`), make("span", "peek", firstLine(text))];
      return ["system", "", [fold(summary, () => [["", rec.text]])]];
    }
    case "thought":
      return ["model", "model", thoughtBody(rec)];
    case "asked": {
      const words = rec.status ? `no answer (${rec.status.toLowerCase()}, ${rec.attempts} attempts)` : "no answer is recorded";
      return ["model", "model", [make("div", "bad", words), make("div", "dim", rec.ref)]];
    }
    case "action": {
      const els = [said(rec.asked || rec.tool || "", "command")];
      els.push(...(result ? attached(result) : []));
      els.push(result ? resultFold(rec, result) : make("div", "dim", row.group.run.note === "live" ? "is running" : "no result"));
      return [rec.tool || "tool", "tools", els];
    }
    case "result":
      return [rec.tool || "tool", "tools", [...attached(rec), resultFold(null, rec)]];
    case "question":
      return ["asks", "waiting", [said(rec.text || "", "words")]];
    case "answer":
      return ["person", "user", [rec.secret ? make("div", "dim", "an answer that is not shown") : said(rec.text || "(an empty answer)", "words")]];
    case "note": {
      const els = [said(rec.text || "", isBad(row) ? "bad" : "dim")];
      if (rec.details) els.push(fold([make("span", "dim", "summary")], () => [["", rec.details]]));
      return ["note", "", els];
    }
    case "hook":
      return ["hook", "hooks", [hookFold(rec)]];
    case "error": {
      const els = [said(rec.text || "", "bad")];
      if (rec.details) els.push(fold([make("span", "dim", "details")], () => [["", rec.details]]));
      return ["error", "", els];
    }
    case "end":
      return ["end", "", endBody(rec)];
    case "flow":
      return ["", "", [fold([make("span", "dim", "what the flow was made from")], () => [["", rec.text]])]];
    default:
      return ["", "", remarkBody(rec)];
  }
}

function remarkBody(rec) {
  const torn = "The last line of the journal has no end and is not shown. ";
  const words = {
    live: "The run goes on. This page shows it as it was when it was made.",
    dead: `${rec.torn ? torn : ""}The run has no end: the engine that worked on it has died.`,
    damage: `The journal is damaged in line ${rec.line}: ${whole(rec.text)}. The run is shown up to there.`,
  }[rec.k];
  if (words) return [make("div", rec.k === "live" ? "good" : "bad", words)];
  return [fold([make("span", "dim", String(rec.type))], () => [["", rec.text || ""]])];
}

function startBody(rec) {
  const fork = rec.forked_from ? ` as a fork of ${rec.forked_from.run_id} at iteration ${rec.forked_from.iteration}` : "";
  const words = `${rec.run || "?"} ${rec.resumed ? "resumes" : "starts"}${fork}`;
  const summary = [make("span", "", words), make("span", "dim", rec.t === undefined ? "" : date(rec.t))];
  return [fold(summary, () => {
    const facts = [["agent", rec.agent], ["model", rec.model], ["agent's directory", rec.home], ["workspace", rec.place], ["host", rec.host],
      ["settings", rec.set && JSON.stringify(rec.set)]];
    const parts = [["", facts.filter((f) => f[1]).map(([name, value]) => `${name}: ${value}`).join("\n")]];
    if (rec.config) parts.push(["configuration", rec.config]);
    return parts;
  })];
}

function thoughtBody(rec) {
  const els = [];
  if (rec.text) els.push(said(rec.text, "words"));
  if (rec.finish === "length" || rec.finish === "content_filter") els.push(make("div", "bad", `cut off: ${rec.finish}`));
  const summary = [];
  if (rec.calls) summary.push(make("span", "dim", `calls ${rec.calls.join(", ")}`));
  if (rec.reasoning) summary.push(make("span", "dim", `reasoning, ${size(whole(rec.reasoning).length)}`));
  if (rec.attempts > 1) summary.push(make("span", "bad", `${rec.attempts} attempts`));
  if (!summary.length) summary.push(make("span", "dim", rec.text ? "record" : "gives an empty answer"));
  els.push(fold(summary, () => {
    const parts = [];
    if (rec.reasoning) parts.push(["reasoning", rec.reasoning]);
    if (rec.sent) parts.push(["calls as the model sent them", rec.sent]);
    if (rec.ref) parts.push(["", rec.ref, "record"]);
    return parts;
  }));
  if (!rec.calls && !rec.reasoning && rec.text) els[els.length - 1].classList.add("faint");
  return els;
}

function hookFold(rec) {
  const good = rec.status === "SUCCESS";
  const summary = [make("span", "name", rec.name)];
  if (!good) summary.push(make("b", "bad", rec.status === "SKIPPED" ? "skipped" : rec.code ? `failed, exit code ${rec.code}` : "failed"));
  if (isDenied(rec)) summary.push(make("b", "bad", "denied"));
  if (rec.diff) {
    const of = (mark) => whole(rec.diff).split("\n").filter((line) => line[0] === mark).length;
    summary.push(make("b", "changed", `changed +${of("+")} \u2212${of("-")}`));
  } else if (rec.large) summary.push(make("b", "changed", "changed"));
  return fold(summary, () => {
    const parts = [];
    if (rec.diff) parts.push(["what it changed", rec.diff, "diff"]);
    if (rec.large) parts.push(["what it changed", "The payloads are too large to be compared here."]);
    for (const name of ["control", "stdout", "stderr"]) if (rec[name]) parts.push([name, rec[name]]);
    if (rec.command) parts.push(["command", rec.command]);
    if (rec.ref) parts.push(["", rec.ref, "record"]);
    return parts;
  });
}

function endBody(rec) {
  const head = make("div");
  const code = rec.code === undefined || rec.code === null ? "" : `, exit code ${rec.code}`;
  const look = { COMPLETED: "good", WAITING_FOR_INPUT: "live" }[rec.status] || "bad";
  head.append(make("b", look, rec.status || "?"), make("span", "dim", ` ${rec.reason || ""}${code}`));
  return rec.text ? [head, said(rec.text, look === "live" ? "dim" : "bad")] : [head];
}

/** The bar of a row, within the time of its group. */
function bar(row) {
  const el = make("div", "bar");
  if (!row.span) return el;
  const { lane, begin, end } = row.span;
  if (row.group.task) {
    markInRun(el, row.group.run, row.span, isBad(row));
    return el;
  }
  const part = (ms) => Math.min(100, (ms / barScale) * 100);
  const mark = make("i", `lane ${lane}`);
  const left = part(begin - row.group.begin);
  mark.style.left = `${Math.min(left, 99.5)}%`;
  mark.style.width = `${Math.max(0, part(end - row.group.begin) - left)}%`;
  if (end - row.group.begin > barScale) mark.classList.add("over");
  if (isBad(row)) mark.classList.add("failed");
  el.append(mark);
  return el;
}

function buildRow(row, first) {
  const { rec, span } = row;
  const el = make("div", `row ${isStep(rec) ? "step" : rec.k}`);
  if (isBad(row)) el.classList.add("wrong");
  row.el = el;
  const [who, look, parts] = body(row);
  const at = span ? span.begin : rec.t;
  el.append(make("div", "number", first && row.group.number ? row.group.number : ""));
  el.append(make("div", "at", at === undefined ? "" : isShort ? ((at - zero) / 1000).toFixed(3) : clock(at - zero)));
  const name = make("div", `who ${look}`, who);
  name.title = who;
  const text = make("div", "body");
  text.append(...parts);
  el.append(name, text, bar(row));
  const lasts = span && (rec.k !== "action" || row.result || row.group.run.note === "live");
  el.append(make("div", "took", lasts ? time(span.end - span.begin) : ""));
  const tokens = make("div", "tokens");
  if (rec.in !== undefined) {
    tokens.append(make("span", "", count(rec.in)), make("span", "", count(rec.out)));
    tokens.title = `${rec.in} tokens in, ${rec.out} out` + (rec.cached === undefined ? "" : `; ${rec.cached} from a cache`);
  }
  const within = isStep(rec) && tokensWithin(row);
  if (within) {
    tokens.append(...within.map((n) => make("span", "", count(n))));
    tokens.title = `${within[0]} tokens in, ${within[1]} out, of the runs below`;
  }
  el.append(tokens);
  if (row.children.length) {
    const runs = make("div", "runs");
    runs.append(...row.children.map(buildRun));
    el.append(runs);
  }
  return el;
}

function buildGroup(group) {
  const el = group.task ? buildTask(group) : make("section", "group");
  group.el = el;
  el.group = group;
  if (!group.task) group.rows.forEach((row, at) => el.append(buildRow(row, !at)));
  return el;
}

/** A run that an action or a node has started. */
function buildRun(run) {
  const { head } = run;
  const { figures } = head;
  const look = { COMPLETED: "good", RUNNING: "live", WAITING_FOR_INPUT: "live" }[head.status] || "bad";
  const tokens = `${count(figures.tokens.prompt_tokens)} + ${count(figures.tokens.completion_tokens)} tokens`;
  const summary = [make("span", "name", `run of ${figures.flow ? "flow " : ""}${head.agent || "a sub-agent"}`), make("b", look, head.status),
    make("span", "dim", `${figures.flow ? `${count(figures.flow.tasks)} tasks` : `${figures.iterations} iterations`}, ${time(figures.times_ms.total)}, ${tokens}`), make("span", "dim", head.id)];
  run.fold = fold(summary, () => [["", list(run)]]);
  run.fold.classList.add("run");
  return run.fold;
}

function list(run) {
  const el = make("div", "list");
  for (const group of run.groups) el.append(buildGroup(group));
  return el;
}
