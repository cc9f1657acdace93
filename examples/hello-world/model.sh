#!/bin/sh
# Serves as the model: reads a chat-completions request on stdin and prints a response. The number
# of results in the request determines the next answer.
set -eu
results=$(grep -o '"role":"tool"' | wc -l)

call() { # NAME ARGUMENTS TEXT
    printf '{"model":"model.sh","choices":[{"finish_reason":"tool_calls","message":{"role":"assistant",'
    printf '"content":"%s","tool_calls":[{"id":"call_%s","type":"function",' "$3" "$results"
    printf '"function":{"name":"%s","arguments":"%s"}}]}}],' "$1" "$2"
    printf '"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}}\n'
}

case $results in
0) call write_file '{\"filename\":\"greeting.txt\",\"content\":\"Hello, world!\\n\"}' 'I will write the greeting first.' ;;
1) call count_words '{\"filename\":\"greeting.txt\"}' 'Now I check what is in the file.' ;;
*)
    printf '{"model":"model.sh","choices":[{"finish_reason":"stop","message":{"role":"assistant",'
    printf '"content":"I wrote a greeting of two words into greeting.txt."}}],'
    printf '"usage":{"prompt_tokens":200,"completion_tokens":15,"total_tokens":215}}\n'
    ;;
esac
