# Read by a POSIX shell before a command of a session; written anew for each.
unset -v PATH
. @DIR@/env.sh
. @DIR@/options.sh
@TRAP@
# Last: from here on a word may be an alias.
@ALIASES@
