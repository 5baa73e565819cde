"""Stream rules through the real supervisor on a virtual clock: abort, window, retry, and what goes before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopsup.core.events import Pause, Resume, Stop
from loopsup.core.rules import ContextMode, RepeatMode, Rule, RuleSettings
from loopsup.ports import (
    AbortReason,
    Boundary,
    Capabilities,
    Interruption,
    Marker,
    Origin,
    Plan,
    Prompt,
    ToolCall,
    ToolVerdict,
)
from loopsup.shell.rule_book import shortcomings
from tests.shell.world import World, night
from tests.support.fake_agent import ALL, Act, FakeAdapter, FakeAgent, does, refuses, says, talks
from tests.support.rules import Words, rule
from tests.support.script import T0, call
from tests.support.virtual import VirtualClock

ABLE = replace(ALL, rewind=True, continue_without_message=True, keep_partial=True, hold_tools=True)
STEP_S = 0.01  # between two pieces of a stream
Story = Callable[[World, VirtualClock], Coroutine[Any, Any, None]]


def streams(*pieces: str, lasts_s: float = 60.0, kind: str = "assistant.message_delta") -> Act:
    """One turn that streams these pieces and goes on for a while; then it ends without a decision."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        for piece in pieces:
            agent.events.emit(kind, {"text": piece})
            await asyncio.sleep(STEP_S)
        await asyncio.sleep(lasts_s)
        agent.end_turn(text="".join(pieces))
        agent.settle()

    return does(job)


def play(
    folder: Path,
    acts: list[Act],
    story: Story,
    *rules: Rule,
    able: Capabilities = ABLE,
    settings: RuleSettings = RuleSettings(),
    default: Act | None = None,
    words: Words | None = None,
) -> World:
    """A night with these rules in force (`no-foo`, if none is given)."""
    given = rules or (rule(),)
    adapter = FakeAdapter(capabilities=able, default=default or says("complete"))
    adapter.acts.extend(acts)

    async def begun(world: World, clock: VirtualClock) -> None:
        world.supervisor.book.load(given, settings, words or Words(*given))
        await story(world, clock)

    return night(folder, begun, adapter)


async def done(world: World, clock: VirtualClock) -> None:
    """One loop to its end."""
    world.start()
    await world.until(lambda: world.loop.terminal)


async def in_window(world: World) -> None:
    """20 ms into the window: the agent has settled, the retry is to come."""
    world.start()
    await until_triggered(world)
    await asyncio.sleep(0.02)
    assert world.supervisor.host.rules.resting
    assert world.supervisor.host.working, "X-25: a turn in execution for whoever reaps"
    assert not world.supervisor.at_rest, "case 221: and for whoever reloads"


async def until_triggered(world: World, times: int = 1) -> None:
    while len(world.events("ttsr_triggered")) < times:
        await asyncio.sleep(0.001)


def prompts(world: World) -> list[tuple[str, bool]]:
    return [(prompt.origin.value, prompt.keep) for prompt in world.adapter.prompts]


# ---- the way of a correction ------------------------------------------------------------------------


