
// A flow: its groups are tasks, its rows what happened in them. A node is one row from its beginning to its
// end; each further attempt is a row of its own. Tasks run at once, so that bars stand in the time of the run.

const STEPS = ["TASK_CREATED", "NODE_START", "NODE_END", "so far", "ROUTE", "MERGE", "TASK_END"];

/** More tasks than this are folded at first, but for those that failed. */
const OPEN_TASKS = 40;

/** The group of a record: its task, or what is of no task. */
function taskGroup(run, rec) {
  const found = run.tasks.get(rec.task_id);
  if (found) return found;
  const last = run.groups[run.groups.length - 1];
  if (rec.task_id === undefined && last && !last.task && rec.type !== "ENGINE_START") return last;
  const group = newGroup(run, rec.task_id === undefined ? 0 : rec.task_id);
  if (rec.task_id !== undefined) {
    group.task = { created: null, ended: null, ready: null, nodes: [] };
    run.tasks.set(rec.task_id, group);
  }
  return group;
}

/** Takes up a record that only a flow has. Whether it was one. */
function addStep(run, rec) {
  if (rec.type === "TOOL") {
    seen(run, addRow(run, rec).group, rec.t);
    return true;
  }
  if (!isStep(rec)) return false;
  const group = taskGroup(run, rec);
  const { task } = group;
  const key = JSON.stringify([rec.task_id, rec.node_id]);
  const open = run.actions.get(key);
  const ready = () => { task.ready = rec.t; };
  switch (rec.type) {
    case "TASK_CREATED":
      task.created = addRow(run, rec).rec;
      ready();
      break;
    case "NODE_START":
      addAttempt(run, rec, task, [key, open]);
      break;
    case "NODE_END":
    case "ERROR":
      endAttempt(run, rec, open || addRow(run, rec), key);
      break;
    case "so far":
      if (open) open.soFar = rec;
      return true;
    case "ROUTE": {
      const from = group.rows.findLast((row) => row.rec.node_id === rec.node_id && row.rec.type === "NODE_START");
      (from || addRow(run, rec)).to = rec.to;
      ready();
      break;
    }
    case "TASK_END":
      task.ended = addRow(run, rec).rec;
      break;
    default:
      addRow(run, rec);
      ready();
  }
  seen(run, group, rec.t);
  return true;
}

function addAttempt(run, rec, task, [key, open]) {
  // An agent's answer that does not fit is sent back without an end of the node.
  if (open) {
    open.over = run.starts.some((start) => start.t >= open.rec.t) ? "interrupted" : "sent back";
    setSpan(open, "tools", open.rec.t, open.over === "sent back" ? rec.t : lastStart(run));
  }
  const row = addRow(run, rec);
  if (task.nodes[task.nodes.length - 1] !== rec.node_id) task.nodes.push(rec.node_id);
  if (rec.execution_ref && task.ready !== null && rec.t > task.ready) row.wait = { begin: task.ready, end: rec.t };
  task.ready = null;
  run.actions.set(key, row);
  if (rec.call_id) run.calls.set(rec.call_id, row);
}

/** What is known of attempts when all has been read: which are agents, and how long those without an end last. */
function finishTasks(run) {
  for (const { task, rows } of run.tasks.values()) {
    const agents = new Set(rows.filter((row) => row.children.length).map((row) => row.rec.node_id));
    for (const row of rows) if (row.span && agents.has(row.rec.node_id)) row.span.lane = "model";
    task.failed = task.ended ? task.ended.status !== "success" : run.note !== "live";
  }
}

/** When the engine died that was at work before the newest start. */
function lastStart(run) {
  const { before, t } = run.starts[run.starts.length - 1];
  return before === null ? t : before;
}

function endAttempt(run, rec, row, key) {
  run.actions.delete(key);
  row.result = rec;
  if (row.rec.execution_ref) {
    // It was recorded some time before there was room for it.
    const begin = rec.duration_ms === undefined ? row.rec.t : Math.max(row.rec.t, rec.t - rec.duration_ms);
    if (row.wait) row.wait.end = Math.max(row.wait.begin, begin);
    setSpan(row, "tools", begin, rec.t);
  }
}

function isStep(rec) {
  return STEPS.includes(rec.type) || (rec.type === "TOOL" && rec.task_id !== undefined) || isRetried(rec);
}

/** Whether a record is of an attempt at a node that another one follows. */
function isRetried(rec) {
  return rec.type === "ERROR" && rec.node_id !== undefined;
}

function isBadStep(row) {
  const { rec, result } = row;
  if (result) return isRetried(result) || result.status !== "success";
  return ["TOOL", "TASK_END", "NODE_END", "ERROR"].includes(rec.type) && rec.status !== "success" && rec.status !== "cancelled";
}

