( _delta_set=$SHELLOPTS _delta_shopt=$BASHOPTS _delta_posix=${POSIXLY_CORRECT+${POSIXLY_CORRECT@A}}
POSIXLY_CORRECT=1
\set +fxvuCTE -e
\trap - DEBUG ERR RETURN
\trap '' HUP INT TERM
\trap @SAVE@ EXIT
\eval '((0))' ) >/dev/null 2>&1