def test_a_match_ends_the_response_and_the_model_tries_again(tmp_path: Path) -> None:
    """Case 119: the trigger is split over three pieces; one abort, one retry 50 ms later."""
    at: list[int] = []
    seen: list[str] = []

    async def story(world: World, clock: VirtualClock) -> None:
        follower = world.supervisor.bus.subscribe(None)
        world.start()
        while "session.idle" not in seen:
            line = json.loads(await follower.next() or b"{}")
            kind = line.get("event", {}).get("type", "")
            seen.append(kind)
            if kind in ("user.message", "ttsr_triggered"):
                at.append(clock.now().mono - T0.mono)
        await world.until(lambda: world.loop.terminal)

    world = play(tmp_path, [streams("fo", "o.b", "ar", " and more"), says("complete")], story)
    assert world.adapter.newest.aborts == [AbortReason.TTSR]
    assert at == [0, 20, 70]
    assert prompts(world) == [("loop", False), ("ttsr", False)]
    reminder = world.adapter.prompts[1]
    assert reminder.stamp == world.adapter.prompts[0].stamp
    assert '<system-interrupt reason="rule_violation" rule="no-foo" path=".loopsup/rules/no-foo.md">' in reminder.text
    assert "Never write foo.bar." in reminder.text
    assert (world.loop.llm_calls, world.loop.protocol_retry_count, world.loop.prompts_sent) == (2, 0, 1)
    assert [kind for kind in seen if kind.startswith(("abort", "ttsr", "user", "assistant", "session.idle"))] == [
        "user.message",
        "assistant.turn_start",
        *["assistant.message_delta"] * 3,
        "ttsr_triggered",
        "abort",
        "assistant.turn_end",  # and no session.idle
        "user.message",
        "ttsr_injection",
        "assistant.turn_start",
        "assistant.message",
        "assistant.turn_end",
        "session.idle",
    ]
    assert world.events("ttsr_triggered")[0]["data"] == {
        "rules": [{"name": "no-foo", "path": ".loopsup/rules/no-foo.md"}]
    }
    assert world.events("ttsr_injection")[0]["data"] == {"rules": ["no-foo"], "partial": "discarded"}
    assert [event["data"]["stopReason"] for event in world.events("assistant.turn_end")] == ["aborted", "stop"]


