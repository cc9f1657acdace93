trap() {
    { builtin local - && builtin set +efuvx; } 2>/dev/null
    # The state is saved before and after the action of an exit trap: the action may end halfway. It
    # gets the exit status, without setting off an ERR trap or set -e, and an `exit` that saves.
    builtin local save=@EXIT@ before after quoted listed action spec others
    before='{ _delta_status=$? _delta_trap=1; } 2>/dev/null
'$save'
{ _delta_trap=; [[ -o posix ]] || builtin declare -F exit || function exit {
    { [[ $BASHPID != "$$" ]] || '$save'; } 2>/dev/null
    builtin exit "$@"
}; } >/dev/null 2>&1
( POSIXLY_CORRECT=1; \exit $_delta_status ) 2>/dev/null && </dev/null'
    after=$'\n\n'$save
    others=()
    case ${1--p} in
    -[lpP]*)
        listed=$(builtin trap "$@"; builtin printf x)
        listed=${listed%x}
        quoted=${save//\'/\'\\\'\'}
        listed=${listed/"trap -- '$quoted' EXIT"$'\n'/}
        quoted=${before//\'/\'\\\'\'}
        listed=${listed/"$quoted"$'\n'/}
        quoted=${after//\'/\'\\\'\'}
        builtin printf %s "${listed/"$quoted"/}"
        builtin return
        ;;
    --) builtin shift ;;
    esac
    if [[ $BASHPID != "$$" ]]; then
        builtin trap -- "$@"
        builtin return
    fi
    action=-
    if (($# > 1)) && [[ ! $1 =~ ^[0-9]+$ ]]; then
        action=$1
        builtin shift
    fi
    for spec; do
        case $spec in
        0 | [Ee][Xx][Ii][Tt] | [Ss][Ii][Gg][Ee][Xx][Ii][Tt])
            case $action in
            - | '') builtin trap -- "$save" EXIT ;;
            *) builtin trap -- "$before"$'\n'"$action$after" EXIT ;;
            esac
            ;;
        *) others+=("$spec") ;;
        esac
    done
    ((${#others[@]} == 0)) || builtin trap -- "$action" "${others[@]}"
}
