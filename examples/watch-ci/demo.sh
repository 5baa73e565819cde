#!/bin/sh
# `make demo`: a loop looks at a fake CI run every two seconds until it has passed, and shows each iteration.
# Everything happens in a temporary directory; nothing is left behind.
set -eu
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

looks() { # how often the agent has looked so far: its iterations that are over
    cat "$LOOPSUP_HOME"/sessions/*/events.jsonl 2>/dev/null | grep -c '"from":"running"' || true
}
# Not by the clock, as `fake-ci`: each state stays until it was seen, so that a slow machine shows as many iterations.
ci_run() {
    seen=0
    for state in "running: build" "running: test" passed; do
        seen=$((seen + 1))
        until [ "$(looks)" -ge "$seen" ]; do sleep 0.2; done
        printf '%s\n' "$state" > ci.status.new
        mv ci.status.new ci.status
    done
}

echo "running: checkout" > ci.status
ci_run &
ci=$!
set -- loopsup start --agent demo --min-delay 1s --every 2s "watch the CI run; complete when it has passed" \
    -- --file ci.status
printf '$ %s\n' "loopsup start --agent demo --min-delay 1s --every 2s \"watch the CI run; complete when it has passed\" -- --file ci.status"
"$@"
printf '$ %s\n' "loopsup history"
loopsup history