function textsOfStep(row) {
  const { rec, result } = row;
  const of = (from) => (from ? [from.input, from.context, from.output, from.stderr, from.args, from.stdout, from.network, from.execution_ref] : []);
  const shown = [rec.task_id, rec.node_id, rec.tool_name, rec.resolved_command, rec.code, rec.message, result && result.code, result && result.message];
  return [shown.concat(row.to || []), [...of(rec), ...of(result), ...of(row.soFar)]];
}

/** How an attempt ended: [words, how they look]. */
function endOfAttempt(row) {
  const { result } = row;
  if (result && isRetried(result)) return [`${result.code}, and is retried`, "bad"];
  if (result && result.status === "success") return [result.cached ? "ok, known before" : "ok", "good"];
  if (result) return [result.code || result.status, "bad"];
  if (row.over) return [row.over, "bad"];
  return row.group.run.note === "live" ? ["is running", "live"] : ["no end", "bad"];
}

/** What stands beside the times of a row of a flow: [who, its look, elements]. */
function stepBody(row) {
  const { rec } = row;
  switch (rec.type) {
    case "NODE_START":
    case "NODE_END":
    case "ERROR":
      return [rec.node_id, row.span ? row.span.lane : "", nodeBody(row)];
    case "TOOL":
      return [rec.node_id, "", [callFold(rec)]];
    case "TASK_CREATED": {
      const origin = rec.parent_id ? `from ${rec.parent_id} along ${rec.edge}` : "begins with";
      const els = rec.input === undefined ? [make("div", "dim", origin)] : [fold([make("span", "dim", origin), peek(rec.input)], () => [["", rec.input]])];
      return ["", "", els];
    }
    case "MERGE":
      return [rec.node_id, "", [make("div", "dim", `merges ${count(rec.arrived)}, ${count(rec.failed)} failed`)]];
    case "ROUTE":
      return [rec.node_id, "", [make("div", "dim", arrow(row.to))]];
    default: {
      const place = rec.exit_node ? ` at ${rec.exit_node}` : rec.merged_at ? `, merged at ${rec.merged_at}` : "";
      const head = make("div");
      head.append(make("b", isBad(row) ? "bad" : "good", rec.status || "?"), make("span", "dim", place));
      return ["", "", rec.code ? [head, said([rec.node_id, rec.code, whole(rec.message)].filter(Boolean).join(": "), "bad")] : [head]];
    }
  }
}

function arrow(to) {
  return `\u2192 ${(to || []).join(", ")}`;
}

function peek(text) {
  return make("span", "peek", firstLine(whole(text)));
}

function nodeBody(row) {
  const { rec, result, to } = row;
  const els = [];
  if (rec.resolved_command) els.push(said(rec.resolved_command, "command"));
  const [end, look] = endOfAttempt(row);
  const summary = [make("b", look, end)];
  if (rec.attempt > 1) summary.unshift(make("span", "dim", `attempt ${rec.attempt}`));
  if (to) summary.push(make("span", "dim", arrow(to)));
  const output = result && result.output;
  if (output !== undefined && output !== null) summary.push(peek(output));
  els.push(fold(summary, () => partsOfNode(row)));
  if (result && result.message) els.push(said(result.message, "bad"));
  return els;
}

function partsOfNode({ rec, result, soFar }) {
  const end = result || soFar || {};
  const parts = [];
  if (rec.input) parts.push(["input", rec.input]);
  if (end.output) parts.push(["output", end.output]);
  if (end.type === "NODE_END" && end.status === "success" && !end.output) parts.push(["output", "what it was given, as it is"]);
  if (end.stderr) parts.push(["stderr", end.stderr]);
  if (rec.context) parts.push(["context", rec.context]);
  const facts = [rec.execution_ref, end.stdout_bytes && `stdout.log ${size(end.stdout_bytes)}`, end.cpu_ms !== undefined && `cpu ${time(end.cpu_ms)}`,
    end.memory_bytes !== undefined && `memory ${size(end.memory_bytes)}`];
  if (rec.execution_ref) parts.push(["", facts.filter(Boolean).join("   "), "record"]);
  return parts;
}

/** A call of a tool by the program of a node. */
function callFold(rec) {
  const good = rec.status === "success";
  const summary = [make("span", "dim", "calls"), make("span", "name", rec.tool_name || "?"), make("b", good ? "good" : "bad", good ? "ok" : rec.code || "failed")];
  if (rec.duration_ms !== undefined) summary.push(make("span", "dim", time(rec.duration_ms)));
  summary.push(peek(rec.stdout || rec.message || ""));
  return fold(summary, () => {
    const parts = [];
    if (rec.message) parts.push(["why", rec.message]);
    if (rec.resolved_command) parts.push(["command", rec.resolved_command]);
    for (const [name, text] of [["arguments", rec.args], ["stdout", rec.stdout], ["stderr", rec.stderr], ["connections", rec.network]]) if (text) parts.push([name, text]);
    if (rec.execution_ref) parts.push(["", `${rec.execution_ref}   exit code ${rec.exit_code}`, "record"]);
    return parts;
  });
}

