set -eu
printf '1.2.2024\n29.02.2024\n29.2.2023\n31.12.1999\n31.4.2020\nfoo\n' > dates.txt
