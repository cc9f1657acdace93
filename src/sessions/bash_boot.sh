# Read by bash before a command of a session (BASH_ENV); written anew for each.
# What bash gives a new shell by itself must not outlive an unset in the session.
unset -v BASH_ENV DELTA_SESSION_BOOT POSIXLY_CORRECT
unset -v HOME PATH TERM SHELL SHLVL HOSTNAME HOSTTYPE MACHTYPE OSTYPE OPTERR OLDPWD PS4 IFS
@TRAP@
{ . @DIR@/env.sh @DIR@/functions.sh @EXIT@ ${BASHOPTS//:/ }; } 2>/dev/null
@POSIX_TRAP@