def test_pieces_that_come_before_the_abort_lands_change_nothing(tmp_path: Path) -> None:
    """Case 206."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        for _ in range(20):
            agent.events.emit("assistant.message_delta", {"text": "foo.bar "})
        await asyncio.sleep(60)

    world = play(tmp_path, [does(job)], done)
    assert world.adapter.newest.aborts == [AbortReason.TTSR]
    assert prompts(world) == [("loop", False), ("ttsr", False)]
    assert len(world.events("ttsr_triggered")) == 1


def test_two_rules_of_one_window_share_one_message(tmp_path: Path) -> None:
    """T-27."""
    world = play(tmp_path, [streams("foo.bar and baz")], done, rule(), rule("no-baz", "baz"))
    assert prompts(world) == [("loop", False), ("ttsr", False)]
    assert world.adapter.prompts[1].text.count("<system-interrupt ") == 2
    assert world.events("ttsr_injection")[0]["data"]["rules"] == ["no-foo", "no-baz"]


def test_the_context_mode_is_read_at_the_end_of_the_window(tmp_path: Path) -> None:
    """Case 126, T-21."""

    async def story(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        world.supervisor.host.rules.settings = lambda: RuleSettings(context=ContextMode.KEEP)
        await world.until(lambda: world.loop.terminal)

    world = play(tmp_path, [streams("foo.bar")], story)
    assert prompts(world) == [("loop", False), ("ttsr", True)]
    assert world.events("ttsr_injection")[0]["data"]["partial"] == "kept"


def test_what_an_agent_cannot_do_is_told_and_never_pretended(tmp_path: Path) -> None:
    """Case 223, X-27."""
    keep = rule(context=ContextMode.KEEP)
    world = play(tmp_path, [streams("foo.bar", " x"), streams("baz")], done, keep, rule("no-baz", "baz"), able=ALL)
    assert prompts(world) == [("loop", False), ("ttsr", False), ("ttsr", False)]
    assert [event["data"]["partial"] for event in world.events("ttsr_injection")] == ["left to the agent"] * 2
    (notice,) = world.notices()
    for words in ("goes or stays as the agent does it", "cannot be kept", "may have begun", "as a user's message"):
        assert words in notice


def test_a_message_that_was_never_streamed_is_looked_at_whole(tmp_path: Path) -> None:
    world = play(tmp_path, [talks(text="foo.bar")], done)
    assert prompts(world) == [("loop", False), ("ttsr", False)]
    unseen = replace(ABLE, terminal=True, hold_tools=False)
    told = shortcomings(unseen, (rule(),), RuleSettings())
    late = "a tool may have begun before its arguments are checked"
    assert told == f"a message is looked at only once it is whole; {late}"
    assert shortcomings(replace(ABLE, terminal=True), (rule(),), RuleSettings()) is None, "heard from inside"
    assert shortcomings(ABLE, (rule(),), RuleSettings()) is None


def test_an_agent_that_cannot_be_aborted_has_no_rules_in_force(tmp_path: Path) -> None:
    able = replace(ALL, abort=False)
    words = Words(rule())
    world = play(tmp_path, [streams("foo.bar", lasts_s=1)], done, able=able, words=words)
    assert (words.fed, world.adapter.newest.aborts) == (0, [])
    assert world.notices() == ["stream rules with fake: not in force, because it cannot end a response half-way"]


# ---- repetition -------------------------------------------------------------------------------------


def test_a_model_that_never_complies_is_let_be_in_the_end(tmp_path: Path) -> None:
    """Case 133, D-23: six interruptions in one request, then the rule is silenced for it, visibly."""
    settings = RuleSettings(repeat=RepeatMode.AFTER_GAP, gap=0)
    acts = [streams("foo.bar") for _ in range(6)] + [streams("foo.bar", lasts_s=0.1)]
    world = play(tmp_path, acts, done, settings=settings)
    assert prompts(world) == [("loop", False)] + [("ttsr", False)] * 6 + [("protocol", False)]
    assert [text for text in world.notices() if "not watched any more until the next request" in text]


def test_a_once_rule_is_known_after_a_restart_and_a_released_one_is_not(tmp_path: Path) -> None:
    """T-30, D-21, D-25: two sessions of one folder, the second without and with a record."""

    def session(*acts: Act, story: Story = done) -> World:
        return play(tmp_path, [*acts], story)

    async def aborted(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        assert await world.supervisor.host.abort(AbortReason.USER)
        await world.until(lambda: world.place == ("paused", "interrupted"))
        world.command(Stop())

    first = session(streams("foo.bar"), story=aborted)
    assert first.events("ttsr_injection") == []
    second = session(streams("foo.bar"))
    assert [event["data"]["rules"] for event in second.events("ttsr_injection")] == [["no-foo"]]
    third = session(streams("foo.bar", lasts_s=0.1))
    assert third.adapter.newest.aborts == []
    records = [record.event for record in third.records() if type(record.event).__name__ == "TtsrInjection"]
    assert [(event.rules, event.injected) for event in records] == [(("no-foo",), ("no-foo",))]  # type: ignore[union-attr]


# ---- what goes before a retry -----------------------------------------------------------------------


def test_an_abort_by_a_person_inside_the_window_voids_the_retry(tmp_path: Path) -> None:
    """P0: the rule is not lost by it (D-21), and acts when the loop goes on."""

    async def story(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        assert await world.supervisor.host.abort(AbortReason.USER)
        await world.until(lambda: world.place == ("paused", "interrupted"))
        await asyncio.sleep(1)
        assert prompts(world) == [("loop", False)]
        world.command(Resume(world.supervisor.host.idle))
        await world.until(lambda: world.loop.terminal)

    world = play(tmp_path, [streams("foo.bar"), streams("foo.bar")], story)
    assert prompts(world) == [("loop", False), ("loop", False), ("ttsr", False)]
    assert [event["data"]["reason"] for event in world.events("abort")] == ["ttsr", "user", "ttsr"]
    assert any("not tried again: the response was aborted (user)" in text for text in world.notices())


def test_an_abort_by_a_person_before_the_agent_has_settled_voids_the_retry(tmp_path: Path) -> None:
    async def slow_to_end(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.events.emit("assistant.message_delta", {"text": "foo.bar"})
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            raise

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await until_triggered(world)
        await asyncio.sleep(0.02)
        assert not world.supervisor.host.rules.resting
        await world.supervisor.host.abort(AbortReason.USER)
        await world.until(lambda: world.place == ("paused", "interrupted"))

    world = play(tmp_path, [does(slow_to_end)], story)
    assert prompts(world) == [("loop", False)]


@pytest.mark.parametrize(("event", "place"), [(Pause(), ("paused", "user")), (Stop(), ("stopped", None))])
def test_a_pause_or_a_stop_goes_before_the_retry(tmp_path: Path, event: Any, place: tuple[str, str | None]) -> None:
    """P0 before P2; no reminder of the protocol is spent."""

    async def story(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        world.command(event)
        await world.until(lambda: world.place == place)

    world = play(tmp_path, [streams("foo.bar")], story)
    assert (prompts(world), world.loop.protocol_retry_count) == ([("loop", False)], 0)


def test_a_message_of_a_person_goes_behind_the_reminder(tmp_path: Path) -> None:
    """Case 127: it is not lost."""

    async def story(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        waiter = world.say("how is it going?")
        await world.until(lambda: world.loop.terminal)
        assert await waiter == "hello"

    world = play(tmp_path, [streams("foo.bar"), says("complete"), talks()], story)
    assert prompts(world) == [("loop", False), ("ttsr", False), ("user", False)]


def test_a_move_to_another_branch_voids_the_retry(tmp_path: Path) -> None:
    """Case 129."""

    async def story(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        world.adapter.newest.events.branch(None)
        await world.until(lambda: not world.supervisor.host.working)
        await asyncio.sleep(1)

    world = play(tmp_path, [streams("foo.bar")], story)
    assert prompts(world) == [("loop", False)]


def test_the_rules_of_a_branch_are_those_that_acted_on_it(tmp_path: Path) -> None:
    """Case 207: a fork before the injection does not see it, and the way back does."""
    marks: list[Marker] = []

    async def story(world: World, clock: VirtualClock) -> None:
        world.start(after_ms=1000)
        await asyncio.sleep(0.5)
        marks.append(Marker(world.loop.id, world.records()[-1].seq))
        await world.until(lambda: world.loop.terminal)
        marks.append(Marker(world.loop.id, world.records()[-1].seq))
        seen = []
        for mark in marks:
            world.adapter.newest.events.branch(mark)
            seen.append(dict(world.supervisor.host.rules.injected))
        assert seen == [{}, {"no-foo": 0}]

    able = replace(ABLE, branches=True)
    play(tmp_path, [streams("foo.bar")], story, able=able)


def test_an_agent_that_ends_inside_the_window(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        world.adapter.newest.die()
        await world.until(lambda: world.place == ("paused", "protocol_error"))
        await asyncio.sleep(1)
        assert not world.supervisor.host.rules.pending

    world = play(tmp_path, [streams("foo.bar")], story)
    assert prompts(world) == [("loop", False)]


def test_a_refused_reminder_fails_nothing(tmp_path: Path) -> None:
    """Case 131, T-28: the iteration settles and goes on as one without a decision."""
    world = play(tmp_path, [streams("foo.bar"), refuses("no")], done)
    assert prompts(world) == [("loop", False), ("ttsr", False), ("protocol", False)]
    assert any("the agent did not take the reminder (no)" in text for text in world.notices())
    assert world.loop.last_decision is not None


def test_closing_inside_the_window_is_at_once(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock) -> None:
        await in_window(world)
        before = clock.now().mono
        await world.close("asked")
        assert clock.now().mono - before < 1000

    world = play(tmp_path, [streams("foo.bar")], story)
    assert (prompts(world), world.place) == ([("loop", False)], ("paused", "session_closed"))


# ---- decisions --------------------------------------------------------------------------------------


def test_after_an_accepted_decision_nothing_is_interrupted(tmp_path: Path) -> None:
    """Case 135, X-03."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        assert (await agent.decide(prompt.stamp, call("complete"))).accepted
        agent.events.emit("assistant.message_delta", {"text": "foo.bar"})
        agent.end_turn(text="foo.bar")
        agent.settle()

    world = play(tmp_path, [does(job)], done)
    assert (prompts(world), world.adapter.newest.aborts) == ([("loop", False)], [])
    assert world.events("ttsr_triggered") == []


