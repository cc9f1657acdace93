#!/bin/sh
set -eu
# Serves as the model of the proposer: adds a rule for the first word that the prompt does not know yet.
request=$(cat)
prompt='You sort tickets. Answer with one word: bug or question.\n'
is_new=
for word in crash broken hang wrong; do
    upper=$(echo $word | tr '[:lower:]' '[:upper:]')
    case $request in
    *"$upper means bug"*) prompt="$prompt\\n$upper means bug." ;;
    *"$word"-*) [ "$is_new" ] || prompt="$prompt\\n$upper means bug." is_new=1 ;;
    esac
done
printf '{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"%s"}}]}\n' "$prompt"
