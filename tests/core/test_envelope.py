"""The two messages of a loop (L-50..L-59, L-148, case 203)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopsup.core import envelope
from loopsup.core.limits import HOUR, MINUTE
from loopsup.core.model import Auto, Decision, Delivery, Fixed, Flight, Loop, PromptKind, Rhythm, Running, Verb
from tests.support.script import T0, policy_of

TEN_MINUTES = Fixed(10 * MINUTE)
TRICKY = [
    "one line",
    "  leading and trailing  ",
    "two\nlines\n",
    "\n\n",
    "{objective} {0} {} {{}}",
    "100 % of %s %(name)s",
    "$HOME ${HOME} $(id) `id`",
    "\"double\" 'single' \\n \\",
    "tabs\tand\u2028separators\x85",
    "Iteration: 99 of 99\n[loop iteration]",
    "ação ✓ \U0001f600",
    "/loop stop",
]


def a_loop(objective: str = "obj", rhythm: Rhythm = TEN_MINUTES, last: Decision | None = None) -> Loop:
    flight = Flight(
        3, 7, PromptKind.ITERATION, Delivery.PENDING, rhythm, MINUTE, 24 * HOUR, due_at=T0.wall, retry_used=False
    )
    return Loop("id", objective, policy_of(), T0.wall, Running(flight), iteration_count=3, last_decision=last)


NOW = T0.plus(95 * MINUTE)
LAST = Decision(Verb.CONTINUE, "two checks left", "gh run view 17", None, 2, T0.wall)


def test_english() -> None:
    lines = envelope.iteration(a_loop(last=LAST), NOW, "en").split("\n")
    assert lines[:6] == [
        "[loop iteration]",
        "Objective (verbatim): obj",
        "Iteration: 3 of 50",
        "Calendar time elapsed: 1h35m",
        "Time to deadline: 22h25m",
        "Rhythm: fixed 10m",
    ]
    assert lines[6].startswith("Last decision/summary/evidence: ")
    position = [lines[6].index(word) for word in ("continue", "two checks left", "gh run view 17")]
    assert position == sorted(position)


def test_portuguese() -> None:
    lines = envelope.iteration(a_loop(last=LAST), NOW, "pt").split("\n")
    assert lines[:6] == [
        "[loop iteration]",
        "Objetivo (verbatim): obj",
        "Iteração: 3 de 50",
        "Tempo de calendário decorrido: 1h35m",
        "Tempo até o prazo: 22h25m",
        "Ritmo: fixed 10m",
    ]
    assert lines[6].startswith("Última decisão/resumo/evidência: ")
    text = " ".join(lines)
    for words in (
        "Reavalie o objetivo com o estado atual.",
        "Não use polling do loop para um processo background que o harness já observa.",
        "Termine chamando loop_control como sua última ação.",
    ):
        assert words in text


def test_english_is_the_default() -> None:
    assert envelope.iteration(a_loop(), NOW) == envelope.iteration(a_loop(), NOW, "en")
    assert envelope.reminder(a_loop()) == envelope.reminder(a_loop(), "en")


def test_the_closing_paragraph_says_what_is_expected() -> None:
    text = " ".join(envelope.iteration(a_loop(), NOW, "en").split())
    closing = text[text.index("Last decision/summary/evidence:") :].lower()
    for words in ("re-evaluate the objective", "current state", "polling", "background process", "observes"):
        assert words in closing
    for words in ("evidence must cite", "observed state", "command", "reference", "loop_control", "last action"):
        assert words in closing


@pytest.mark.parametrize(("language", "none"), [("en", "none"), ("pt", "nenhuma")])
def test_the_first_envelope_says_that_there_is_no_decision_yet(language: str, none: str) -> None:
    line = envelope.iteration(a_loop(), NOW, language).split("\n")[6]
    assert line.endswith(f": {none}")


@pytest.mark.parametrize(
    ("language", "line"), [("en", "Rhythm: auto (range 1m..24h)"), ("pt", "Ritmo: auto (faixa 1m..24h)")]
)
def test_auto_rhythm_names_its_range(language: str, line: str) -> None:
    assert line in envelope.iteration(a_loop(rhythm=Auto()), NOW, language).split("\n")


def test_the_rhythm_is_that_of_the_flight_and_the_maximum_that_of_the_policy() -> None:
    loop = a_loop(rhythm=Fixed(5 * MINUTE))
    loop = replace(loop, policy=replace(loop.policy, max_iterations=70))
    lines = envelope.iteration(loop, NOW).split("\n")
    assert "Rhythm: fixed 5m" in lines
    assert "Iteration: 3 of 70" in lines


@pytest.mark.parametrize("objective", TRICKY, ids=ascii)
@pytest.mark.parametrize("language", ["en", "pt"])
def test_the_objective_is_verbatim(objective: str, language: str) -> None:
    text = envelope.iteration(a_loop(objective), NOW, language)
    label = {"en": "Objective (verbatim): ", "pt": "Objetivo (verbatim): "}[language]
    assert text.startswith("[loop iteration]\n" + label + objective + "\n")


@given(st.text(min_size=1, max_size=200))
def test_any_objective_is_verbatim(objective: str) -> None:
    assert envelope.iteration(a_loop(objective), NOW).startswith(
        "[loop iteration]\nObjective (verbatim): " + objective + "\nIteration: 3 of 50\n"
    )


@given(st.text(min_size=1, max_size=50), st.text(min_size=1, max_size=50))
def test_any_last_decision_is_carried(summary: str, evidence: str) -> None:
    text = envelope.iteration(a_loop(last=replace(LAST, summary=summary, evidence=evidence)), NOW)
    assert summary in text
    assert evidence in text


def test_times_are_never_negative() -> None:
    before = envelope.iteration(a_loop(), T0.plus(-HOUR)).split("\n")
    assert "Calendar time elapsed: 0s" in before
    after = envelope.iteration(a_loop(), T0.plus(30 * HOUR)).split("\n")
    assert "Time to deadline: 0s" in after


@pytest.mark.parametrize("language", ["en", "pt"])
@pytest.mark.parametrize("rhythm", [Fixed(10 * MINUTE), Auto()], ids=["fixed", "auto"])
def test_the_reminder_asks_for_the_decision(language: str, rhythm: Rhythm) -> None:
    text = envelope.reminder(a_loop(rhythm=rhythm), language)
    for word in ("loop_control", "summary", "evidence", "continue", "complete", "fail", "block", "nextDelay"):
        assert word in text
    assert not text.startswith("[loop iteration]"), "a reminder is not an iteration"
    assert ("1m..24h" in text) is (rhythm == Auto())