def test_a_match_in_the_arguments_of_the_decision_takes_it_back(tmp_path: Path) -> None:
    """Case 135, X-02: no decision, a retry, and no reminder of the protocol."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        arguments = {"decision": "complete", "summary": "foo.bar", "evidence": "e"}
        verdict = await agent.decide(prompt.stamp, arguments)
        assert not verdict.accepted
        assert "interrupted by a rule" in verdict.message
        await asyncio.sleep(60)

    world = play(tmp_path, [does(job)], done)
    assert prompts(world) == [("loop", False), ("ttsr", False)]
    assert world.loop.protocol_retry_count == 0
    assert [verdict.accepted for verdict in world.adapter.newest.verdicts] == [False, True]


def test_a_decision_inside_the_window_is_none(tmp_path: Path) -> None:
    """Its message is being taken back."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.events.emit("assistant.message_delta", {"text": "foo.bar"})
        assert not (await agent.decide(prompt.stamp, call("complete"))).accepted
        await asyncio.sleep(60)

    world = play(tmp_path, [does(job)], done)
    assert prompts(world) == [("loop", False), ("ttsr", False)]


# ---- tools ------------------------------------------------------------------------------------------


def test_a_tool_is_held_until_its_arguments_were_checked(tmp_path: Path) -> None:
    verdicts: list[ToolVerdict] = []

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        for arguments in ({"command": "ls"}, {"command": "foo.bar"}, {"command": "ls"}):
            verdicts.append(await agent.events.tool_call(ToolCall("c1", "bash", arguments)))
        await asyncio.sleep(60)

    world = play(tmp_path, [does(job)], done)
    assert [(verdict.allowed, verdict.ends) for verdict in verdicts] == [(True, False), (False, True), (False, True)]
    assert prompts(world) == [("loop", False), ("ttsr", False)]


