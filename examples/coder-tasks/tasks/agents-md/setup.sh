set -eu
echo 'Every function has a docstring. Every new function is listed in CHANGES.txt as "added NAME".' > AGENTS.md
printf 'def half(x):\n    """Half of x."""\n    return x / 2\n' > numbers_.py
mv numbers_.py numbers.py
echo 'added half' > CHANGES.txt
