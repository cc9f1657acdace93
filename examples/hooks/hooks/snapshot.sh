#!/bin/sh
# Commits the workspace to a repository in the run's directory, so that the workspace's own repository is
# not touched. Show the changes of an iteration: git --git-dir=.delta/RUN/snapshots.git show
set -eu
snapshots() {
    git --git-dir="$RUN_DIR/snapshots.git" --work-tree="$CWD" \
        -c user.name=delta -c user.email=delta@localhost -c commit.gpgsign=false "$@"
}
[ -d "$RUN_DIR/snapshots.git" ] || snapshots init -q
snapshots add -A
snapshots commit -q --allow-empty -m "iteration $ITERATION_COUNT"
