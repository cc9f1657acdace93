set -eu
[ "$(./greet.sh Ann)" = 'Hello, Ann!' ]
[ "$(./greet.sh -u Ann)" = 'HELLO, ANN!' ]
! ./greet.sh 2>usage
grep -q -e -u usage
