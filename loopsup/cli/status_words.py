"""The status object in sentences a person understands in the morning: a headline (headline.py), then a table."""

from __future__ import annotations

from datetime import tzinfo

from loopsup.cli.headline import ENDED, Status, headline, next_loop, wrapped
from loopsup.cli.heartbeat_words import heartbeat_words
from loopsup.cli.missed_words import misfire_words, missed_words
from loopsup.cli.render import (
    INDENT,
    RECOVERIES,
    fit,
    local_time,
    one_line,
    pad,
    safe,
    span,
    wait_span,
    wrap,
)
from loopsup.core.durations import show as show_duration
from loopsup.core.limits import PROTOCOL_RETRY_CEILING
from loopsup.wire.times import parse_instant

LABEL = 11  # columns of the left-hand words
ACTIVE = frozenset({"waiting", "queued", "running"})
MIN_VALUE = 20  # a value has at least these columns beside its label, else a line of its own
NARROW = 80  # below this no value is on one line by force
MAX_LINES = 4  # of a value: a status is to be taken in at a glance
LONG_ROWS = {
    "objective": MAX_LINES,
    "summary": MAX_LINES,
    "evidence": MAX_LINES,
    "because": MAX_LINES,
    "missed": 2,
    "QUESTION": 8,
}
NOT_ANSWERING = "the supervisor does not answer; this is the last state in its journal"


def describe(status: Status, now: int, width: int, zone: tzinfo | None) -> str:
    """The whole status; `now` in milliseconds since the epoch."""
    loop = status["loop"]
    rows = [("session", session_line(status["session"]))]
    if loop is None:
        rows += [*_trouble(status["session"]), ("loop", "none; `loopsup start` gives it one")]
        return _table([*rows, *_heartbeat(status, zone, now)], width)
    if _silent(status["session"]) and loop["state"] in ACTIVE:  # what it was up to; nobody promises a wake
        head = f"was {loop['state']} when it was last heard; nobody answers"
    else:
        head = headline(loop, now, zone) + next_loop(status)
    rows += [
        *_trouble(status["session"]),
        *_lost(loop, zone, now),
        ("objective", loop["objective"]),
        ("progress", _progress(loop)),
        ("time", _time(loop, zone, now)),
        ("calls", _calls(loop)),
        *_decision(loop, zone, now),
        *_attention(loop),
        *_extras(loop, zone, now),
        *_heartbeat(status, zone, now),
    ]
    return f"{wrapped(head, width)}\n{_table(rows, width)}"


def _heartbeat(status: Status, zone: tzinfo | None, now: int) -> list[tuple[str, str]]:
    found = status.get("heartbeat")
    return [] if found is None else [("heartbeat", heartbeat_words(found, now, zone))]


def session_line(session: Status) -> str:
    """Name, agent, directory and who serves it."""
    supervisor = session["supervisor"]
    if not supervisor["alive"]:
        serving = "no supervisor"
    elif not supervisor["responding"]:
        serving = "supervisor does not answer"
    else:
        clients = session.get("clients") or 0
        serving = "supervisor alive" + (f", {clients} following" if clients else "")
        serving += ", agent closed until it is needed" if session.get("parked") else ""
    pid = f" (pid {supervisor['pid']})" if supervisor["alive"] and supervisor.get("pid") else ""
    return f"{session['name']} · {session['agent']} · {serving}{pid} · {session['cwd']}"


def rhythm(loop: Status) -> str:
    """`every 10m`, or the range the agent chooses in."""
    kind = loop["rhythm"]
    if kind["kind"] == "fixed":
        return f"every {show_duration(kind['everyMs'])}"
    low, high = show_duration(kind["minDelayMs"]), show_duration(kind["maxDelayMs"])
    return f"the agent chooses the delay, {low} to {high}"


def _lost(loop: Status, zone: tzinfo | None, now: int) -> list[tuple[str, str]]:
    """When the supervisor was last seen, and what it was doing."""
    lost = loop.get("lost")
    if lost is None:
        return []
    what = f"iteration {lost['iteration']}"
    if lost["iteration"] is None:
        doing = "nothing was in flight"
    elif lost["decision"] is not None:
        doing = f"{what} had been decided: {lost['decision']}"
    elif lost["delivery"] == "accepted":
        doing = f"the agent was working on {what}, which is not repeated"
    elif lost["delivery"] == "pending":
        doing = f"a further prompt of {what} waited for its time"
    else:
        doing = f"{what} was on its way to the agent: it may have arrived, and is not sent again"
    ago = span(max(0, now - parse_instant(lost["lastSeenAt"])))
    return [
        ("LOST", f"the supervisor was last seen at {local_time(lost['lastSeenAt'], now, zone)}, {ago} ago; {doing}")
    ]


def _progress(loop: Status) -> str:
    return f"iteration {loop['iterationCount']} of {loop['maxIterations']} · {rhythm(loop)}{_misfire(loop)}"


