set -eu
sed -i '/"mail"/,/}/s/"retries": 3/"retries": 5/' settings.py
