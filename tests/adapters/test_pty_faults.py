"""A terminal program at its worst (recipes T5, T7, T9): nothing is sent twice, into a menu or into a draft."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopsup.ports import AbortReason, Accepted, AgentUnableError, Origin, Prompt, Refused, Stamp, Unknown
from loopsup.shell.leftover import alive
from loopsup.terminal.stage import Seat
from loopsup.testing.recording import Asked, AskOver, RecordingEvents
from loopsup.wire import events as ev
from tests.support.pty_harness import ANY, BY_SILENCE, RESUMABLE, SEEN, PtyHarness, Running, running

pytestmark = pytest.mark.slow

LONG = "[loop iteration]\n" + "".join(f"line {number}: é \x1b[201~\x07 \U0001f501\n" for number in range(300)) + "end"
SAY = [{"say": "Here I am."}]


def drive(harness: PtyHarness, scenario: Callable[[Running], Awaitable[None]], **changes: Any) -> None:
    async def run() -> None:
        async with running(harness, **changes) as it:
            await scenario(it)

    asyncio.run(asyncio.wait_for(run(), 200))


def sit(it: Running) -> tuple[Seat, bytearray]:
    """A person attaches."""
    seen = bytearray()
    return it.agent.stage.join(seen.extend, 30, 100), seen


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(100):
        while not holds():
            await asyncio.sleep(0.05)


def questions(it: Running) -> list[Asked]:
    return [call for call in it.events.calls if isinstance(call, Asked)]


def screen(it: Running) -> str:
    return "\n".join(it.agent.stage.picture.lines())


@pytest.mark.parametrize(
    ("profile", "start"),
    [(SEEN, {}), (BY_SILENCE, {"joined": True}), (SEEN, {"lose_enter": 1})],
    ids=["plain", "joined, by silence", "lost Enter"],
)
def test_a_long_message_arrives_once_and_unharmed(tmp_path: Path, profile: Any, start: dict[str, Any]) -> None:
    """8 kB, many lines, escape bytes in it; a program that takes text and Enter for one paste, or loses an Enter."""
    harness = PtyHarness(tmp_path, profile)
    harness.write([SAY], **start)

    async def scenario(it: Running) -> None:
        assert await it.hand_over(LONG) == Accepted()
        await it.settled()

    drive(harness, scenario)
    assert harness.heard() == [LONG.replace("\x1b", "␛").replace("\x07", "␇")]


def test_what_cannot_be_verified_is_unknown_and_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enter is a new line there, for ever."""
    monkeypatch.setattr("loopsup_pty.writing.TAKEN_S", 2.0)
    harness = PtyHarness(tmp_path)
    harness.write([SAY], enter_is_text=True)

    async def scenario(it: Running) -> None:
        assert isinstance(await it.hand_over(), Unknown)
        assert screen(it).count("[loop iteration]") == 1
        assert it.events.settlements() == []

    drive(harness, scenario)
    assert harness.heard() == []


def test_a_program_that_is_killed_just_before_was_handed_nothing(tmp_path: Path) -> None:
    """The message may be on its way before its end is seen; told is first that it was not sent, then the end."""
    harness = PtyHarness(tmp_path)
    harness.write([SAY])

    async def scenario(it: Running) -> None:
        assert it.agent.pid is not None
        os.kill(it.agent.pid, signal.SIGKILL)
        handed = await it.hand_over()
        assert isinstance(handed, Refused)
        assert (handed.busy, it.events.losses()) == (False, [])
        await it.events.wait_for("`lost`", lambda: bool(it.events.losses()))

    drive(harness, scenario)
    assert harness.heard() == []


def test_a_draft_is_left_alone(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path, RESUMABLE)
    harness.write([SAY])

    async def scenario(it: Running) -> None:
        seat, seen = sit(it)
        assert b"fake tui" in seen
        seat.typed(b"half a thou")
        await until(lambda: "❯ half a thou" in screen(it))
        refused = await it.hand_over()
        assert isinstance(refused, Refused)
        assert (refused.busy, "unsent text stands" in refused.reason) == (True, True)
        assert "❯ half a thou" in screen(it)
        for _ in "half a thou":
            seat.typed(b"\x7f")
        await until(lambda: screen(it).endswith("❯") or "❯\n" in screen(it))
        assert await it.hand_over() == Accepted()
        await it.settled()

    drive(harness, scenario)
    assert harness.heard() == ["[loop iteration]"]


def test_a_person_types_a_message_of_their_own(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path)
    harness.write([[{"hang": True}]])

    async def scenario(it: Running) -> None:
        seat, _ = sit(it)
        seat.typed(b"what is this?\r")
        await until(lambda: it.events.emitted(ev.TURN_START))
        assert isinstance(await it.hand_over(), Refused)
        seat.typed(b"\x1b")
        await it.settled()
        assert it.events.settlements() == [False]

    drive(harness, scenario)
    assert harness.heard() == ["what is this?"]


