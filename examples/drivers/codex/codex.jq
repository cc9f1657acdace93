# The lines of `delta run --format jsonl`, after those that the run has recorded before, and what `delta stats
# --format json` prints afterwards, as the events of `codex exec --json`. Needs jq 1.6; run with -nc --unbuffered.

def item($item): .out += [{type: "item.completed", item: ({id: "item_\(.n)"} + $item)}] | .n += 1;
def note($text): item({type: "error", message: ($text // "")});

# The server and the tool of a tool that `delta mcp import` has made.
def of_server($name):
  [.tools[]? | select(.name == $name) | .command? // empty | select(type == "array" and .[0:3] == ["delta", "mcp", "call"])]
  | first | if . == null then null else {server: .[3], tool: .[4]} end;

def call($event):
  of_server($event.tool_name) as $of_server
  | if $of_server then
      {type: "mcp_tool_call", arguments: $event.tool_args} + $of_server
    else
      {type: "command_execution", command: ($event.resolved_command // $event.tool_name), aggregated_output: ""}
    end;

def started($event):
  .out += [{type: "item.started", item: ({id: "item_\(.n)"} + call($event) + {status: "in_progress"})}]
  | .calls[$event.action_id] = {id: "item_\(.n)", item: call($event), args: ($event.tool_args // {})}
  | .n += 1;

def ended($event):
  (if .calls[$event.action_id] then . else started($event) | .out = .out[:-1] end)
  | .calls[$event.action_id] as $call
  | ($event.observation_content // "") as $text
  | ($event.status == "SUCCESS") as $good
  | (if $good then "completed" else "failed" end) as $status
  | (if $call.item.type == "mcp_tool_call" then
       if $good then {result: {content: [{type: "text", text: $text}], structured_content: null}}
       else {error: {message: $text}} end
     else
       {aggregated_output: $text} + (if $event.exit_code == null then {} else {exit_code: $event.exit_code} end)
     end) as $result
  | .out += [{type: "item.completed", item: ({id: $call.id} + $call.item + $result + {status: $status})}]
  | if $good and ($event.tool_name | IN("write", "edit")) and ($call.args.path | type) == "string" then
      (if $text | startswith("created ") then "add" else "update" end) as $kind
      | item({type: "file_change", changes: [{path: $call.args.path, kind: $kind}], status: "completed"})
    else . end;

def usage($usage):
  .usage.input_tokens += ($usage.prompt_tokens // 0) | .usage.output_tokens += ($usage.completion_tokens // 0);

# The answer is the last message, also where the run has accepted a part of the text.
def answered($result):
  if .said == $result then . else item({type: "agent_message", text: $result}) end;

def result($event):
  if $event.run_id == null then .out += [{type: "error", message: ($event.error.message // "")}] | .failed = true
  elif $event.status == "COMPLETED" then
    answered($event.result)
    | .out += [{type: "turn.completed", usage: (.usage + {cached_input_tokens: (.stats.cached_tokens // 0)})}]
  else
    .out += [{type: "turn.failed", error: {message: ($event.error.message // $event.interaction.prompt // "")}}]
  end;

def step($event):
  .out = []
  | ($event.type? // "") as $type
  | if $type == "delta" then
      .is_live = true
      | if $event.run_id then
          .out += [{type: "thread.started", thread_id: $event.run_id}, {type: "turn.started"}]
        else . end
    elif $type == "ENGINE_START" then .tools = ($event.config.tools? // [])
    elif $type == "THOUGHT" then
      ([$event.reasoning_content, $event.reasoning] | map(strings | select(. != "")) | first) as $reasoning
      | (if $reasoning then item({type: "reasoning", text: $reasoning}) else . end)
      | (if ($event.content // "") != "" then item({type: "agent_message", text: $event.content}) else . end)
      | .said = $event.content
      | usage($event.usage // {})
    elif $type == "ACTION_REQUEST" then started($event)
    elif $type == "ACTION_RESULT" then ended($event)
    elif $type == "SYSTEM_MESSAGE" and $event.level == "WARN" then note($event.content)
    elif $type == "MODEL_CHANGED" then note("\($event.to) is asked instead of \($event.from): \($event.why)")
    elif $type == "COMPACTION" then note("the conversation is shortened (\($event.tokens_before) -> \($event.tokens_after) tokens)")
    elif $type == "ACTION_DEFERRED" then note("\($event.handle) ends later")
    elif $type == "HUMAN_INPUT_REQUEST" then note($event.prompt)
    elif $type == "result" then .result = $event
    elif $event == "end" then if .result then result(.result) else . end
    elif ($event | type) == "array" then .stats = $event[0]
    else . end;

{
  n: 0, is_live: false, calls: {}, tools: [], said: null, result: null, stats: {},
  usage: {
    input_tokens: 0, cached_input_tokens: 0, cache_write_input_tokens: 0, output_tokens: 0, reasoning_output_tokens: 0
  }
} as $state
| foreach (inputs, "end") as $event ($state; step($event);
    (select(.is_live) | .out[]), (select(.failed) | "" | halt_error(1)))
