# Called through an alias: special builtins are found before functions.
_delta_exit_trap() {
    [ "${1-}" != -- ] || shift
    IFS=' ' read -r _delta_pid _delta_rest </proc/self/stat
    # A subshell has no state to save.
    case $_delta_pid-$#${1-} in
    "$$"-0 | "$$"-1-*) \trap "$@"; return ;;
    "$$"-*) ;;
    *) \trap -- "$@"; return ;;
    esac
    _delta_action=-
    case $1 in
    *[!0-9]* | '') [ $# -eq 1 ] || { _delta_action=$1 && shift; } ;;
    esac
    for _delta_spec; do
        case $_delta_spec/$_delta_action in
        0/- | 0/ | [Ee][Xx][Ii][Tt]/- | [Ee][Xx][Ii][Tt]/) \trap @EXIT@ EXIT ;;
        0/* | [Ee][Xx][Ii][Tt]/*) \trap -- @BEFORE@"
$_delta_action

"@AFTER@ EXIT ;;
        *) \trap -- "$_delta_action" "$_delta_spec" ;;
        esac
    done
}
\alias trap=_delta_exit_trap