def test_a_menu_is_shown_and_gets_no_key(tmp_path: Path) -> None:
    """It is over when somebody answers it at the terminal; the run goes on."""
    harness = PtyHarness(tmp_path)
    harness.write([[{"menu": "Delete everything?"}, {"say": "As you say."}]])

    async def scenario(it: Running) -> None:
        assert await it.hand_over() == Accepted()
        await it.events.wait_for("the question", lambda: bool(questions(it)))
        (asked,) = questions(it)
        assert (asked.question.kind, "Delete everything?" in asked.question.text) == ("dialog", True)
        await it.agent.abort(AbortReason.USER)
        await it.agent.answer(asked.question.id, True, "")
        assert harness.kept("key") == []
        assert isinstance(await it.hand_over(), Refused)
        seat, _ = sit(it)
        seat.typed(b"1")
        await it.settled()
        assert AskOver(asked.question.id, "answered in its terminal") in it.events.calls

    drive(harness, scenario)
    assert [item["text"] for item in harness.kept("key")] == ["b'1'"]


def test_a_menu_between_two_iterations_keeps_the_next_one_waiting(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path)
    harness.write([SAY])

    async def scenario(it: Running) -> None:
        (tmp_path / "work" / "x").touch()
        seat, _ = sit(it)
        harness.write([[{"menu": "Sure?"}]])
        seat.typed(b"go\r")
        await it.events.wait_for("the question", lambda: bool(questions(it)))
        assert isinstance(await it.hand_over(), Refused)
        assert harness.kept("key") == []

    drive(harness, scenario)


