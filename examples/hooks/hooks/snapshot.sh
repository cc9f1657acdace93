#!/bin/sh
# Commits the workspace into a repository in the run's directory, so that a repository of the workspace's
# own is not touched. To see what an iteration did: git --git-dir=.delta/RUN/snapshots.git show
set -eu
snapshots() {
    git --git-dir="$RUN_DIR/snapshots.git" --work-tree="$CWD" \
        -c user.name=delta -c user.email=delta@localhost -c commit.gpgsign=false "$@"
}
[ -d "$RUN_DIR/snapshots.git" ] || snapshots init -q
snapshots add -A
snapshots commit -q --allow-empty -m "iteration $ITERATION_COUNT"
