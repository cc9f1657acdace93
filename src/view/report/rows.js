
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

/** An answer in Markdown as nodes: every character stays. The roles are those of src/text/markdown.rs. */
function styled(text) {
  const parts = [];
  const add = (role, part) => {
    const last = parts[parts.length - 1];
    if (last && last[0] === role) last[1] += part;
    else parts.push([role, part]);
  };
  let fence = "";
  for (const line of text.match(/[^\n]*\n|[^\n]+/g) || []) {
    const fits = new TextEncoder().encode(line).length <= 200;
    const begins = !fence && fits && /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})/.exec(line);
    if (fence || begins) {
      add("code", line);
      const ends = fence && fits && /^ {0,3}(`+|~+)\p{White_Space}*$/u.exec(line);
      if (begins) fence = begins[1];
      else if (ends && ends[1].startsWith(fence)) fence = "";
    } else if (/^ {0,3}#{1,6}(?:[ \t]|\n?$)/.test(line)) add("heading", line);
    else if (fits && /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*\n?$/.test(line)) add("rule", line);
    else if (fits && /^ {0,3}\|[-|: \t]*\n?$/.test(line)) add("rule", line);
    else addInline(line, add);
  }
  return parts.map(([role, part]) => (role ? make("span", role, part) : part));
}

function addInline(line, add) {
  let isStrong = false;
  let isEscaped = false;
  let ticks = 0;
  const isRow = /^ {0,3}\|/.test(line);
  let endsLabel = false;
  let isAddress = false;
  const role = () => (ticks ? "code" : isStrong ? "strong" : "");
  for (let at = 0, end; at < line.length; at = end) {
    const before = role();
    end = at + 1;
    const c = line[at];
    if (isEscaped || isAddress || (c !== "*" && c !== "`")) {
      const isFree = !isEscaped && !ticks;
      isAddress ||= endsLabel && c === "(";
      add((isAddress && c !== "\n") || (isFree && isRow && c === "|") ? "rule" : before, c);
      isAddress &&= c !== ")";
      endsLabel = isFree && c === "]";
      isEscaped = isFree && c === "\\";
      continue;
    }
    endsLabel = false;
    while (line[end] === line[at]) end += 1;
    const count = end - at;
    if (line[at] === "`") ticks = !ticks ? count : ticks === count ? 0 : ticks;
    else if (!ticks && count > 1) isStrong = !isStrong && end < line.length && !/\p{White_Space}/u.test(line[end]);
    // Markers belong to what they begin or end.
    add((before !== "code" && role()) || before, line.slice(at, end));
  }
}

function lines(text) {
  let n = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) n += 1;
  return n;
}