/** Tokens of the runs that a node has started: [in, out]; none without runs. */
function tokensWithin(row) {
  if (!row.children.length) return null;
  const sum = (key) => row.children.reduce((all, run) => all + run.head.figures.tokens[key], 0);
  return [sum("prompt_tokens"), sum("completion_tokens")];
}

/** Puts a mark into a bar, within the time of a flow. */
function markInRun(el, run, { lane, begin, end }, bad) {
  const { at, end: length } = axisOf(run);
  const mark = make("i", `lane ${lane}`);
  const part = (t) => Math.min(100, Math.max(0, (at(t) / length) * 100));
  mark.style.left = `${Math.min(part(begin), 99.5)}%`;
  mark.style.width = `${Math.max(0, part(end) - part(begin))}%`;
  if (bad) mark.classList.add("failed");
  el.append(mark);
}

function axisOf(run) {
  if (!run.axis) run.axis = makeAxis(run);
  return run.axis;
}

/** A task: a line with what came of it, and its rows behind a fold. */
function buildTask(group) {
  const { task, run, rows } = group;
  const el = make("section", "group of-task");
  const head = make("div", "row");
  const status = task.ended ? task.ended.status : run.note === "live" ? "open" : "no end";
  const look = status === "success" ? "good" : status === "open" ? "live" : "bad";
  const path = make("span", "dim", task.nodes.join(" \u203a "));
  const box = make("div", "rows");
  box.hidden = true;
  const id = make("span", "name", String(group.number));
  id.style.paddingLeft = `${Math.min(8, String(group.number).split(".").length - 1)}em`;
  const unfolded = fold([id, make("b", look, status), path], () => {
    rows.forEach((row) => box.append(buildRow(row, false)));
    return [];
  });
  unfolded.rows = box;
  const show = () => { box.hidden = !unfolded.open; };
  unfolded.addEventListener("toggle", show);
  group.open = () => {
    unfolded.fill();
    unfolded.open = true;
    show();
  };
  const text = make("div", "body wide");
  text.append(unfolded);
  const bars = make("div", "bar");
  for (const row of rows) if (row.span) markInRun(bars, run, row.span, isBad(row));
  head.append(text, bars, make("div", "took", time(Math.max(0, group.end - group.begin))), make("div", "tokens"));
  el.append(head, box);
  if (run.tasks.size <= OPEN_TASKS || (task.failed && run.failedShown++ < OPEN_TASKS)) group.open();
  return el;
}

/** The figures of a flow that stand at the top. */
function factsOfFlow({ flow, times_ms: times, starts }) {
  const nodes = Object.values(flow.nodes);
  const sum = (key) => nodes.reduce((all, node) => all + node[key], 0);
  const some = (n, words) => (n ? ` (${count(n)} ${words})` : "");
  return [
    ["tasks", count(flow.tasks) + some(flow.failed_tasks, "failed")],
    ["nodes", count(sum("count")) + some(sum("failures"), "failed") + some(sum("retries"), "retries") + some(sum("cached"), "known before")],
    ["time", time(times.total)],
    ["programs", time(times.tools)],
    ["cpu", time(sum("cpu_ms"))],
    ["starts", count(starts)],
  ];
}

/** How many programs ran at once, over time. */
function drawAtOnce({ g, c, x, right }) {
  const top = LANES.length * STEP + 6;
  const base = top + CHART_IN + 4 + CHART_OUT;
  const changes = [];
  for (const { span } of overview.run.rows) if (span) changes.push([span.begin, 1], [span.end, -1]);
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let [n, most] = [0, 1];
  for (const [, by] of changes) most = Math.max(most, n += by);
  g.save();
  g.beginPath();
  g.rect(LEFT, 0, right - LEFT, base + 1);
  g.clip();
  g.fillStyle = c.tools;
  n = 0;
  changes.forEach(([t, by], at) => {
    n += by;
    const next = changes[at + 1];
    if (!n || !next) return;
    const [a, b] = [x(t), x(next[0])];
    const tall = (n / most) * (base - top);
    g.fillRect(a, base - tall, Math.max(0.7, b - a), tall);
  });
  g.restore();
  g.fillStyle = c.dim;
  g.textAlign = "left";
  if (changes.length) g.fillText(count(most), right + 6, top + 5);
}
