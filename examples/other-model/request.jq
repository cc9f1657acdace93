# From chat completions: arguments are objects there, and settings have an object of their own.
{
  model,
  stream: false,
  tools: (.tools // []),
  options: ({temperature, seed, num_predict: .max_tokens} | with_entries(select(.value != null))),
  messages: [.messages[]
    | {role, content: (.content // "")}
      + if .tool_calls then
          {tool_calls: [.tool_calls[].function | {function: {name, arguments: (.arguments | fromjson)}}]}
        else {} end]
}
