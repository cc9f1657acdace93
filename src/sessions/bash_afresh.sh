# Read by bash before a command of a session whose state is damaged (BASH_ENV).
unset -v BASH_ENV DELTA_SESSION_BOOT
@TRAP@
shopt -s expand_aliases
builtin trap -- @EXIT@ EXIT
