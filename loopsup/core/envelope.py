"""The two messages a loop sends: the iteration envelope and the protocol reminder.

Both are user-role, readable and auditable. The objective stands in the envelope byte for byte (L-05).
They never start with `/` or `!`, which some agents take for commands.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopsup.core.durations import show
from loopsup.core.limits import SECOND
from loopsup.core.model import Auto, Fixed, Flight, Loop, Moment

FIRST_LINE = "[loop iteration]"
REMINDER_LINE = "[loop reminder]"
LANGUAGES = ("en", "pt")


@dataclass(frozen=True, slots=True)
class _Words:
    objective: str
    iteration: str
    of: str
    elapsed: str
    remaining: str
    rhythm: str
    range: str
    last: str
    none: str
    closing: str
    closing_auto: str
    missing: str
    fixed_hint: str
    auto_hint: str
    command: str


_EN = _Words(
    objective="Objective (verbatim)",
    iteration="Iteration",
    of="of",
    elapsed="Calendar time elapsed",
    remaining="Time to deadline",
    rhythm="Rhythm",
    range="range",
    last="Last decision/summary/evidence",
    none="none",
    closing=(
        "Re-evaluate the objective against the current state. Do not use loop polling for a background process\n"
        "that the harness already observes. The evidence must cite observed state, a command run or a reference\n"
        "consulted. End by calling loop_control as your last action."
    ),
    closing_auto="With continue, nextDelay is mandatory and must lie in the range.",
    missing=(
        "Iteration {n} of {max} ended without a valid loop_control decision. Do no further work; call loop_control\n"
        "now, as your last action: decision (continue, complete, fail or block), summary and evidence."
    ),
    fixed_hint="The rhythm is fixed: give no nextDelay.",
    auto_hint="With continue, nextDelay ({range}) is mandatory; with the other decisions it is not allowed.",
    command="loop_control is a command. Run it in your shell, in the foreground, and read its answer:",
)
_PT = _Words(
    objective="Objetivo (verbatim)",
    iteration="Iteração",
    of="de",
    elapsed="Tempo de calendário decorrido",
    remaining="Tempo até o prazo",
    rhythm="Ritmo",
    range="faixa",
    last="Última decisão/resumo/evidência",
    none="nenhuma",
    closing=(
        "Reavalie o objetivo com o estado atual. Não use polling do loop para um processo\n"
        "background que o harness já observa. A evidência deve citar estado observado, comando executado ou\n"
        "referência consultada. Termine chamando loop_control como sua última ação."
    ),
    closing_auto="Com continue, nextDelay é obrigatório e deve estar dentro da faixa.",
    missing=(
        "A iteração {n} de {max} terminou sem uma decisão válida de loop_control. Não faça mais trabalho; chame\n"
        "loop_control agora, como sua última ação: decision (continue, complete, fail ou block), summary e evidence."
    ),
    fixed_hint="O ritmo é fixo: não informe nextDelay.",
    auto_hint="Com continue, nextDelay ({range}) é obrigatório; com as outras decisões não é permitido.",
    command="loop_control é um comando. Execute-o no seu shell, em primeiro plano, e leia a resposta:",
)


def iteration(loop: Loop, now: Moment, language: str = "en", *, command: bool = False) -> str:
    """The envelope of the iteration under way (`loop.flight`). `command`: loop_control is a command there."""
    words, flight = _words(language), _flight(loop)
    lines = [
        FIRST_LINE,
        f"{words.objective}: {loop.objective}",
        f"{words.iteration}: {flight.iteration} {words.of} {loop.policy.max_iterations}",
        f"{words.elapsed}: {show(now.wall - loop.started_at)}",
        f"{words.remaining}: {_left(loop.deadline_at - now.wall)}",
        f"{words.rhythm}: {_rhythm(flight, words)}",
        f"{words.last}: {_last(loop, words)}",
        "",
        words.closing,
    ]
    if isinstance(flight.rhythm, Auto):
        lines.append(words.closing_auto)
    if command:
        lines.append(_command(flight, words))
    return "\n".join(lines)


def reminder(loop: Loop, language: str = "en", *, command: bool = False) -> str:
    """The one reminder an iteration without a valid decision gets."""
    words, flight = _words(language), _flight(loop)
    missing = words.missing.format(n=flight.iteration, max=loop.policy.max_iterations)
    match flight.rhythm:
        case Fixed():
            hint = words.fixed_hint
        case Auto():
            hint = words.auto_hint.format(range=_range(flight))
    text = f"{REMINDER_LINE}\n{missing}\n{hint}"
    return f"{text}\n{_command(flight, words)}" if command else text


def _command(flight: Flight, words: _Words) -> str:
    """How the decision is made where there is nothing but a shell."""
    call = "loopsup control continue|complete|fail|block --summary '...' --evidence '...'"
    return f"{words.command}\n    {call}{' [--next-delay 10m]' if isinstance(flight.rhythm, Auto) else ''}"


def _left(ms: int) -> str:
    """Rounded up to the second, as the elapsed time is rounded down: together they are the whole horizon."""
    return show(-(-ms // SECOND) * SECOND)


def _rhythm(flight: Flight, words: _Words) -> str:
    match flight.rhythm:
        case Fixed(every):
            return f"fixed {show(every)}"
        case Auto():
            return f"auto ({words.range} {_range(flight)})"


def _range(flight: Flight) -> str:
    return f"{show(flight.min_delay_ms)}..{show(flight.max_delay_ms)}"


def _last(loop: Loop, words: _Words) -> str:
    last = loop.last_decision
    return words.none if last is None else f"{last.verb} / {last.summary} / {last.evidence}"


def _words(language: str) -> _Words:
    return _PT if language == "pt" else _EN


def _flight(loop: Loop) -> Flight:
    if loop.flight is None:
        raise ValueError("no iteration is under way")
    return loop.flight
