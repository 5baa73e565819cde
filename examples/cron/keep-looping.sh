#!/bin/sh
# Called by cron: makes sure that a loop is on its objective in this directory. Safe to call as often as you like.
#
# Quiet while all is well, because cron mails whatever is printed: it prints when a loop waits for a person.
# cron's PATH is short; LOOPSUP may name the program.
set -eu
LOOPSUP=${LOOPSUP:-loopsup}
SESSION=${SESSION:-nightly}
EVERY=${EVERY:-10m}
MIN_DELAY=${MIN_DELAY:-1m}

code=0
said=$("$LOOPSUP" start --session "$SESSION" --agent demo --detach --min-delay "$MIN_DELAY" --every "$EVERY" \
    "watch the nightly build; complete when it has passed" \
    -- --file nightly.status 2>&1) || code=$?
case $code in
    0) exit 0 ;;
    4) ;; # refused: there is a loop already, active or paused
    *) printf '%s\n' "$said" >&2; exit "$code" ;;
esac

# `wait` returns at once where the loop needs a person, and runs into the time-out where it is at work.
code=0
"$LOOPSUP" wait --session "$SESSION" --timeout 1s >/dev/null 2>&1 || code=$?
case $code in
    0 | 124) exit 0 ;;
    *) "$LOOPSUP" status --session "$SESSION" >&2 || true; exit "$code" ;;
esac
