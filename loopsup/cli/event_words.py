"""Events in words: what a person sees of a conversation in `attach`, `logs` and a following `start`.

Lines of ours begin in the first column, everything the agent said or did is indented. An attention event
is the loudest thing on the screen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from loopsup.cli.missed_words import missed_words
from loopsup.cli.render import INDENT, RECOVERIES, indent, local_time, one_line, safe, span, wrap
from loopsup.core.reasons import short
from loopsup.wire import events as ev
from loopsup.wire.times import parse_instant

MAX_HOOK_LINES = 5  # of a failed hook's stderr: the last ones say why
CAUSES = {  # what happened, as the journal names it, in words
    "start": "you started it",
    "pause": "you paused it",
    "resume": "you resumed it",
    "stop": "you stopped it",
    "update": "you changed its limits",
    "close": "the session closes",
    "ticked": "the time has come",
    "handover_refused": "the agent did not take the message",
    "decision_called": "the agent has decided",
    "iteration_settled": "the iteration has ended",
    "agent_lost": "the agent ended",
    "agent_start_failed": "the agent could not be started",
    "conversation_forking": "the conversation divides",
    "branch_moved": "the conversation moved to another branch",
    "opened": "the session was opened again",
}
NEEDS_YOU = frozenset({"blocked", "duration_limit", "iteration_limit", "protocol_error"})

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Page:
    """What the words depend on beside the event."""

    max_iterations: int | None
    width: int
    zone: tzinfo | None


def describe(event: Event, max_iterations: int | None, width: int, zone: tzinfo | None) -> str | None:
    """The words for `event`, None where there are none. A malformed event is shown as such."""
    words = _WORDS.get(str(event.get("type")))
    if words is None:
        return None
    try:
        text = words(event, event["data"], _Page(max_iterations, width, zone))
    except (KeyError, TypeError, ValueError, AttributeError):
        return f"(an event that cannot be read: {one_line(json.dumps(event), width - 31)})"
    if text is not None and event.get("agentId") is not None:
        return f"{INDENT}[sub-agent] {one_line(text, width - 14)}"
    return None if text is None else "\n".join(line for part in text.split("\n") for line in _fitted(part, width))


def _fitted(line: str, width: int) -> list[str]:
    """Our own lines are broken to the width; what the agent said stays as it is."""
    return [line] if line.startswith(INDENT) else wrap(line, width, after=INDENT)


def colour_of(event: Event) -> str | None:
    """The colour of an event's words, None for plain."""
    kind, data = event.get("type"), event.get("data") or {}
    if kind == ev.LOOP_ATTENTION:
        return {"completed": "green", "failed": "red"}.get(str(data.get("status")), "yellow")
    if kind in (ev.SESSION_ERROR, ev.ABORT) or (kind == ev.LOOP_HOOK and _hook_failed(data)):
        return "red"
    if kind == ev.USER_MESSAGE:
        return "bold"
    if kind in (ev.PERMISSION_REQUESTED, ev.TTSR_TRIGGERED):
        return "yellow"
    return None if kind == ev.ASSISTANT_MESSAGE else "dim"


def _user_message(event: Event, data: Event, page: _Page) -> str:
    origin, at = data["origin"], _time(event, page)
    number = event.get("iteration", "?")
    if origin == "loop":
        of = "" if page.max_iterations is None else f" of {page.max_iterations}"
        return f"── iteration {number}{of} · {at} ──"
    if origin == "protocol":
        return f"── reminder: iteration {number} has no valid decision yet · {at} ──"
    who = {"user": "you", "ttsr": "a stream rule", "autopilot": "autopilot"}.get(str(origin), str(origin))
    return f"── {safe(who)} · {at} ──\n{indent(data['text'])}"


def _heartbeat(event: Event, data: Event, page: _Page) -> str:
    return f"heartbeat {data['beat']} · {_time(event, page)} · {one_line(data['summary'], page.width)}"


