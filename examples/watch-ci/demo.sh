#!/bin/sh
# `make demo`: a loop looks at a fake CI run every two seconds until it has passed, and shows each iteration.
# Everything happens in a temporary directory; nothing is left behind.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
export LOOPSUP_HOME="$work/state" LOOPSUP_CONFIG="$work/config.toml"
ci=
tidy() {
    [ -z "$ci" ] || kill "$ci" 2>/dev/null || true
    loopsup close >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap tidy EXIT
trap 'exit 130' INT TERM
: > "$LOOPSUP_CONFIG"
mkdir "$work/project"
cd "$work/project"

echo queued > ci.status
"$here/fake-ci" ci.status &
ci=$!
set -- loopsup start --agent demo --min-delay 1s --every 2s "watch the CI run; complete when it has passed" \
    -- --file ci.status
printf '$ %s\n' "loopsup start --agent demo --min-delay 1s --every 2s \"watch the CI run; complete when it has passed\" -- --file ci.status"
"$@"
printf '$ %s\n' "loopsup history"
loopsup history
