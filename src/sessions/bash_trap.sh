trap() {
    { builtin local - && builtin set +efuvx; } 2>/dev/null
    # What an exit trap does before the command's own, and how it hands on the exit status without
    # setting off an ERR trap or set -e.
    builtin local save=@EXIT@ whole quoted listed action spec others
    whole='{ _delta_status=$?; } 2>/dev/null
'$save'
( POSIXLY_CORRECT=1; \exit $_delta_status ) 2>/dev/null && </dev/null'
    others=()
    case ${1--p} in
    -[lpP]*)
        listed=$(builtin trap "${@--p}"; builtin printf x)
        listed=${listed%x}
        quoted=${save//\'/\'\\\'\'}
        listed=${listed/"trap -- '$quoted' EXIT"$'\n'/}
        quoted=${whole//\'/\'\\\'\'}
        builtin printf %s "${listed/"$quoted"$'\n'/}"
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
            *) builtin trap -- "$whole"$'\n'"$action" EXIT ;;
            esac
            ;;
        *) others+=("$spec") ;;
        esac
    done
    ((${#others[@]} == 0)) || builtin trap -- "$action" "${others[@]}"
}
