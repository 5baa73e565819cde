#!/bin/sh
# Start a loop, do something else, then decide by the exit code of `loopsup wait`.
#
#   watch.sh STATUS-FILE
#
# With a real agent: leave out `--agent demo` and everything after `--`, and say in the objective what to look at.
set -eu
# Absolute, because a session works in the directory it was begun in, and one session for each file: its agent keeps
# the arguments it was first started with.
status_file=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
session=watch-$(printf '%s' "$status_file" | cksum | cut -d ' ' -f 1)

loopsup start --session "$session" --detach --agent demo --min-delay 1s --every 1s --for 10m \
    "watch $status_file; complete when it says passed, fail when it says failed" \
    -- --file "$status_file"

code=0
loopsup wait --session "$session" --timeout 15m || code=$?
case $code in
    0) echo "green: ready to merge" ;;
    10) echo "red: the run has failed" ;;
    11 | 12 | 13 | 14) echo "a person is needed: loopsup status --session $session says why" ;;
    15 | 16 | 17) echo "stopped, paused or closed before the run was over" ;;
    124) echo "still running after 15 minutes; the loop goes on" ;;
    *) echo "loopsup could not say (exit $code)" ;;
esac
exit "$code"