def _misfire(loop: Status) -> str:
    """What becomes of a missed wake, where it is not the usual thing."""
    policy = loop.get("misfire", "once")
    return "" if policy == "once" else f" · a missed wake is {misfire_words(policy)}"


def _time(loop: Status, zone: tzinfo | None, now: int) -> str:
    took, allowed = span(loop["calendarElapsedMs"]), show_duration(loop["forMs"])
    if loop["state"] in ENDED:
        return f"{took} of {allowed}"
    left = loop["deadlineRemainingMs"]
    end = local_time(loop["deadlineAt"], now, zone)
    rest = f"{span(left)} left, until {end}" if left > 0 else f"none left since {end}"
    return f"{took} elapsed of {allowed} · {rest}"


def _calls(loop: Status) -> str:
    prompts, calls, retries = loop["promptsSent"], loop["llmCalls"], loop["protocolRetryCount"]
    return (
        f"{prompts} prompt{'' if prompts == 1 else 's'} sent · {calls} LLM call{'' if calls == 1 else 's'}"
        f" · {retries} of {PROTOCOL_RETRY_CEILING} reminders used"
    )


def _decision(loop: Status, zone: tzinfo | None, now: int) -> list[tuple[str, str]]:
    decision = loop.get("lastDecision")
    if decision is None:
        return [("decision", "none yet")]
    delay = decision.get("nextDelayMs")
    asked = f", next in {show_duration(delay)}" if delay is not None else ""
    at = local_time(decision["at"], now, zone)
    return [
        ("decision", f"{decision['decision']}{asked} (iteration {decision['iteration']}, {at})"),
        ("summary", decision["summary"]),
        ("evidence", decision["evidence"]),
    ]


def _attention(loop: Status) -> list[tuple[str, str]]:
    """What loopsup itself has to say about a pause; the agent's own words stand in the decision."""
    attention = loop.get("lastAttention")
    if attention is None or loop.get("pauseReason") != attention.get("status"):
        return []
    evidence = attention.get("evidence") or {}
    return [("because", str(evidence.get("text", "")))] if evidence.get("source") == "extension" else []


def _extras(loop: Status, zone: tzinfo | None, now: int) -> list[tuple[str, str]]:
    rows = []
    if missed := loop.get("lastMissed"):
        rows.append(("missed", missed_words(missed, now, zone)))
    if question := loop.get("question"):
        until = f", until {local_time(question['expiresAt'], now, zone)}" if question.get("expiresAt") else ""
        rows.append(("QUESTION", f"{question['tool']}: {question['text']}"))
        rows.append(("", f"`loopsup answer allow` or `loopsup answer deny`{until}"))
    if recovery := loop.get("recovery"):
        rows.append(("recovery", recovery_words(recovery, zone, now)))
    return rows


def recovery_words(recovery: Status, zone: tzinfo | None, now: int) -> str:
    """`usage limit, attempt 1 of 16, waits until 14:32:00, 4h10m left`."""
    of = "" if recovery.get("of") is None else f" of {recovery['of']}"
    text = f"{RECOVERIES.get(recovery['kind'], recovery['kind'])}, attempt {recovery['attempt']}{of}"
    if recovery.get("until") is not None:
        left = max(0, parse_instant(recovery["until"]) - now)
        text += f", waits until {local_time(recovery['until'], now, zone)}, {wait_span(left)} left"
    return text if recovery["mode"] == "silent" else f"{text} ({recovery['mode']})"


def _trouble(session: Status) -> list[tuple[str, str]]:
    rows = []
    if session.get("problem"):
        rows.append(("PROBLEM", str(session["problem"])))
    if _silent(session) and NOT_ANSWERING not in str(session.get("problem")):
        rows.append(("PROBLEM", NOT_ANSWERING))
    return rows


def _silent(session: Status) -> bool:
    """A supervisor lives and does not answer."""
    return bool(session["supervisor"]["alive"]) and not session["supervisor"]["responding"]


def _table(rows: list[tuple[str, str]], width: int) -> str:
    label_width = LABEL if width >= LABEL + MIN_VALUE else 0
    lines: list[str] = []
    for label, value in rows:
        most = LONG_ROWS.get(label, 1 if width >= NARROW else MAX_LINES)
        shown = _value(value, width - (label_width or len(INDENT)), most)
        if label_width:
            lines += [pad(safe(label) if n == 0 else "", LABEL) + line for n, line in enumerate(shown)]
        else:  # too narrow for two columns: the label has a line of its own
            lines += [fit(safe(label), width)] if label else []
            lines += [INDENT + line for line in shown]
    return "\n".join(lines)


def _value(value: str, room: int, most: int) -> list[str]:
    """At most that many lines; where more is left, the last says where it is."""
    if most == 1:
        return [one_line(value, room)]
    whole = one_line(value, (most + 1) * room)
    lines = wrap(whole, room)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], fit(lines[most - 1], room - 1, more=True), fit("(`--json` has all of it)", room)]
