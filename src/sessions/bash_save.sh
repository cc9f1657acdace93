# Run in a subshell when a bash of a session ends: writes its state into next/.
#
# The command may have redefined every name as a function or an alias. bash_exit.sh has switched
# POSIX mode on, where special builtins are found before functions, and has left all functions by
# failing under set -e, so that their local variables are out of sight. A backslash keeps a word
# from being an alias.
\set +e
\export -nf builtin && _delta_late=$(\unset -f declare; \declare -f builtin)
\unset -f builtin
\unset -v POSIXLY_CORRECT
\builtin shopt -u expand_aliases
# From here on `builtin` is the builtin, and nothing is an alias.
@OURS@
builtin pwd >|@DIR@/next/work_dir.txt || builtin exit 0
builtin declare -F declare && _delta_late+=$'\n'$(builtin declare -f declare)
builtin unset -f declare
{
    builtin declare -f
    builtin declare -Fx
    builtin declare -Fr
    builtin declare -Ft
    builtin printf '%s\n' '# end of functions'
} >|@DIR@/next/functions.sh
builtin set -- "$_delta_set" "$_delta_shopt" "$_delta_posix" "${_delta_late-}" "${_delta_trap:+@UNFINISHED@}"
builtin unset -v _delta_status _delta_trap _delta_set _delta_shopt _delta_posix _delta_late
# What every bash makes for itself; the readonly ones stay and are refused in silence.
builtin unset -v BASH BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND \
    BASH_EXECUTION_STRING BASH_LINENO BASH_MONOSECONDS BASH_SOURCE BASH_SUBSHELL BASH_TRAPSIG \
    BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS FUNCNAME GROUPS \
    HISTCMD LINENO PIPESTATUS PWD RANDOM SECONDS SRANDOM _
# What each exec brings along, and what is never written down.
builtin unset -v @FOREIGN@ @KEYS@
[[ @SET_KEYS@ ]] && builtin exit 0
{
    builtin declare -p
    builtin alias -p
    # $1: the functions, $2: the exit trap, then the options that a new bash has. It is one compound
    # so that all of it is read before any of it can change how the rest is read. A bash that begins
    # with extdebug looks for a debugger.
    builtin printf '%s\n' 'if [[ ${2-} ]]; then' 'builtin shopt -s extglob' 'builtin . "$1"'
    builtin printf 'builtin '
    builtin umask -p
    builtin printf '%s\n' 'builtin trap -- "$2" EXIT' 'builtin shopt -u extglob "${@:3}"' \
        "builtin shopt -s ${2//:/ }" 'builtin shopt -u extdebug' \
        "builtin set +o braceexpand +o hashall +o interactive-comments ${1:+-o ${1//:/ -o }}" "$4"
    [[ $3 ]] && builtin printf 'POSIXLY_CORRECT=%s\n' "${3#*=}"
    [[ $3 == declare* ]] && builtin printf '%s\n' '\export POSIXLY_CORRECT'
    builtin printf '%s\n' fi "# end of bash state$5"
} >|@DIR@/next/env.sh
builtin exit 0
