# The lines of `delta run --format jsonl`, and what `delta stats --format json` prints afterwards, as those of
# `claude -p --output-format stream-json`. Needs jq 1.6; run with -nc --unbuffered --arg version VERSION.

def digits: "0123456789abcdef";
def hex($width): . as $n | reduce range($width) as $_ ({n: $n, text: ""};
  (.n % 16) as $digit | {n: ((.n - $digit) / 16), text: (digits[$digit:$digit + 1] + .text)}) | .text;
def hash($seed): reduce explode[] as $c ($seed; (. * 31 + $c) % 4294967296);

# The same run and the same place give the same id.
def uuid($place):
  "\(.run):\($place)" as $text
  | [5381, 52711, 648391, 174440041] | map(. as $seed | $text | hash($seed) | hex(8))
  | "\(.[0])-\(.[1][:4])-4\(.[1][5:])-8\(.[2][1:4])-\(.[2][4:])\(.[3])";

def say($place; $line): .out += [$line + {session_id: .run, uuid: uuid($place)}];

def usage($input; $output): {
  input_tokens: $input, output_tokens: $output, cache_creation_input_tokens: 0, cache_read_input_tokens: 0,
  cache_creation: null, server_tool_use: null, service_tier: null, inference_geo: null, iterations: null, speed: null,
  output_tokens_details: null, fallback_credit: null
};

# A turn's: what is unknown must not be null there.
def turn_usage: usage(.input; .output) + {
  cache_creation: {ephemeral_1h_input_tokens: 0, ephemeral_5m_input_tokens: 0},
  server_tool_use: {web_search_requests: 0, web_fetch_requests: 0}, service_tier: "standard", inference_geo: "",
  iterations: [], speed: "standard", output_tokens_details: {thinking_tokens: 0}
};

