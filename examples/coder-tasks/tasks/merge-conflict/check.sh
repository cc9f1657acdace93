set -eu
! grep -q '<<<<\|>>>>\|====' app.conf
grep -qx port=443 app.conf
grep -qx host=example.org app.conf
! grep -qx port=80 app.conf
[ ! -e .git/MERGE_HEAD ]
[ "$(git rev-list --parents -n 1 HEAD | wc -w)" -eq 3 ]
[ -z "$(git status --porcelain --untracked-files=no)" ]