def _assistant_message(_event: Event, data: Event, _page: _Page) -> str | None:
    return indent(data["text"]) if str(data["text"]).strip() else None


def _turn_end(_event: Event, data: Event, page: _Page) -> str | None:
    reason = data["stopReason"]
    if reason == "length":
        return f"{INDENT}(the answer was cut off at the model's length limit)"
    if reason == "error":
        error = data.get("error") or "no reason given"
        text = error.get("message", error) if isinstance(error, Mapping) else error
        return f"{INDENT}(model error) {one_line(text, page.width - 16)}"
    return None


def _tool_start(_event: Event, data: Event, page: _Page) -> str:
    arguments = data["arguments"]
    if isinstance(arguments, Mapping) and len(arguments) == 1:
        (arguments,) = arguments.values()
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return _tool_line(f"{data['toolName']}: {shown}", page)


def _tool_complete(_event: Event, data: Event, page: _Page) -> str | None:
    if data["success"]:
        return None
    name = data.get("toolName") or "tool"
    why = data.get("error") or data.get("result") or ""
    return _tool_line(f"{name} failed: {why}", page)


def _session_begin(event: Event, data: Event, page: _Page) -> str:
    verb = "begins" if event["type"] == ev.SESSION_START else "goes on"
    return f"── conversation with {one_line(data['agent'], 40)} {verb} · {_time(event, page)} ──"


def _session_end(event: Event, data: Event, page: _Page) -> str:
    return f"── session closed: {one_line(data['reason'], page.width - 20)} · {_time(event, page)} ──"


def _task_complete(_event: Event, data: Event, page: _Page) -> str:
    return _tool_line(f"task complete: {data.get('summary') or ''}", page)


def _session_error(_event: Event, data: Event, page: _Page) -> str:
    return one_line(f"error: {data['message']} ({data['kind']})", page.width)


def _abort(_event: Event, data: Event, _page: _Page) -> str | None:
    if data["reason"] == "ttsr":
        return None  # the rule has said so
    if data["reason"] == "decision":
        return "the turn ends here: its decision was taken"
    why = {
        "user": "by you",
        "watchdog": "by the watchdog: the model was silent for too long",
        "client_gone": "because nobody was there any more",
        "shutdown": "because the session closes",
    }
    return f"aborted {why.get(str(data['reason']), safe(data['reason']))}"


def _question(_event: Event, data: Event, page: _Page) -> str:
    asked = one_line(f"{data['tool']}: {data['text']}", page.width - 6)
    return f"QUESTION from the agent: `loopsup answer allow` or `loopsup answer deny`\n{INDENT}{asked}"


def _answered(_event: Event, data: Event, page: _Page) -> str:
    return one_line(f"question answered: {data['outcome']} (by {data['by']})", page.width)


def _compaction(_event: Event, _data: Event, _page: _Page) -> str:
    return f"{INDENT}(the agent compacts its conversation)"


def _transition(_event: Event, data: Event, page: _Page) -> str | None:
    if data["to"] == "running":  # the line of the iteration says it
        return None
    before = f"{data['from']} → " if data.get("from") else ""
    reason = f" ({short(data['pauseReason'])})" if data.get("pauseReason") else ""
    cause = str(data["cause"])
    return one_line(f"loop: {before}{data['to']}{reason}, {CAUSES.get(cause, cause.replace('_', ' '))}", page.width)


def _attention(_event: Event, data: Event, page: _Page) -> str:
    status = str(data["status"])
    title = f"NEEDS YOU: {short(status)}" if status in NEEDS_YOU else status.upper()
    count = one_line(f"iteration {data['iterationCount']} of {data['maxIterations']}", 40)
    took = span(int(data["calendarElapsedMs"]))
    lines = [f"━━ {one_line(title, 40)} · {count} · {took} ━━"]
    if data.get("summary"):
        lines.append(indent(data["summary"]))
    text = (data.get("evidence") or {}).get("text")
    if text and text != data.get("summary"):
        lines.append(indent(f"evidence: {text}"))
    return "\n".join(lines)


