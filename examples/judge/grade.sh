#!/bin/sh
# Gives a trial to the agent judge/, and prints the object that it answers with: pass, scores, reason. What the judge did
# is in judged/, beside eval/, under the name of the trial.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec delta run -q -a "$here/judge" -w "../../../judged/${PWD##*/}" -m -
