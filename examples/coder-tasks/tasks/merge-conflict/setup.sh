set -eu
git init -q -b main
git config user.name Tester
git config user.email tester@example.org
printf 'name=demo\nport=80\nlog=off\n' > app.conf
git add -A
git commit -qm "Begin"
git checkout -qb tls
printf 'name=demo\nport=443\nlog=off\n' > app.conf
git commit -qam 'Use TLS'
git checkout -q main
printf 'name=demo\nport=80\nhost=example.org\nlog=off\n' > app.conf
git commit -qam 'Name the host'
git merge -q tls >/dev/null 2>&1 || :
