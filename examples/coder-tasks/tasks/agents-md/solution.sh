set -eu
printf '\n\ndef double(x):\n    """Twice x."""\n    return 2 * x\n' >> numbers.py
echo 'added double' >> CHANGES.txt
