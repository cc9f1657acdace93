# Completion of delta and delta-sessions for fish. The programs themselves tell what could come next.

function __delta_engine
    set -l token (commandline -ct)
    set -l words (commandline -opc) $token
    # What stands before the value in --name=value.
    set -l stem (string match -r -- '^--[^=]*=' "$token"; or echo)
    set -l value (string replace -- "$stem" '' "$token")
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    type -q -- "$program"; or return
    $program complete -- $words[2..] 2>/dev/null </dev/null | begin
        read -l own argument
        cat
        switch "$own"
            case dirs
                __fish_complete_directories "$value" | string replace -r '^' -- "$stem"
            case files
                __fish_complete_path "$value" | string replace -r '^' -- "$stem"
            case command
                set -l rest $words[(math $argument + 2)..]
                complete -C (string join ' ' -- (string escape -- $rest[1..-2]) "$token")
        end
    end
end

complete -c delta -f -k -a '(__delta_engine)'
complete -c delta-sessions -f -k -a '(__delta_engine)'