# ---- recovery and errors ----------------------------------------------------------------------------


def test_an_error_that_comes_of_the_abort_is_not_shown_and_fails_nothing(tmp_path: Path) -> None:
    """Case 134, T-36."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.events.emit("assistant.message_delta", {"text": "foo.bar"})
        agent.events.emit("session.error", {"kind": "other", "message": "Request was aborted"})
        agent.end_turn("error", error="Request was aborted")
        agent.settle()

    world = play(tmp_path, [does(job)], done)
    assert world.events("session.error") == []
    assert [event["data"]["stopReason"] for event in world.events("assistant.turn_end")] == ["aborted", "stop"]
    assert prompts(world) == [("loop", False), ("ttsr", False)]


def test_a_cut_that_is_also_reported_as_too_long_is_the_rules(tmp_path: Path) -> None:
    """Case 218, X-07: recovery does nothing and spends nothing."""
    plans: list[Plan] = []

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.events.emit("assistant.message_delta", {"text": "foo.bar"})
        agent.end_turn("length")
        plans.append(await agent.events.interrupted(Interruption(Boundary.TURN, "length")))
        agent.settle(aborted=True)

    world = play(tmp_path, [does(job)], done)
    assert plans == [Plan(end=True)]
    assert world.events("continuity.recovery") == []
    assert prompts(world) == [("loop", False), ("ttsr", False)]


def test_a_trigger_that_takes_too_long_is_named(tmp_path: Path) -> None:
    words = Words(rule(), slow=("no-foo",))
    world = play(tmp_path, [streams("foo.bar", lasts_s=0.1)], done, words=words)
    assert world.adapter.newest.aborts == []
    assert any("takes too long" in text for text in world.notices())


def test_a_person_who_waits_gets_the_answer_of_the_second_try(tmp_path: Path) -> None:
    """Rules hold outside of loops, too."""

    async def story(world: World, clock: VirtualClock) -> None:
        assert await world.say("write something") == "hello"

    world = play(tmp_path, [streams("foo.bar"), talks()], story)
    assert [prompt.origin for prompt in world.adapter.prompts] == [Origin.USER, Origin.TTSR]
    assert [record.loop for record in world.records()] == [None]  # the record of the rule


def test_without_a_match_the_stream_is_only_read(tmp_path: Path) -> None:
    words = Words(rule())
    world = play(tmp_path, [streams("all", " is", " well", lasts_s=0.1)], done, words=words)
    assert words.fed == 3 + 1 + 1  # pieces, message, and the message that answers the protocol's reminder
    assert [kind for kind in world.kinds() if kind.startswith("ttsr")] == []


def test_nothing_is_fed_without_rules(tmp_path: Path) -> None:
    """T-11."""
    words = Words()
    adapter = FakeAdapter(capabilities=ABLE, default=says("complete"))

    async def story(world: World, clock: VirtualClock) -> None:
        world.supervisor.book.load((), RuleSettings(), words)
        assert not world.supervisor.host.rules.active
        await done(world, clock)

    night(tmp_path, story, adapter)
    assert words.fed == 0
