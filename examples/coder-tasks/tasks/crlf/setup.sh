set -eu
printf '[client]\r\ntimeout = 10\r\n\r\n[server]\r\ntimeout = 10\r\nname = a\r\n' > legacy.ini
