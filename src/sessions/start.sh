# Read by a shell once, when its session is started: from bash 4.4 on everything is kept, of other
# shells what POSIX can tell.
case ${BASH_VERSION-} in
'' | [123].* | 4.[0123].*) trap @POSIX@ EXIT ;;
*)
    shopt -s expand_aliases
    trap @EXIT@ EXIT
    ;;
esac
