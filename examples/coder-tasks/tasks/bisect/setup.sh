set -eu
git init -q -b main
git config user.name Tester
git config user.email tester@example.org
for n in 1 2 3 4 5 6 7 8; do
    end=5
    [ $n -ge 6 ] && end=4
    printf '#!/bin/sh\n# version %s\nseq 1 %s | paste -sd+ | bc\n' $n $end > total.sh
    sed -i 's/| paste.*/| awk "{ s += \\$1 } END { print s }"/' total.sh
    chmod +x total.sh
    git add -A
    git commit -qm "Version $n"
done