/** A text that is always there; a long one has a button that shows the rest. */
function said(text, name, nodes) {
  const el = make("div", `said ${name || ""}`);
  const all = whole(text).replace(/\s+$/, "");
  let end = all.length > LONG_CHARS ? LONG_CHARS : all.length;
  for (let n = 0, at = -1; n < LONG_LINES; n += 1) {
    at = all.indexOf("\n", at + 1);
    if (at < 0) break;
    if (n === LONG_LINES - 1) end = Math.min(end, at);
  }
  if (end === all.length && !Array.isArray(text)) {
    put(el, all, nodes);
    return el;
  }
  put(el, all.slice(0, end), nodes);
  const more = make("button", "more", `show all of it (${size(all.length)})`);
  const showAll = () => {
    put(el, text, nodes);
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
    pre.append(make("div", name, line.startsWith("@ ") ? `\u22ef ${line.slice(2)}` : line));
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
  if (isGood(result)) return ["ok", "good"];
  if (result.exit_code !== undefined) return [`exit code ${result.exit_code}`, "bad"];
  return [result.execution_ref ? "interrupted" : "not run", "bad"];
}

function resultFold(rec, result) {
  // The summary tells how it ended: the marks that tell the model are no output.
  const text = whole(words(result)).replace(/^\[stderr\]\n|\n?\[exit code: \d+\]\s*$|^\(no output\)\s*$/gm, "");
  const [end, look] = outcome(result);
  const n = text.trim() ? lines(text.replace(/\n$/, "")) : 0;
  const summary = [make("b", look, end)];
  if (n === 1) summary.push(make("span", "peek", firstLine(text)));
  else if (n > 1) summary.push(make("span", "dim", `${count(n)} lines`), make("span", "peek", firstLine(text)));
  return fold(summary, () => {
    const parts = [["what the model was shown", words(result)]];
    const { tool_args: args, resolved_command: command, asked } = rec || {};
    if (whole(args) && args !== "{}") parts.push(["arguments", args]);
    if (command && command !== asked) parts.push(["command", command]);
    if (result.network) parts.push(["connections", result.network]);
    if (result.execution_ref) parts.push(["", record(result), "record"]);
    return parts;
  });
}

function record(result) {
  const sizes = ["stdout", "stderr"]
    .filter((name) => result[`${name}_bytes`])
    .map((name) => `${name}.log ${size(result[`${name}_bytes`])}`);
  return [result.execution_ref, ...sizes].join("   ");
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
  switch (rec.type) {
    case "ENGINE_START":
      return ["run", "", startBody(rec)];
    case "USER_MESSAGE":
      return ["user", "user", [said(words(rec), "words"), ...attached(rec)]];
    case "context": {
      const text = whole(rec.text);
      const summary = [make("span", "dim", `context, ${size(text.length)}`), make("span", "peek", firstLine(text))];
      return ["system", "", [fold(summary, () => [["", rec.text]])]];
    }
    case "THOUGHT":
      return ["model", "model", thoughtBody(rec)];
    case "asked": {
      const why = rec.status ? `no answer (${rec.status.toLowerCase()}, ${rec.attempts} attempts)` : "no answer is recorded";
      return ["model", "model", [make("div", "bad", why), make("div", "dim", rec.ref)]];
    }
    case "ACTION_REQUEST": {
      const els = [said(rec.asked || rec.tool_name || "", "command")];
      els.push(...(result ? attached(result) : []));
      if (result && result.diff) {
        const pre = make("pre", "diff");
        putDiff(pre, result.diff);
        els.push(pre);
      }
      els.push(result ? resultFold(rec, result) : make("div", "dim", row.group.run.note === "live" ? "is running" : "no result"));
      return [rec.tool_name || "tool", "tools", els];
    }
    case "ACTION_RESULT":
    case "ACCEPTANCE":
      return [rec.tool_name || "tool", "tools", [...attached(rec), resultFold(null, rec)]];
    case "HUMAN_INPUT_REQUEST":
      return ["asks", "waiting", [said(words(rec), "words")]];
    case "HUMAN_INPUT_RECEIVED":
      return ["person", "user", [rec.secret ? make("div", "dim", "an answer that is not shown") : said(words(rec) || "(an empty answer)", "words")]];
    case "SYSTEM_MESSAGE":
    case "MODEL_CHANGED":
    case "ACTION_DEFERRED":
    case "DEFERRED_LOOK":
    case "ATTACHMENTS_LEFT_OUT":
    case "COMPACTION": {
      const els = [said(words(rec), isBad(row) ? "bad" : "dim")];
      if (rec.summary) els.push(fold([make("span", "dim", "summary")], () => [["", rec.summary]]));
      return ["note", "", els];
    }
    case "FILES": {
      const summary = [make("span", "dim", whole(words(rec)))];
      return ["files", "", [rec.diff ? fold(summary, () => [["", rec.diff, "diff"]]) : summary[0]]];
    }
    case "HOOK_EXECUTION_AUDIT":
      return ["hook", "hooks", [hookFold(rec)]];
    case "ERROR": {
      const els = [said(words(rec), "bad")];
      if (rec.error_details) els.push(fold([make("span", "dim", "details")], () => [["", rec.error_details]]));
      return ["error", "", els];
    }
    case "ENGINE_END":
      return ["end", "", endBody(rec)];
    case "FLOW_START":
      return ["", "", [fold([make("span", "dim", "what the flow was made from")], () => [["", rec.text]])]];
    default:
      return ["", "", remarkBody(rec)];
  }
}

function remarkBody(rec) {
  const torn = "The last line of the journal has no end and is not shown. ";
  const remark = {
    live: "The run goes on. This page shows it as it was when it was made.",
    dead: `${rec.torn ? torn : ""}The run has no end: the engine that worked on it has died.`,
    damage: `The journal is damaged in line ${rec.line}: ${whole(rec.text)}. The run is shown up to there.`,
  }[rec.type];
  if (remark) return [make("div", rec.type === "live" ? "good" : "bad", remark)];
  return [fold([make("span", "dim", rec.type)], () => [["", rec.text || ""]])];
}

function startBody(rec) {
  const fork = rec.forked_from ? ` as a fork of ${rec.forked_from.run_id} at iteration ${rec.forked_from.iteration}` : "";
  const head = `${rec.run_id || "?"} ${rec.resumed ? "resumes" : "starts"}${fork}`;
  const summary = [make("span", "", head), make("span", "dim", rec.t === undefined ? "" : date(rec.t))];
  return [fold(summary, () => {
    const facts = [["agent", rec.agent], ["model", rec.model], ["agent's directory", rec.agent_home], ["workspace", rec.work_dir], ["host", rec.hostname],
      ["settings", rec.set && JSON.stringify(rec.set)]];
    const parts = [["", facts.filter((f) => f[1]).map(([name, value]) => `${name}: ${value}`).join("\n")]];
    if (rec.config) parts.push(["configuration", rec.config]);
    return parts;
  })];
}

function thoughtBody(rec) {
  const els = [];
  const thinking = reasoning(rec);
  if (rec.content) els.push(said(rec.content, "words", styled));
  if (rec.finish_reason === "length" || rec.finish_reason === "content_filter") els.push(make("div", "bad", `cut off: ${rec.finish_reason}`));
  const summary = [];
  if (rec.calls) summary.push(make("span", "dim", `calls ${rec.calls.join(", ")}`));
  if (thinking.length) summary.push(make("span", "dim", `reasoning, ${size(thinking.map(whole).join("\n\n").length)}`));
  if (rec.attempts > 1) summary.push(make("span", "bad", `${rec.attempts} attempts`));
  if (!summary.length) summary.push(make("span", "dim", rec.content ? "record" : "gives an empty answer"));
  els.push(fold(summary, () => {
    const parts = thinking.map((text) => ["reasoning", text]);
    if (rec.sent) parts.push(["calls as the model sent them", rec.sent]);
    if (rec.llm_invocation_ref) parts.push(["", rec.llm_invocation_ref, "record"]);
    return parts;
  }));
  if (!rec.calls && !thinking.length && rec.content) els[els.length - 1].classList.add("faint");
  return els;
}

function hookFold(rec) {
  const good = rec.status === "SUCCESS";
  const summary = [make("span", "name", rec.hook_name || "?")];
  if (!good) summary.push(make("b", "bad", rec.status === "SKIPPED" ? "skipped" : rec.exit_code ? `failed, exit code ${rec.exit_code}` : "failed"));
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
    if (rec.io_path_ref) parts.push(["", rec.io_path_ref, "record"]);
    return parts;
  });
}

function endBody(rec) {
  const head = make("div");
  const code = rec.exit_code === undefined ? "" : `, exit code ${rec.exit_code}`;
  const look = { COMPLETED: "good", WAITING_FOR_INPUT: "live" }[rec.status] || "bad";
  head.append(make("b", look, rec.status || "?"), make("span", "dim", ` ${rec.stop_reason || ""}${code}`));
  return rec.error ? [head, said(rec.error, look === "live" ? "dim" : "bad")] : [head];
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
  const el = make("div", `row ${isStep(rec) ? "step" : rec.type}`);
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
  const lasts = span && (rec.type !== "ACTION_REQUEST" || row.result || row.group.run.note === "live");
  el.append(make("div", "took", lasts ? time(span.end - span.begin) : ""));
  const tokens = make("div", "tokens");
  if (isCounted(rec)) {
    tokens.append(make("span", "", count(tokensIn(rec))), make("span", "", count(tokensOut(rec))));
    tokens.title = `${tokensIn(rec)} tokens in, ${tokensOut(rec)} out` + (rec.cached === undefined ? "" : `; ${rec.cached} from a cache`);
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
