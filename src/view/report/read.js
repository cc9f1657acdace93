// The data as runs, groups and rows. Records are the journal's lines with facts from beside it; those whose type is in
// small letters are the page's own. A group is what happened in one iteration between two starts of the engine; a row
// is an event, or an action together with its result. Nothing here touches the page.

/** How events are called that are not about a tool, a node or a hook. */
const NAMES = {
  ENGINE_START: "start", USER_MESSAGE: "user", THOUGHT: "model", ACCEPTANCE: "accept", HUMAN_INPUT_REQUEST: "question", HUMAN_INPUT_RECEIVED: "answer",
  ERROR: "error", ENGINE_END: "end", FLOW_START: "flow", TASK_CREATED: "task", TASK_END: "task end",
};

const LANES = ["model", "tools", "hooks", "waiting"];

/** Reads the lines of the data block: one object each. */
function readData(text) {
  const stack = [];
  let whole = null;
  for (const line of text.split("\n")) {
    if (!line) continue;
    const rec = JSON.parse(line);
    if (rec.timestamp) rec.t = Date.parse(rec.timestamp);
    if (rec.type === "ACCEPTANCE") rec.tool_name = NAMES.ACCEPTANCE;
    const run = stack[stack.length - 1];
    if (rec.type === "run") {
      const child = newRun(rec, run ? parentRow(run, rec) : null);
      if (run) child.above.children.push(child);
      else whole = child;
      stack.push(child);
    } else if (rec.type === "end of run") {
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
  if (rec.type === "FLOW_START") run.isFlow = true;
  if (run.isFlow && addStep(run, rec)) return;
  if (isResult(rec)) {
    const row = run.actions.get(rec.action_id);
    if (row) {
      run.actions.delete(rec.action_id);
      row.result = rec;
      setSpan(row, "tools", row.rec.t, row.rec.t + (rec.duration_ms || 0));
      seen(run, row.group, rec.t);
      return;
    }
    if (!rec.execution_ref && isGood(rec)) return; // What a person answered has its own row.
  }
  const row = addRow(run, rec);
  const t = rec.t;
  switch (rec.type) {
    case "ENGINE_START":
      run.starts.push({ row, t, before: run.last });
      run.question = null;
      break;
    case "THOUGHT": {
      const { began, took } = rec;
      const begin = began !== undefined ? began : took !== undefined ? t - took : run.last;
      if (begin !== null) setSpan(row, "model", begin, took !== undefined ? begin + took : t);
      break;
    }
    case "asked":
      if (rec.began !== undefined) setSpan(row, "model", rec.began, rec.began + (rec.took || 0));
      break;
    case "ACTION_REQUEST":
      run.actions.set(rec.action_id, row);
      break;
    case "HOOK_EXECUTION_AUDIT":
      if (rec.took !== undefined) setSpan(row, "hooks", t - rec.took, t);
      break;
    case "HUMAN_INPUT_REQUEST":
      run.question = row;
      break;
    case "HUMAN_INPUT_RECEIVED":
      if (run.question) setSpan(run.question, "waiting", run.question.rec.t, t);
      run.question = null;
      break;
    case "live":
    case "dead":
    case "damage":
      run.note = rec.type;
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
  const number = rec.iteration !== undefined ? rec.iteration : group ? group.number : 0;
  if (run.isFlow) group = taskGroup(run, rec);
  else if (!group || rec.type === "ENGINE_START" || group.number !== number) group = newGroup(run, number);
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

/** Whether something went wrong in a row. */
function isBad(row) {
  const { rec, result } = row;
  if (isStep(rec)) return isBadStep(row);
  if (result) return !isGood(result);
  if (isResult(rec)) return !isGood(rec);
  switch (rec.type) {
    case "ENGINE_END":
      return rec.status !== "COMPLETED" && rec.status !== "WAITING_FOR_INPUT";
    case "HOOK_EXECUTION_AUDIT":
      return rec.status !== "SUCCESS" || isDenied(rec);
    case "SYSTEM_MESSAGE":
      return rec.level === "WARN" || rec.level === "ERROR";
    case "THOUGHT":
      return rec.finish_reason === "length" || rec.finish_reason === "content_filter";
    default:
      return ["ERROR", "damage", "dead", "asked"].includes(rec.type);
  }
}

/** The end of a call, or of a check of an answer, which is shown as one. */
function isResult(rec) {
  return rec.type === "ACTION_RESULT" || rec.type === "ACCEPTANCE";
}

/** Whether a call succeeded. Older engines record the exit code alone. */
function isGood(result) {
  return result.status ? result.status === "SUCCESS" : result.exit_code === 0;
}

function isDenied(rec) {
  return rec.hook_name === "pre_tool_execution" && /"(deny|abort)"|"skip"\s*:\s*true/i.test(whole(rec.control));
}

/** The words of a record: what was said, noted or went wrong; of a result, what the model was shown. */
function words(rec) {
  if (rec.type === "MODEL_CHANGED") return `${rec.from} -> ${rec.to}: ${rec.why}`;
  if (rec.type === "ACCEPTANCE") return `${rec.what || "?"}\n\n${whole(rec.content)}`.trimEnd();
  return rec.content || rec.observation_content || rec.words || rec.prompt || rec.response || rec.error_message || rec.error || rec.text || "";
}

/** The model's reasoning, by the names that services have for it. */
function reasoning(rec) {
  return ["reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks"].map((name) => rec[name]).filter(Boolean);
}

/** Whether a record is an answer whose tokens are known. */
function isCounted(rec) {
  return rec.type === "THOUGHT" && rec.usage !== undefined;
}

function tokensIn(rec) {
  return rec.usage.prompt_tokens || 0;
}

function tokensOut(rec) {
  return rec.usage.completion_tokens || 0;
}

/** What of a row is always shown, and what only when it is unfolded: for the search. */
function textsOf(row) {
  const { rec, result } = row;
  if (isStep(rec)) return textsOfStep(row).map((list) => list.filter(Boolean).map(whole));
  const command = rec.resolved_command || rec.command;
  const shown = [rec.asked || command, rec.tool_name, rec.hook_name, rec.work_dir, rec.model, rec.stop_reason, ...(rec.calls || [])];
  const folded = [...reasoning(rec), rec.sent, rec.tool_args, rec.asked && command, rec.config, rec.error_details, rec.summary, rec.diff, rec.control,
    rec.stdout, rec.stderr, rec.network, rec.execution_ref || rec.llm_invocation_ref || rec.io_path_ref || rec.ref];
  (isResult(rec) || rec.type === "context" ? folded : shown).push(words(rec));
  if (result) folded.push(words(result));
  return [shown, folded].map((list) => list.filter(Boolean).map(whole));
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
