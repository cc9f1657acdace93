# To chat completions. Calls have no ids there; delta gives them some.
(.message.tool_calls // []) as $calls
| {
    model,
    choices: [{
      index: 0,
      finish_reason: (if .done_reason == "length" then "length" elif $calls != [] then "tool_calls" else "stop" end),
      message: {
        role: "assistant",
        content: .message.content,
        tool_calls: [$calls[].function | {type: "function", function: {name, arguments: (.arguments | tojson)}}]
      }
    }],
    usage: {prompt_tokens: .prompt_eval_count, completion_tokens: .eval_count}
  }
