"""Checks of abort, crash, close and resume."""

from __future__ import annotations

import os
import signal

import psutil

from loopsup.ports import AbortReason, AgentUnableError, Doing, Marker, Refused
from loopsup.testing.driving import driven, require
from loopsup.testing.harness import Hang, Harness, Talk
from loopsup.testing.recording import Lost, RecordingEvents
from loopsup.testing.talking import paired
from loopsup.wire import events as wire


async def aborts(harness: Harness) -> None:
    """`abort` ends the response: an `abort` event with the reason, closed turns, one `settled(aborted=True)`."""
    async with driven(harness, Hang(), Talk()) as it:
        if not it.can.abort:
            return
        await it.working()
        await it.agent.abort(AbortReason.WATCHDOG)
        await it.events.wait_for("`settled` after `abort`", lambda: bool(it.events.settlements()))
        require(it.events.settlements() == [True], "an aborted run must give `settled(aborted=True)`")
        reasons = [data["reason"] for data in it.events.emitted(wire.ABORT)]
        require(reasons == ["watchdog"], f"emit `abort` once, with the reason that was given; got {reasons}")
        require(
            it.events.now_doing() is Doing.NOTHING, "`doing(NOTHING)` must have been said when `settled` is called"
        )
        paired(it.events)
        await it.round()
    require(it.events.settlements() == [True, False], "after an abort the next prompt must work and settle once")


async def ignores_an_abort_when_idle(harness: Harness) -> None:
    """`abort` on an idle agent does nothing, now and to the next prompt."""
    async with driven(harness, Talk()) as it:
        await it.agent.abort(AbortReason.USER)
        await it.round()
        await it.agent.abort(AbortReason.USER)
    require(it.events.settlements() == [False], "an abort of an idle agent must not settle or abort anything")
    require(not it.events.emitted(wire.ABORT), "do not emit `abort` where nothing was aborted")


async def tells_its_loss(harness: Harness) -> None:
    """A process that dies is told once, with its exit status, as the last thing; its turn is closed before."""
    async with driven(harness, Hang()) as it:
        pid = it.agent.pid
        if pid is None:
            return
        await it.working()
        os.kill(pid, signal.SIGKILL)
        await it.events.wait_for("`lost`", lambda: bool(it.events.losses()))
        words = it.events.losses()[0]
        require("9" in words or "KILL" in words, f"`lost` must name the exit status or signal, not {words!r}")
        require(not it.events.settlements(), "do not call `settled` for a run whose process died: `lost` says it")
        require(it.agent.pid is None, "`pid` must be None once the process has ended")
        paired(it.events)
        after = await it.hand_over("are you there?", stamp=None)
        require(isinstance(after, Refused), f"`prompt` to a dead agent must give Refused, not {after}")
    require(isinstance(it.events.calls[-1], Lost), f"`lost` must be the last call; {it.events.tail()}")
    require(len(it.events.losses()) == 1, "`lost` must be called once")


async def closes_without_a_survivor(harness: Harness) -> None:
    """`close` of a working agent ends its whole process tree, is not told as a loss, and may be repeated."""
    async with driven(harness, Hang()) as it:
        await it.working()
        family = _family(it.agent.pid)
        await it.agent.close()
        left = [member for member in family if _alive(member)]
        require(not left, f"`close` must leave no process of the agent; still there: {left}")
        require(it.agent.pid is None, "`pid` must be None after `close`")
        said = len(it.events.calls)
        await it.agent.close()
    require(not it.events.losses(), "`lost` is for processes that end by themselves, not for `close`")
    require(len(it.events.calls) == said, "nothing may be called after `close` has returned")


async def closes_before_it_started(harness: Harness) -> None:
    """`close` of an agent that was never started does nothing."""
    harness.script(Talk())
    events = RecordingEvents()
    await harness.adapter.agent(harness.launch(), events).close()
    require(not events.calls, "`close` of an agent that never started must call nothing")


async def resumes(harness: Harness) -> None:
    """A new process goes on with the conversation (capability `resume`), or `start` refuses to pretend."""
    async with driven(harness, Talk("one"), Talk("two")) as it:
        await it.round("[loop iteration]\nfirst")
        conversation = it.started.conversation
    if not it.can.resume:
        try:
            async with driven(harness, resume=conversation):
                pass
        except AgentUnableError:
            return
        require(False, "without the capability `resume`, `start` must raise AgentUnableError for a conversation")
    async with driven(harness, resume=conversation) as again:
        require(
            again.started.conversation == conversation,
            f"the resumed conversation must be {conversation}, not {again.started.conversation}",
        )
        await again.round("[loop iteration]\nsecond")
    heard = harness.heard()
    require(
        heard == ["[loop iteration]\nfirst", "[loop iteration]\nsecond"],
        f"after a resume the model must see the earlier messages; it got {heard}",
    )


async def keeps_its_marker(harness: Harness) -> None:
    """Capability `branches`: the newest marker comes back with the conversation, unseen by the model."""
    async with driven(harness, Talk("one"), Talk("two")) as it:
        require(it.started.marker is None, "a new conversation has no marker")
        if not it.can.branches:
            return
        await it.round("first")
        for seq in (3, 4):
            await it.agent.mark(Marker("00000000-0000-4000-8000-000000000001", seq))
    async with driven(harness, resume=it.started.conversation) as again:
        marker = again.started.marker
        require(
            marker == Marker("00000000-0000-4000-8000-000000000001", 4),
            f"`AgentStarted.marker` must be the newest one on the present branch, not {marker}",
        )
        require(again.started.newest == marker, "on the only branch `AgentStarted.newest` must be the same marker")
        await again.round("second")
    require(harness.heard() == ["first", "second"], f"the marker must not reach the model; it got {harness.heard()}")


def _alive(member: psutil.Process) -> bool:
    try:
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two questions
        return False


def _family(pid: int | None) -> list[psutil.Process]:
    if pid is None:
        return []
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]
