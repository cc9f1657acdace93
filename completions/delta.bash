# Completion of delta, delta-flow and delta-sessions for bash. The programs themselves print the candidates.
# Loaded by bash-completion, or with "source" from ~/.bashrc.

_delta_engine() {
    local program=${COMP_WORDS[0]} cursor='' own='' kind='' word about at last place
    local -a words=() starts=()
    [[ $program == "~/"* ]] && program=$HOME/${program#"~/"}
    # Never a program of the current directory, which a clone may have brought.
    [[ $program == /* ]] || program=$(type -P -- "${program##*/}")
    [[ $program == /* && ! ${program%/*}/. -ef . ]] || return 0
    # Readline splits --name=value into three words, and @name into two.
    for ((at = 1; at <= COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        last=$((${#words[@]} - 1))
        if ((last >= 0)) && [[ ${words[last]} == --* ]] &&
            { [[ $word == = ]] || [[ ${COMP_WORDS[at - 1]} == = ]]; }; then
            words[last]+=$word
        elif ((last >= 0)) && [[ ${words[last]} == @ ]]; then
            words[last]+=$word
        else
            words+=("$word")
            starts+=("$at")
        fi
    done
    cursor=${COMP_WORDS[COMP_CWORD]}
    [[ $cursor == = ]] && cursor=''
    # Readline replaces what follows the "=", and the "@" with what follows it.
    ((COMP_CWORD > 0)) && [[ ${COMP_WORDS[COMP_CWORD - 1]} == @ ]] && cursor=@$cursor
    local stem=${words[${#words[@]} - 1]}
    stem=${stem%"$cursor"}

    COMPREPLY=()
    {
        IFS= read -r own || return 0
        while IFS=$'\t' read -r word about; do
            word=${word#"$stem"}
            # Readline quotes the names of files itself.
            [[ $own == dirs || $own == files ]] || printf -v word %q "$word"
            [[ $word == "$cursor"* ]] && COMPREPLY+=("$word")
        done
    } < <("$program" complete -- "${words[@]}" 2> /dev/null < /dev/null)

    compopt -o nosort 2> /dev/null
    kind=${own%% *}
    case $kind in
    dirs)
        compopt -o filenames 2> /dev/null
        # Readline adds the slash. A parent of a known directory would block the completion of that
        # directory.
        local -a known=("${COMPREPLY[@]%/}")
        COMPREPLY=("${known[@]}")
        while IFS= read -r word; do
            for place in "${known[@]}"; do
                [[ $place/ == "$word"/* ]] && continue 2
            done
            COMPREPLY+=("$word")
        done < <(compgen -d -- "$cursor")
        ;;
    files)
        compopt -o filenames 2> /dev/null
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$cursor")
        ;;
    command)
        at=${starts[${own#command }]}
        if declare -F _command_offset > /dev/null; then
            _command_offset "$at"
        elif ((at == COMP_CWORD)); then
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -c -- "$cursor")
        else
            compopt -o filenames 2> /dev/null
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$cursor")
        fi
        ;;
    esac
}

complete -F _delta_engine delta delta-flow delta-sessions
