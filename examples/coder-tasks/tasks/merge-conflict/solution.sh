set -eu
printf 'name=demo\nport=443\nhost=example.org\nlog=off\n' > app.conf
git add app.conf
git commit -qm 'Merge tls'
