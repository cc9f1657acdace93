# Completion of delta, delta-flow and delta-sessions for fish. The programs themselves print the candidates.

function __delta_engine
    set -l token (commandline -ct)
    set -l words (commandline -opc) $token
    # The part of --name=value before the value.
    set -l stem (string match -r -- '^--[^=]*=' "$token"; or echo)
    set -l value (string replace -- "$stem" '' "$token")
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    # Never a program of the current directory, which a clone may have brought.
    string match -q '/*' -- "$program"; or set program (command -s -- (string replace -r '^.*/' '' -- "$program"))
    string match -q '/*' -- "$program"; or return
    test -x "$program"; or return
    test (realpath (string replace -r '[^/]*$' '' -- "$program")) = (pwd -P); and return
    # As typed: commandline has removed the quotes of all words but the last.
    set -l typed (string escape -n -- $words[2..-2] | string replace -r '^\\\\~/' '~/') "$token"
    set -l lines ($program complete -- $typed 2>/dev/null </dev/null)
    set -q lines[1]; or return
    set -l own (string split -- ' ' $lines[1])
    set -e lines[1]
    printf '%s\n' $lines
    switch "$own[1]"
        case dirs
            # If a word is offered twice, fish shows the first.
            __fish_complete_directories "$value" | string replace -r '^' -- "$stem"
        case files
            __fish_complete_path "$value" | string replace -r '^' -- "$stem"
        case command
            set -l rest $words[(math $own[2] + 2)..]
            complete -C (string join ' ' -- (string escape -- $rest[1..-2]) "$token")
    end
end

for program in delta delta-flow delta-sessions
    complete -c $program -f -k -a '(__delta_engine)'
end