def test_a_question_nobody_answers_ends_the_program(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path)
    harness.write([[{"menu": "Delete everything?"}]])

    async def scenario(it: Running) -> None:
        await it.hand_over()
        await it.events.wait_for("the question", lambda: bool(questions(it)))
        (asked,) = questions(it)
        await it.agent.answer(asked.question.id, False, "nobody is there")
        await it.events.wait_for("`lost`", lambda: bool(it.events.losses()))
        (reason,) = it.events.losses()
        assert "nobody answered the question" in reason
        assert "Delete everything?" in reason
        assert reason.endswith("(exit status 0)")

    drive(harness, scenario)
    assert harness.kept("key") == []


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"exit": 3, "words": "no licence\r\n"}, "ended at its start: exit status 3; its screen: no licence"),
        ({"question": "Do you trust the authors?"}, "asks a question at its start; run it yourself"),
        ({"plain": True}, "does not take pasted text"),
        ({"mute": True}, "was not at its prompt within"),
    ],
    ids=["ends", "asks", "takes no paste", "shows nothing"],
)
def test_a_start_that_fails_says_why(
    tmp_path: Path, start: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopsup_pty.starting.PASTE_S", 1.0)
    if "mute" in start:
        monkeypatch.setattr("loopsup_pty.starting.READY_S", 3.0)
    harness = PtyHarness(tmp_path)
    harness.write([SAY], **start)

    async def nothing(it: Running) -> None:
        raise AssertionError("it came up")

    with pytest.raises(AgentUnableError) as error:
        drive(harness, nothing)
    assert words in str(error.value)


def test_a_program_that_cannot_be_resumed_says_how_it_could(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path, SEEN)
    harness.write([SAY])

    async def scenario(it: Running) -> None:
        async with running(PtyHarness(tmp_path, SEEN), resume=it.started.conversation):
            pass
        once = PtyHarness(tmp_path, ANY)
        agent = once.adapter.agent(once.launch(it.started.conversation), it.events)
        with pytest.raises(AgentUnableError, match="--resume '--continue' COMMAND"):
            await agent.start()
        await agent.close()

    drive(harness, scenario)


def test_a_flood_is_drained_and_drawn_at_its_end(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path)
    harness.write([[{"flood": 30_000}, {"say": "after the flood"}]])

    async def scenario(it: Running) -> None:
        await it.hand_over()
        await it.settled()
        assert "after the flood" in screen(it)

    drive(harness, scenario)


def test_silence_alone_tells_the_end_of_a_response(tmp_path: Path) -> None:
    """No pattern; a spinner for a while longer than the silence that counts."""
    harness = PtyHarness(tmp_path, BY_SILENCE)
    harness.write([[{"sleep": 7.0}, {"say": "It took a while."}]])

    async def scenario(it: Running) -> None:
        assert await it.hand_over() == Accepted()
        await it.settled()
        assert it.events.emitted(ev.ASSISTANT_MESSAGE)[0]["text"].splitlines()[0] == "It took a while."

    drive(harness, scenario)


def test_a_decision_on_its_way_is_no_silence(tmp_path: Path) -> None:
    """On a busy machine `loopsup control` takes longer than the silence that counts, and nothing moves meanwhile."""
    harness = PtyHarness(tmp_path, BY_SILENCE)
    over = tmp_path / "over"
    work = f"import time; time.sleep(8); open({str(over)!r}, 'w')"
    control = [sys.executable, "-I", "-S", "-c", work, "loopsup", "control", "continue"]
    harness.write([[{"run": control}]], no_work=True, no_frame=True)

    async def scenario(it: Running) -> None:
        assert await it.hand_over() == Accepted()
        await it.settled()
        assert over.exists()

    drive(harness, scenario)


def test_a_prompt_that_is_needed_no_more_is_not_typed(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path)
    harness.write([SAY])

    async def scenario(it: Running) -> None:
        prompt = Prompt("[reminder]", Origin.PROTOCOL, "m", Stamp("loop", 1, 1), wanted=lambda: False)
        assert await it.agent.prompt(prompt) == Refused("it is needed no more")
        assert "[reminder]" not in screen(it)

    drive(harness, scenario)
    assert harness.heard() == []


def test_words_at_once_and_then_silence_are_a_sign(tmp_path: Path) -> None:
    """The line of the message does not become an empty prompt, and nothing moves any more."""
    harness = PtyHarness(tmp_path, RESUMABLE)
    harness.write([[{"hang": True}]], teletype="Let me think about that.")

    async def scenario(it: Running) -> None:
        assert await it.hand_over() == Accepted()

    drive(harness, scenario)


def test_a_person_at_the_keyboard_is_a_sign(tmp_path: Path) -> None:
    """Something moved that has no words; who types into it gets it, and the program is not ended."""
    harness = PtyHarness(tmp_path, RESUMABLE)
    harness.write([[{"hang": True}]], teletype="...")

    async def scenario(it: Running) -> None:
        seat, _ = sit(it)
        handing = asyncio.ensure_future(it.hand_over())
        await until(lambda: "..." in screen(it))
        seat.typed(b"1")
        assert await handing == Accepted()

    drive(harness, scenario)


def test_old_words_in_other_rows_are_no_news(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path)
    old = "these are old words that fill more than one row of a small screen, as everybody can see, and so on"
    harness.write([[{"say": old}], [{"say": "fresh words"}]])

    async def scenario(it: Running) -> None:
        await it.hand_over()
        await it.settled()
        before = it.agent.stage.picture.lines()
        it.agent.stage.join(lambda _: None, 30, 60)
        await until(lambda: it.agent.stage.picture.lines() != before and "❯" in screen(it))
        await it.hand_over("[second]")
        await it.settled(2)
        said = [event["text"] for event in it.events.emitted(ev.ASSISTANT_MESSAGE)]
        assert old in said[0]
        assert "fresh words" in said[1]
        assert "old words" not in said[1]
        assert "and so on" not in said[1]

    drive(harness, scenario)


def test_a_program_that_is_not_there_is_told_in_words(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path, ANY)

    async def scenario() -> None:
        agent = harness.adapter.agent(harness.launch(args=("nosuchprog",)), RecordingEvents())
        with pytest.raises(AgentUnableError, match=r"^the command nosuchprog cannot be executed \(not on PATH"):
            await agent.start()
        await agent.close()

    asyncio.run(scenario())


def test_a_stubborn_program_and_its_child_do_not_survive(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path)
    harness.write([[{"hang": True}]], ignore_hup=True, ignore_escape=True, grandchild=True)
    family: list[psutil.Process] = []

    async def scenario(it: Running) -> None:
        await it.hand_over()
        assert it.agent.pid is not None
        leader = psutil.Process(it.agent.pid)
        family.extend([leader, *leader.children(recursive=True)])
        assert len(family) == 2

    drive(harness, scenario)
    assert not any(map(alive, family))


def test_what_would_be_a_command_there_is_refused(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path)
    harness.write([SAY])

    async def scenario(it: Running) -> None:
        refused = await it.hand_over("!rm -rf x")
        assert isinstance(refused, Refused)
        assert (refused.busy, "cannot begin with / or !" in refused.reason) == (False, True)

    drive(harness, scenario)
    assert harness.heard() == []


def test_who_comes_late_sees_the_screen_and_all_see_all_of_it(tmp_path: Path) -> None:
    harness = PtyHarness(tmp_path)
    harness.write([SAY])

    async def scenario(it: Running) -> None:
        stage = it.agent.stage
        wide, tall = bytearray(), bytearray()
        first = stage.join(wide.extend, 20, 100)
        second = stage.join(tall.extend, 50, 60)
        assert stage.picture.size == (20, 60)
        for seen in (wide, tall):
            assert b"fake tui" in seen
            assert b"\x1b[?2004h" in seen
        first.leave()
        assert stage.picture.size == (50, 60)
        second.leave()
        assert stage.picture.size == (50, 60)
        await until(lambda: stage.quiet_s > 0.5)
        assert await it.hand_over() == Accepted()
        await it.settled()

    drive(harness, scenario)
