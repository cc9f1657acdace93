set -eu
sed -i 's|^    return ordered\[middle\]|    if len(ordered) % 2 == 0:\n        return (ordered[middle - 1] + ordered[middle]) / 2\n    return ordered[middle]|' stats.py
