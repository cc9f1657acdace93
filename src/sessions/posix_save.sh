# Run in a subshell when a POSIX shell of a session ends: writes its state into next/.
#
# `command` passes functions by and keeps a failure from ending the shell; a function named
# `command` is removed first. A backslash keeps a word from being an alias.
_delta_status=${_delta_status-$?}
\set +o >|@DIR@/next/options.sh
\set +efuxC
\unset -f command
\command alias >|@DIR@/next/aliases.txt
\command unalias -a
command pwd >|@DIR@/next/work_dir.txt
set -- "$_delta_status" "${_delta_trap:+@UNFINISHED@}"
command unset -v _delta_status _delta_trap _delta_pid _delta_rest _delta_action _delta_spec _ PPID LINENO PWD @FOREIGN@ @KEYS@
[ "@SET_KEYS@" ] && exit "$1"
{
    command printf '# The state of a shell; any POSIX shell reads it.\n'
    # Other shells' `set` names variables that cannot be set.
    case ${BASH_VERSION-}${KSH_VERSION-}${ZSH_VERSION-} in
    '') set && readonly -p ;;
    *) : >|@DIR@/next/aliases.txt ;;
    esac
    export -p
    command printf 'umask '
    command umask
    command printf '# end of sh state%s\n' "$2"
} >|@DIR@/next/env.sh
exit "$1"
