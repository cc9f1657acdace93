set -eu
echo 'app/auth/rules.py allowed' > answer.txt
