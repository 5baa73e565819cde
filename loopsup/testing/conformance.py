"""The checks every adapter must pass, and how to run one. A failure says what the author must mend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from loopsup.testing import deciding, declaration, ending, ruling, talking
from loopsup.testing.harness import Harness

CHECK_TIMEOUT_S = 180.0  # several times an agent's start, its waits and the ladder of `close`


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of `loopsup.ports`. `why` is the promise in words."""

    name: str
    why: str
    body: Callable[[Harness], Awaitable[None]]

    async def run(self, harness: Harness) -> None:
        """CheckFailedError if the adapter does not keep it."""
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await self.body(harness)

    def __str__(self) -> str:
        return self.name


def run(check: Check, harness: Harness) -> None:
    """Run one check in an event loop of its own."""
    asyncio.run(check.run(harness))


def _check(body: Callable[[Harness], Awaitable[None]]) -> Check:
    return Check(body.__name__.replace("_", "-"), body.__doc__ or "", body)


CHECKS: tuple[Check, ...] = tuple(
    _check(body)
    for body in (
        declaration.speaks_the_protocol,
        declaration.declares_consistently,
        declaration.names_a_missing_command,
        declaration.fails_to_start_in_words,
        declaration.does_not_find_a_foreign_conversation,
        declaration.starts_a_conversation,
        declaration.runs_as_a_process_of_its_own,
        talking.settles_once,
        talking.says_what_it_does,
        talking.speaks_the_vocabulary,
        talking.pairs_its_turns,
        talking.keeps_the_prompt_verbatim,
        talking.refuses_a_prompt_while_busy,
        talking.announces_without_telling_the_model,
        talking.asks_before_tools,
        deciding.stamps_the_decision,
        deciding.ends_the_turn_when_accepted,
        deciding.ends_a_mixed_batch_when_accepted,
        deciding.goes_on_after_a_refusal,
        deciding.decides_nothing_outside_an_iteration,
        ruling.tries_again_after_a_rule,
        ruling.holds_its_tools,
        ending.aborts,
        ending.ignores_an_abort_when_idle,
        ending.tells_its_loss,
        ending.closes_without_a_survivor,
        ending.closes_before_it_started,
        ending.resumes,
        ending.keeps_its_marker,
    )
)
