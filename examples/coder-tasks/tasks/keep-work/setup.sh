set -eu
git init -q -b main
git config user.name Tester
git config user.email tester@example.org
printf 'You will recieve mail.\n' > README.md
printf 'one\n' > notes.txt
git add -A
git commit -qm "Begin"
printf 'one\ntwo\n' > notes.txt
echo draft > draft.txt