def _hook(_event: Event, data: Event, page: _Page) -> str:
    path, took = one_line(data["path"], page.width - 20), span(int(data["durationMs"]))
    hook = f"hook {path}" if path else "the hook"  # one that was named wrongly has no path
    if not _hook_failed(data):
        return f"{hook} ran ({took})"
    if data.get("timeout"):
        what = "was ended: it took too long"
    elif data.get("signal") is not None:
        what = f"was ended by signal {safe(data['signal'])}"
    elif data.get("error"):
        what = f"could not be run: {one_line(data['error'], page.width)}"
    else:
        what = f"failed with exit code {safe(data.get('exit'))}"
    tail = "\n".join(str(data.get("stderr") or "").strip().split("\n")[-MAX_HOOK_LINES:])
    return f"{hook} {what} ({took}); the loop is not affected" + (f"\n{indent(tail)}" if tail else "")


def _hook_failed(data: Event) -> bool:
    failures = (data.get("timeout"), data.get("error"), data.get("exit"))
    return any(failures) or data.get("signal") is not None


def _misfire(event: Event, data: Event, page: _Page) -> str:
    return missed_words(data, parse_instant(event["at"]), page.zone)


def _notice(_event: Event, data: Event, page: _Page) -> str:
    return one_line(f"note: {data['message']}", max(page.width, 2 * 80))


def _recovery(_event: Event, data: Event, _page: _Page) -> str:
    kind = RECOVERIES.get(str(data["kind"]), safe(data["kind"]))
    when = f"in {span(int(data['waitMs']))}" if data["waitMs"] else "at once"
    return f"{INDENT}({kind}: goes on {when}, attempt {safe(data['attempt'])})"


def _triggered(_event: Event, data: Event, page: _Page) -> str:
    names = ", ".join(str(rule["name"]) for rule in data["rules"])
    return one_line(f"── stopped by the rule {names}: it will try again ──", page.width)


def _injection(_event: Event, data: Event, _page: _Page) -> str | None:
    kept = {"discarded": None, "kept": "what was cut off stays in the conversation"}
    told = kept.get(str(data["partial"]), "the agent keeps or drops what was cut off, as it does")
    return None if told is None else f"{INDENT}({told})"


def _tool_line(text: str, page: _Page) -> str:
    return f"{INDENT}▸ {one_line(text, page.width - 4)}"


def _time(event: Event, page: _Page) -> str:
    at = parse_instant(event["at"])
    return local_time(at, at, page.zone)


_WORDS: Mapping[str, Callable[[Event, Event, _Page], str | None]] = {
    ev.SESSION_HEARTBEAT: _heartbeat,
    ev.SESSION_START: _session_begin,
    ev.SESSION_RESUME: _session_begin,
    ev.SESSION_SHUTDOWN: _session_end,
    ev.SESSION_TASK_COMPLETE: _task_complete,
    ev.SESSION_ERROR: _session_error,
    ev.SESSION_COMPACTION: _compaction,
    ev.USER_MESSAGE: _user_message,
    ev.ASSISTANT_MESSAGE: _assistant_message,
    ev.TURN_END: _turn_end,
    ev.TOOL_START: _tool_start,
    ev.TOOL_COMPLETE: _tool_complete,
    ev.ABORT: _abort,
    ev.PERMISSION_REQUESTED: _question,
    ev.PERMISSION_COMPLETED: _answered,
    ev.LOOP_TRANSITION: _transition,
    ev.LOOP_ATTENTION: _attention,
    ev.LOOP_HOOK: _hook,
    ev.LOOP_MISFIRE: _misfire,
    ev.LOOP_NOTICE: _notice,
    ev.CONTINUITY_RECOVERY: _recovery,
    ev.TTSR_TRIGGERED: _triggered,
    ev.TTSR_INJECTION: _injection,
}
