set -eu
[ -x count.sh ]
[ "$(./count.sh in)" = "3 txt
2 md
1 py" ]
mkdir other
touch other/q.b other/r.a 'other/two words.a'
[ "$(./count.sh other)" = "2 a
1 b" ]
