"use strict";

// The data as runs, groups and rows. A group is what happened in one iteration between two starts of
// the engine; a row is an event, or an action together with its result. Nothing here touches the page.

const LANES = ["model", "tools", "hooks", "waiting"];

/** Reads the lines of the data block: one object each. */
function readData(text) {
  const stack = [];
  let whole = null;
  for (const line of text.split("\n")) {
    if (!line) continue;
    const rec = JSON.parse(line);
    const run = stack[stack.length - 1];
    if (rec.k === "run") {
      const child = newRun(rec, run ? parentRow(run, rec) : null);
      if (run) child.above.children.push(child);
      else whole = child;
      stack.push(child);
    } else if (rec.k === "end of run") {
      finish(stack.pop());
    } else if (run) {
      addRecord(run, rec);
    }
  }
  while (stack.length) finish(stack.pop());
  return whole;
}

/** The node whose call it was, or else the action that is open; hooks may have followed it. */
function parentRow(run, rec) {
  for (let call = rec.call || ""; call; call = call.slice(0, Math.max(0, call.lastIndexOf(".")))) {
    if (run.calls.has(call)) return run.calls.get(call);
  }
  const open = [...run.actions.values()].pop();
  return open || run.rows[run.rows.length - 1] || addRow(run, rec);
}

function newRun(head, above) {
  return {
    head, above, rows: [], groups: [], starts: [], actions: new Map(), question: null,
    isFlow: false, tasks: new Map(), calls: new Map(), failedShown: 0, axis: null, last: null, note: "", depth: above ? above.group.run.depth + 1 : 0,
  };
}

function addRecord(run, rec) {
  if (rec.k === "flow") run.isFlow = true;
  if (run.isFlow && addStep(run, rec)) return;
  if (rec.k === "result") {
    const row = run.actions.get(rec.id);
    if (row) {
      run.actions.delete(rec.id);
      row.result = rec;
      setSpan(row, "tools", row.rec.t, row.rec.t + (rec.d || 0));
      seen(run, row.group, rec.t);
      return;
    }
    if (!rec.ref && rec.status === "SUCCESS") return; // What a person answered has its own row.
  }
  const row = addRow(run, rec);
  const t = rec.t;
  switch (rec.k) {
    case "start":
      run.starts.push({ row, t, before: run.last });
      run.question = null;
      break;
    case "thought": {
      const begin = rec.s !== undefined ? rec.s : rec.d !== undefined ? t - rec.d : run.last;
      if (begin !== null) setSpan(row, "model", begin, rec.d !== undefined ? begin + rec.d : t);
      break;
    }
    case "asked":
      if (rec.s !== undefined) setSpan(row, "model", rec.s, rec.s + (rec.d || 0));
      break;
    case "action":
      run.actions.set(rec.id, row);
      break;
    case "hook":
      if (rec.d !== undefined) setSpan(row, "hooks", t - rec.d, t);
      break;
    case "question":
      run.question = row;
      break;
    case "answer":
      if (run.question) setSpan(run.question, "waiting", run.question.rec.t, t);
      run.question = null;
      break;
    case "live":
    case "dead":
    case "damage":
      run.note = rec.k;
      break;
    default:
  }
  seen(run, row.group, t);
}

function newGroup(run, number) {
  const group = { run, number, index: run.groups.length, rows: [], begin: null, end: null, el: null, task: null };
  run.groups.push(group);
  return group;
}

function addRow(run, rec) {
  let group = run.groups[run.groups.length - 1];
  const number = rec.i !== undefined ? rec.i : group ? group.number : 0;
  if (run.isFlow) group = taskGroup(run, rec);
  else if (!group || rec.k === "start" || group.number !== number) group = newGroup(run, number);
  const row = { rec, group, result: null, span: null, wait: null, children: [], el: null, fold: null };
  group.rows.push(row);
  run.rows.push(row);
  return row;
}

function setSpan(row, lane, begin, end) {
  row.span = { lane, begin, end: Math.max(begin, end) };
  seen(row.group.run, row.group, begin);
  seen(row.group.run, row.group, row.span.end);
}

function seen(run, group, t) {
  if (t === undefined || t === null) return;
  group.begin = group.begin === null ? t : Math.min(group.begin, t);
  group.end = group.end === null ? t : Math.max(group.end, t);
  run.last = run.last === null ? t : Math.max(run.last, t);
}

/** An action without a result lasts until now, if somebody works on the run. */
function finish(run) {
  for (const row of run.actions.values()) {
    if (run.note === "live") setSpan(row, "tools", row.rec.t, run.head.now);
  }
  if (run.note === "live" && run.question) {
    setSpan(run.question, "waiting", run.question.rec.t, run.head.now);
  }
  finishTasks(run);
  run.begin = run.groups.length ? run.groups[0].begin : null;
}

/** A text that may have been cut, as one string. */
function whole(text) {
  return Array.isArray(text) ? text[0] + "\n" + text[2] : text || "";
}

/** Whether something went wrong in a row. */
function isBad(row) {
  const { rec, result } = row;
  if (isStep(rec)) return isBadStep(row);
  if (result) return result.status !== "SUCCESS";
  if (rec.k === "result") return rec.status !== "SUCCESS";
  if (rec.k === "end") return rec.status !== "COMPLETED" && rec.status !== "WAITING_FOR_INPUT";
  if (rec.k === "hook") return rec.status !== "SUCCESS" || isDenied(rec);
  if (rec.k === "note") return rec.level === "WARN" || rec.level === "ERROR";
  if (rec.k === "thought") return rec.finish === "length" || rec.finish === "content_filter";
  return ["error", "damage", "dead", "asked"].includes(rec.k);
}

function isDenied(rec) {
  return rec.name === "pre_tool_execution" && /"(deny|abort)"|"skip"\s*:\s*true/i.test(whole(rec.control));
}

/** What of a row is always shown, and what only when it is unfolded: for the search. */
function textsOf(row) {
  const { rec, result } = row;
  if (isStep(rec)) return textsOfStep(row).map((list) => list.filter(Boolean).map(whole));
  const shown = [rec.asked || rec.command, rec.tool, rec.name, rec.place, rec.model, rec.reason, ...(rec.calls || [])];
  const folded = [rec.reasoning, rec.sent, rec.args, rec.asked && rec.command, rec.config, rec.details, rec.diff, rec.control, rec.stdout, rec.stderr, rec.network, rec.ref];
  (rec.k === "result" || rec.k === "context" ? folded : shown).push(rec.text);
  if (result) folded.push(result.text);
  return [shown, folded].map((list) => list.filter(Boolean).map(whole));
}

/** A time as people say it. */
function time(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 100000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 7200000) return `${Math.floor(ms / 60000)} min ${Math.floor(ms / 1000) % 60} s`;
  return `${Math.floor(ms / 3600000)} h ${Math.floor(ms / 60000) % 60} min`;
}

/** A time since the beginning: 0:03.4, 12:03.4, 1:12:03.4. */
function clock(ms) {
  const tenths = Math.floor(Math.max(0, ms) / 100);
  const two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(tenths / 36000);
  const minutes = Math.floor(tenths / 600) % 60;
  const rest = `${two(Math.floor(tenths / 10) % 60)}.${tenths % 10}`;
  return hours ? `${hours}:${two(minutes)}:${rest}` : `${minutes}:${rest}`;
}

function date(ms) {
  return new Date(ms).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

function count(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function size(bytes) {
  if (bytes < 10000) return `${count(bytes)} bytes`;
  if (bytes < 1e7) return `${count(Math.round(bytes / 1000))} kB`;
  return `${count(Math.round(bytes / 1e6))} MB`;
}