def begin($config):
  if .has_begun then . else
    .has_begun = true
    | .model = ($config.llm.model // "")
    | .limits = {contextWindow: ($config.llm.window // 0), maxOutputTokens: ($config.llm.max_tokens // 0)}
    | .max_retries = ($config.llm.max_retries // 0)
    | .has_schema = ($config.output_schema != null)
    | say("init-\(.seq)"; {
        type: "system", subtype: "init", apiKeySource: "none", claude_code_version: "0.0.0 (delta \($version))",
        cwd: .cwd, tools: [$config.tools[]?.name], mcp_servers: [], model: .model, permissionMode: "default",
        slash_commands: [], output_style: "default", skills: [], plugins: [], capabilities: []
      })
  end;

# An object, whatever the model has sent.
def object: (if type == "string" then (try fromjson catch {}) else . end) | if type == "object" then . else {} end;

def thought($event):
  [$event.tool_calls[]? | {type: "tool_use", id, name: .function.name, input: (.function.arguments | object)}] as $calls
  | [$event.wire.items[]? | select(.type? == "thinking" and .signature?) | {type, thinking, signature}] as $thinking
  | [$event.content | strings | select(. != "") | {type: "text", text: ., citations: null}] as $text
  | ({length: "max_tokens", content_filter: "refusal"}[$event.finish_reason // ""]
      // (if $calls == [] then "end_turn" else "tool_use" end)) as $stop
  | ($event.usage.prompt_tokens // 0) as $input
  | ($event.usage.completion_tokens // 0) as $output
  | .input += $input | .output += $output | .stop = $stop
  | reduce $calls[] as $call (.; .calls[$call.id] = $call)
  | say($event.seq; {
      type: "assistant", parent_tool_use_id: null, message: {
        id: "msg_\($event.seq)", type: "message", role: "assistant", model: ($event.model // .model),
        content: ($thinking + $text + $calls), stop_reason: $stop, stop_sequence: null, stop_details: null,
        usage: usage($input; $output), container: null, context_management: null, diagnostics: null
      }
    });

def ended($event):
  ($event.observation_content // "") as $text
  | (if $event.status == "ERROR" and ($text | startswith("denied: ")) then
       {tool_name: $event.tool_name, tool_use_id: $event.action_id} as $call
       | .denials += [$call + {tool_input: (.calls[$event.action_id].input // {})}]
       | say("\($event.seq)-denied"; {type: "system", subtype: "permission_denied", message: $text} + $call)
     else . end)
  | say($event.seq; {
      type: "user", parent_tool_use_id: null, message: {
        role: "user", content: [
          {type: "tool_result", tool_use_id: $event.action_id, content: $text, is_error: ($event.status != "SUCCESS")}
        ]
      }
    });

def failure($event):
  ($event.stop_reason // "") as $reason
  | if $reason | IN("max_iterations", "no_progress") then ["error_max_turns", "max_turns"]
    elif $reason | IN("budget", "tokens") then ["error_max_budget_usd", "budget_exhausted"]
    elif $reason == "not_accepted" and .has_schema then
      ["error_max_structured_output_retries", "structured_output_retry_exhausted"]
    elif $reason == "context_full" then ["error_during_execution", "prompt_too_long"]
    elif $reason == "deferred" then ["error_during_execution", "tool_deferred"]
    elif $reason | startswith("model_") then ["error_during_execution", "api_error"]
    else ["error_during_execution", null] end;

def question($event):
  "\($event.interaction.prompt // "")\n\nanswer with: " + (
    ["delta", "continue", "-w", $event.metadata.workspace_path, "--run-id", $event.run_id,
      "--question", $event.interaction.request_id, "-m", "ANSWER"] | map(strings) | @sh);

# Costs, and tokens of a model, are those of all turns.
def result($event; $stats):
  begin({})
  | ($stats.spent.cost // $stats.cost // 0) as $cost
  | ($stats.cached_tokens // 0) as $cached
  | (if $event.status == "COMPLETED" then
       {subtype: "success", is_error: false, result: $event.result, stop_reason: "end_turn", terminal_reason: "completed"}
       + (if .has_schema then {structured_output: ($event.result | try fromjson catch .)} else {} end)
     else
       failure($event) as [$subtype, $reason]
       | {
           subtype: $subtype, is_error: true, stop_reason: .stop,
           errors: [$event.error.message // question($event)]
         } + (if $reason then {terminal_reason: $reason} else {} end)
     end) as $ending
  | say("result-\(.seq)"; {
      type: "result", duration_ms: ($event.metrics.duration_ms // 0), duration_api_ms: 0,
      num_turns: ($event.metrics.iterations // 0), total_cost_usd: $cost, usage: turn_usage,
      modelUsage: {(.model): ({
        inputTokens: (($stats.tokens.prompt_tokens // .input) - $cached),
        outputTokens: ($stats.tokens.completion_tokens // .output),
        cacheReadInputTokens: $cached, cacheCreationInputTokens: 0, webSearchRequests: 0, costUSD: $cost
      } + .limits)},
      permission_denials: .denials
    } + $ending);

def note($event; $text; $level):
  say($event.seq; {type: "system", subtype: "informational", content: $text, level: $level});

# A higher attempt makes the text of the earlier ones void.
def delta($event):
  (if $event.iteration == .iteration then .attempt else 1 end) as $before
  | .iteration = $event.iteration | .attempt = $event.attempt | .deltas += 1
  | (if $event.attempt > $before then
       say("retry-\(.seq)-\(.deltas)"; {
         type: "system", subtype: "api_retry", attempt: ($event.attempt - 1), max_retries: .max_retries,
         retry_delay_ms: 0, error_status: null, error: "unknown"
       })
     else . end)
  | say("delta-\(.seq)-\(.deltas)"; {
      type: "stream_event", parent_tool_use_id: null,
      event: {type: "content_block_delta", index: 0, delta: {type: "text_delta", text: $event.text}}
    });

def step($event):
  .out = []
  | ($event.type? // "") as $type
  | (if ($event.seq? // null) then .seq = $event.seq else . end)
  | if $type == "delta" then .run = ($event.run_id // "") | .cwd = ($event.workspace // "")
    elif $type == "ENGINE_START" then begin($event.config)
    elif $type == "THOUGHT" then thought($event)
    elif $type == "ACTION_RESULT" then ended($event)
    elif $type == "USER_MESSAGE" and $event.source? == "inbox" then
      say($event.seq; {
        type: "user", parent_tool_use_id: null, isReplay: true, message: {role: "user", content: $event.content}
      })
    elif $type == "COMPACTION" then
      say($event.seq; {
        type: "system", subtype: "compact_boundary", compact_metadata: {
          trigger: (if $event.reason == "asked" then "manual" else "auto" end),
          pre_tokens: $event.tokens_before, post_tokens: $event.tokens_after
        }
      })
    elif $type == "SYSTEM_MESSAGE" then
      note($event; $event.content; if $event.level == "WARN" then "warning" else "info" end)
    elif $type == "TEXT_DELTA" then delta($event)
    elif $type == "result" then .result = $event
    elif $event == "end" then if .result then result(.result; .stats) else . end
    elif ($event | type) == "array" then .stats = $event[0]
    else . end;

{
  run: "", cwd: "", seq: 0, deltas: 0, iteration: 0, attempt: 1, max_retries: 0, has_begun: false, has_schema: false,
  model: "", calls: {}, denials: [], input: 0, output: 0, stop: null, limits: {contextWindow: 0, maxOutputTokens: 0},
  result: null, stats: {}
} as $state
| foreach (inputs, "end") as $event ($state; step($event); .out[])
