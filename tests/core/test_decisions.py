"""`loop_control` arguments (L-60..L-69, D-05)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopsup.core.decisions import Call, Fault, parse
from loopsup.core.limits import HOUR, MINUTE
from loopsup.core.model import Auto, Fixed, Rhythm, Verb

FIXED, AUTO = Fixed(10 * MINUTE), Auto()
OK = {"summary": "s", "evidence": "e"}


def judge(arguments: object, rhythm: Rhythm = FIXED) -> Call | Fault:
    return parse(arguments, rhythm, MINUTE, 24 * HOUR)


@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("rhythm", [FIXED, AUTO], ids=["fixed", "auto"])
@pytest.mark.parametrize("delay", [None, "30m"])
def test_who_may_give_a_delay(verb: Verb, rhythm: Rhythm, delay: str | None) -> None:
    arguments = {"decision": str(verb), **OK} | ({} if delay is None else {"nextDelay": delay})
    wants = verb is Verb.CONTINUE and rhythm == AUTO
    result = judge(arguments, rhythm)
    if wants is (delay is not None):
        assert result == Call(verb, "s", "e", 30 * MINUTE if wants else None)
    else:
        assert isinstance(result, Fault)
        assert "nextDelay" in result.message


AT_THE_BOUNDS = {"1m": True, "59s": False, "24h": True, "24h1s": False, "1440m": True, "366d": False, "": False}


@pytest.mark.parametrize(("delay", "ok"), AT_THE_BOUNDS.items(), ids=AT_THE_BOUNDS.keys())
def test_the_range_is_inclusive_and_nothing_is_clamped(delay: str, ok: bool) -> None:
    result = judge({"decision": "continue", **OK, "nextDelay": delay}, AUTO)
    assert isinstance(result, Call) is ok


INVALID: dict[str, Any] = {
    "no object": None,
    "a list": [],
    "a string": "complete",
    "a number": 5,
    "a bool": True,
    "empty": {},
    "no decision": dict(OK),
    "no summary": {"decision": "complete", "evidence": "e"},
    "no evidence": {"decision": "complete", "summary": "s"},
    "blank summary": {"decision": "complete", "summary": " \n\t", "evidence": "e"},
    "blank evidence": {"decision": "complete", "summary": "s", "evidence": ""},
    "unicode blank": {"decision": "complete", "summary": "\u2003\u00a0", "evidence": "e"},
    "participle": {"decision": "completed", **OK},
    "upper case": {"decision": "COMPLETE", **OK},
    "padded": {"decision": " complete", **OK},
    "decision null": {"decision": None, **OK},
    "decision bool": {"decision": True, **OK},
    "decision list": {"decision": ["complete"], **OK},
    "summary number": {"decision": "complete", "summary": 1, "evidence": "e"},
    "evidence object": {"decision": "complete", "summary": "s", "evidence": {"text": "e"}},
    "delay null": {"decision": "complete", **OK, "nextDelay": None},
    "delay number": {"decision": "continue", **OK, "nextDelay": 600},
    "delay bool": {"decision": "continue", **OK, "nextDelay": True},
    "unknown key": {"decision": "complete", **OK, "note": "x"},
    "other case of a key": {"decision": "complete", **OK, "nextdelay": "10m"},
    "key not a string": {"decision": "complete", **OK, 5: "x"},
    "huge": {"decision": "complete", "summary": "x" * 20_000_000, "evidence": "e"},
}


@pytest.mark.parametrize("arguments", INVALID.values(), ids=INVALID.keys())
@pytest.mark.parametrize("rhythm", [FIXED, AUTO], ids=["fixed", "auto"])
def test_invalid_calls_are_answered_with_a_reason(arguments: object, rhythm: Rhythm) -> None:
    result = judge(arguments, rhythm)
    assert isinstance(result, Fault)
    assert 0 < len(result.message) < 500


def test_the_words_are_kept_as_they_are() -> None:
    text = "  línea 1\nline 2\t{x} %s \U0001f600 \ud800 "
    assert judge({"decision": "fail", "summary": text, "evidence": text}) == Call(Verb.FAIL, text, text, None)


KEY = st.sampled_from(["decision", "summary", "evidence", "nextDelay", "x"])
VALUE = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from([*Verb, "10m", "1s"]))


@given(st.dictionaries(KEY, VALUE), st.sampled_from([FIXED, AUTO]))
def test_any_object_is_judged(arguments: dict[str, object], rhythm: Rhythm) -> None:
    result = judge(arguments, rhythm)
    if isinstance(result, Call):
        assert result.summary.strip()
        assert result.evidence.strip()
        assert (result.next_delay_ms is not None) is (rhythm == AUTO and result.verb is Verb.CONTINUE)
