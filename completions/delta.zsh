#compdef delta delta-flow delta-sessions
# Completion of delta, delta-flow and delta-sessions for zsh. The programs themselves print the candidates.
# Install as _delta in a directory of $fpath, or load with "source" from ~/.zshrc after compinit.

_delta_engine() {
    local program=${(Q)words[1]} own line word
    local -a lines choices places known
    [[ $program == '~/'* ]] && program=$HOME/${program#'~/'}
    # Never a program of the current directory, which a clone may have brought.
    [[ $program == /* ]] || program=$(whence -p -- ${program:t})
    [[ $program == /* && ! ${program:h}/. -ef . ]] || return 1
    lines=("${(@f)$("$program" complete -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2> /dev/null < /dev/null; print x)}")
    own=$lines[1]
    for line in "${(@)lines[2,-2]}"; do
        word=${line%%$'\t'*}
        if [[ $own == dirs && $word == */ ]]; then
            places+=("${word//:/\\:}:${line#*$'\t'}")
            known+=("${(b)${word#--*=}%/}")
        else
            choices+=("${word//:/\\:}:${line#*$'\t'}")
        fi
    done
    local found=1
    if (( $#places )); then
        _describe -V 'workspace' places -S '' && found=0
    fi
    if (( $#choices )); then
        _describe -V 'delta' choices && found=0
    fi
    case ${own%% *} in
    dirs)
        compset -P '--*='
        _path_files -/ -F known && found=0
        ;;
    files)
        compset -P '--*='
        _files && found=0
        ;;
    command)
        local skip=$(( ${own#command } + 1 ))
        shift $skip words
        (( CURRENT -= skip ))
        _normal && found=0
        ;;
    esac
    return found
}

if [[ $zsh_eval_context[-1] == file ]]; then
    # Loaded with "source".
    compdef _delta_engine delta delta-flow delta-sessions
else
    _delta_engine "$@"
fi
