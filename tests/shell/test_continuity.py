"""Recovery through the real supervisor on a virtual clock: when the model is asked, and what ends a wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from loopsup.core.continuity import NOTHING
from loopsup.core.events import Pause, Stop
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND
from loopsup.core.overrides import Overrides
from loopsup.ports import AbortReason, Boundary, Capabilities, Doing, Interruption, Plan, Prompt
from loopsup.shell import continuity
from loopsup.store.config import ContinuityConfig
from loopsup.store.identity import load_identity
from loopsup.store.limits import SharedLimits
from loopsup.wire.times import instant
from tests.shell.world import World, night
from tests.support.fake_agent import ALL, Act, FakeAdapter, FakeAgent, does
from tests.support.script import T0, call, policy_of
from tests.support.virtual import VirtualClock, run_virtual

ABLE = replace(ALL, rewind=True, continue_without_message=True)
LIMIT = "429: usage limit reached. Try again in 300 min"
CODEX = "Codex error: The usage limit has been reached"
OPEN = "fetch failed"


@dataclass
class Model:
    """What the model does request by request: a stop reason, an error message, or a verb of `loop_control`."""

    endings: deque[str]
    default: str = "continue"
    asked: list[int] = field(default_factory=list)  # ms after T0
    plans: list[Plan] = field(default_factory=list)

    def act(self, clock: VirtualClock) -> Act:
        async def job(agent: FakeAgent, prompt: Prompt) -> None:
            while True:
                self.asked.append(clock.now().mono - T0.mono)
                if not await self._turn(agent, prompt):
                    agent.settle()
                    return

        return does(job)

    async def _turn(self, agent: FakeAgent, prompt: Prompt) -> bool:
        """One request as Pi makes it; whether another follows."""
        ending = self.endings.popleft() if self.endings else self.default
        agent.begin_turn()
        if ending in ("continue", "complete"):
            if prompt.stamp is not None:
                await agent.decide(prompt.stamp, call(ending))
            agent.end_turn("toolUse")
            return False
        if ending in ("stop", "empty"):
            agent.end_turn("stop")
            turn = Interruption(Boundary.SETTLE, "stop", substance=ending == "stop")
        elif ending == "length":
            agent.end_turn("length")
            turn = Interruption(Boundary.TURN, "length")
        else:
            agent.end_turn("error", error=ending)
            turn = Interruption(Boundary.TURN, "error", ending)
        agent.events.doing(Doing.MODEL)  # an agent that says so would be silent for hours
        return await self._plan(agent, turn)

    async def _plan(self, agent: FakeAgent, turn: Interruption) -> bool:
        while True:
            self.plans.append(plan := await agent.events.interrupted(turn))
            if plan.resume or plan.end or turn.boundary is Boundary.SETTLE:
                return plan.resume
            turn = replace(turn, boundary=Boundary.SETTLE)


Story = Callable[[World, VirtualClock, Model], Awaitable[None]]


def play(
    folder: Path, endings: list[str], story: Story, *, default: str = "continue", **named: Any
) -> tuple[Model, World]:
    model = Model(deque(endings), default)
    adapter = FakeAdapter(capabilities=named.pop("capabilities", ABLE))

    async def whole(world: World, clock: VirtualClock) -> None:
        adapter.default = model.act(clock)
        await story(world, clock, model)

    return model, night(folder, whole, adapter, **named)


def started(
    endings: list[str], folder: Path, seconds: float, **named: Any
) -> tuple[Model, World, tuple[str, str | None]]:
    """One loop, left alone for a while."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(seconds)
        places.append(world.place)

    places: list[tuple[str, str | None]] = []
    model, world = play(folder, endings, story, **named)
    return model, world, places[0]


def recoveries(world: World) -> list[tuple[str, int, int]]:
    return [(d["kind"], d["attempt"], d["waitMs"]) for d in (e["data"] for e in world.events("continuity.recovery"))]


@pytest.mark.parametrize(("text", "wait"), [(LIMIT, 5 * HOUR), ("Try again in ~300 min", 5 * HOUR + 30 * SECOND)])
def test_a_five_hour_limit_costs_one_request_at_its_very_end(tmp_path: Path, text: str, wait: int) -> None:
    """C-72: nothing before; the silence watchdog and the reaper leave the wait alone (X-25)."""
    model, world, place = started([text], tmp_path, 6 * 3600, hold_open=False)
    assert model.asked == [0, wait]
    assert place == ("waiting", None)
    assert (world.loop.iteration_count, world.loop.prompts_sent, world.loop.llm_calls) == (1, 1, 2)
    assert recoveries(world) == [("usage_limit", 1, wait)]
    assert [e["type"] for e in world.events("abort", "loop.notice")] == []


def test_a_clock_set_back_does_not_end_it_early_and_a_night_asleep_does_not_lengthen_it(tmp_path: Path) -> None:
    """Case 155."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(3600)
        clock.move_wall(-HOUR)
        world.supervisor.touch()
        await asyncio.sleep(4 * 3600 - 1)
        assert model.asked == [0]
        await asyncio.sleep(2)
        assert model.asked == [0, 5 * HOUR]

    play(tmp_path, [LIMIT], story)

    async def asleep(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(3600)
        clock.move_wall(8 * HOUR)  # the lid was closed: the monotonic clock stood still
        world.supervisor.touch()
        await asyncio.sleep(1)
        assert model.asked == [0, HOUR]

    (tmp_path / "asleep").mkdir()
    play(tmp_path / "asleep", [LIMIT], asleep)


def test_a_limit_without_guidance_is_polled_for_five_hours(tmp_path: Path) -> None:
    """C-46; the reminder after it is no request of its own, a new iteration is (X-08, C-47)."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("1m", for_="366d"))
        await asyncio.sleep(5 * 3600 + 1)
        polled = [n * 10 * MINUTE for n in range(31)]
        assert model.asked == [*polled, 5 * HOUR]  # and the reminder, at once and once
        assert world.place == ("paused", "protocol_error")
        assert world.loop.prompts_sent == 2
        assert CODEX in str(world.loop.last_attention)
        await world.ask("resume")
        await asyncio.sleep(10 * 3600)
        assert len(model.asked) == 32 + 33 + 1

    _, world = play(tmp_path, [], story, default=CODEX)
    assert len(recoveries(world)) == 30 + 32
    assert len(world.notices()) == 4


def test_a_stream_that_stays_broken(tmp_path: Path) -> None:
    model, world, place = started([OPEN] * 12, tmp_path, 600)
    steps = [b - a for a, b in zip(model.asked, model.asked[1:], strict=False)]
    assert steps == [5000] * 3 + [10_000] * 9
    assert place == ("waiting", None)
    assert recoveries(world) == [("stream", n, 5000 if n <= 3 else 10_000) for n in range(1, 13)]


def test_sixteen_at_once_and_no_more_in_one_iteration(tmp_path: Path) -> None:
    """Case 145; X-08: the reminder has no budget of its own."""
    model, world, place = started([], tmp_path, 600, default="length")
    assert len(model.asked) == 17 + 1
    assert recoveries(world) == [("length", n, 0) for n in range(1, 17)]
    told = "the response was interrupted and is not continued: all 16 recoveries (length) of this request are used"
    assert world.notices() == [told, told]
    assert place == ("paused", "protocol_error")


def test_each_iteration_has_its_own_budget(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("1m"))
        await asyncio.sleep(90)
        assert world.loop.iteration_count == 2
        assert world.loop.llm_calls == 2 * 17

    play(tmp_path, [*(["length"] * 16), "continue"] * 2, story)


Ending = Callable[[World], Awaitable[Any] | Any]


@pytest.mark.parametrize(
    ("end", "place"),
    [
        (lambda w: w.command(Pause()), ("paused", "user")),
        (lambda w: w.command(Stop()), ("stopped", None)),
        (lambda w: w.ask("abort"), ("paused", "interrupted")),
    ],
    ids=["pause", "stop", "abort"],
)
@pytest.mark.parametrize("ending", [LIMIT, CODEX, OPEN], ids=["timed", "poll", "stream"])
def test_what_a_person_wants_comes_at_once(tmp_path: Path, ending: str, end: Ending, place: tuple[str, str]) -> None:
    """X-20, case 219, C-66, C-67: no request, one settlement, no attention."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(4)
        result = end(world)
        if asyncio.iscoroutine(result):
            await result
        await asyncio.sleep(0.001)
        assert world.place == place
        assert world.supervisor.status()["loop"]["recovery"] is None
        assert not world.supervisor.host.working
        await asyncio.sleep(3600)
        assert model.asked == [0]

    _, world = play(tmp_path, [ending], story)
    assert [e["data"] for e in world.events("abort")] == [{"reason": "user"}]
    assert world.events("loop.attention") == []


def test_the_deadline_ends_the_wait_at_its_instant(tmp_path: Path) -> None:
    """X-19, case 85: a wait from +20h to +25h, the deadline at +24h; one event, and no request any more."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("1h"), after_ms=20 * HOUR)
        await asyncio.sleep(24 * 3600 - 1)
        assert world.supervisor.status()["loop"]["recovery"]["until"] == instant(T0.wall + 25 * HOUR)
        await asyncio.sleep(1.01)
        assert world.place == ("paused", "duration_limit")
        assert not world.supervisor.host.working
        assert world.loop.last_attention is not None
        assert world.loop.last_attention.ended_at == world.loop.last_attention.observed_at == T0.wall + DAY
        await asyncio.sleep(10 * 3600)
        assert model.asked == [20 * HOUR]

    _, world = play(tmp_path, [LIMIT], story)
    assert len(world.events("loop.attention")) == 1


def test_a_move_to_another_branch_ends_the_wait(tmp_path: Path) -> None:
    """Case 213, C-18: at once, without a request, and nothing of it stays in the status."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(60)
        world.adapter.newest.events.branch(None)
        await asyncio.sleep(0.9)
        assert world.supervisor.loop is None
        assert not world.supervisor.host.working
        assert not world.supervisor.host.recovery.waiting
        assert world.supervisor.host.recovery.status() is None
        await asyncio.sleep(6 * 3600)
        assert model.asked == [0]

    play(tmp_path, [LIMIT], story, capabilities=replace(ABLE, branches=True))


@pytest.mark.parametrize("capabilities", [ABLE, ALL], ids=["silent", "redelivered"])
def test_case_221_nobody_reloads_or_reaps_in_the_middle_of_a_wait(tmp_path: Path, capabilities: Capabilities) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        if capabilities is ALL:
            world.adapter.default = tells(model, clock)
        world.start(policy_of("23h"))
        await asyncio.sleep(2 * 3600)
        assert world.supervisor.status()["loop"]["recovery"]["until"] == instant(T0.wall + 5 * HOUR)
        assert not world.supervisor.at_rest
        assert (await world.ask("reap")).error is not None
        await asyncio.sleep(4 * 3600)
        assert world.place == ("waiting", None)
        assert world.supervisor.at_rest
        assert model.asked == [0, 5 * HOUR]

    play(tmp_path, [LIMIT], story, hold_open=False, capabilities=capabilities)


def test_case_221_a_wait_of_a_persons_own_turn_is_no_rest_either(tmp_path: Path) -> None:
    """X-25: no loop holds the session, nobody follows, and the wait is 900 times the grace."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        await world.ask("say", text="hello")
        await asyncio.sleep(4 * 3600)
        assert world.ended is None
        assert not world.supervisor.at_rest
        await world.over()
        assert world.ended == "idle"
        assert model.asked == [0, 5 * HOUR]

    play(tmp_path, [LIMIT, "stop"], story, hold_open=False)


@pytest.mark.parametrize("ending", [LIMIT, CODEX, OPEN], ids=["timed", "poll", "stream"])
def test_a_message_ends_the_wait_and_is_delivered(tmp_path: Path, ending: str) -> None:
    """Cases 154 and 211: the budget is unspent, the message first, then the iteration's reminder."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(4.9)
        assert await world.say("hurry up") == ""
        await asyncio.sleep(0.01)
        assert model.asked == [0, 4900, 4900]
        assert world.supervisor.host.recovery._budget.total == 0

    _, world = play(tmp_path, [ending, "stop", "continue"], story)
    assert [p.origin.value for p in world.adapter.prompts] == ["loop", "user", "protocol"]
    assert world.notices() == ["the wait was ended: a message came in"]


def test_off_ends_the_wait_and_stays(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(60)
        done = await world.ask("update", continuity={"enabled": False})
        assert (done.error, done.message) == (None, "interrupted responses are left as they are")
        await asyncio.sleep(0.01)
        assert model.asked == [0, 60_000]  # the reminder
        assert world.place == ("waiting", None)
        assert load_identity(world.folder).continuity == Overrides(enabled=False)
        done = await world.ask("update", continuity={"enabled": True})
        assert done.message == "interrupted responses are recovered"
        assert load_identity(world.folder).continuity == Overrides(enabled=True)

    _, world = play(tmp_path, [LIMIT], story)
    assert world.notices() == ["the wait was ended: recovery was switched off"]


def test_closing_does_not_wait(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(60)
        await world.close()
        assert clock.now().mono - T0.mono < 61_000
        assert world.place == ("paused", "session_closed")

    play(tmp_path, [LIMIT], story)


def test_status_shows_the_wait_its_reason_and_its_end(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(60)
        shown = {"kind": "usage_limit", "mode": "silent", "attempt": 1, "of": 16}
        assert world.supervisor.status()["loop"]["recovery"] == {**shown, "until": instant(T0.wall + 5 * HOUR)}
        await asyncio.sleep(5 * 3600)
        assert world.supervisor.status()["loop"]["recovery"] is None

    play(tmp_path, [LIMIT], story)


def test_a_start_says_how_this_loop_is_recovered(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        policy = {"rhythm": 3_600_000, "minDelayMs": 60_000, "maxDelayMs": 86_400_000, "forMs": 86_400_000}
        said = {"maxResumes": 2, "streamDelayMs": 0}
        args = {"objective": "look", "policy": {**policy, "maxIterations": 50}}
        assert (await world.ask("start", **args, continuity=said)).error is None
        await asyncio.sleep(1)
        assert len(model.asked) == 3 + 1
        assert load_identity(world.folder).continuity == Overrides(None, 2, 0)
        wrong = await world.ask("update", continuity={"enabled": "no"})
        assert wrong.error is not None
        await world.ask("stop")
        assert (await world.ask("start", **args)).error is None
        assert load_identity(world.folder).continuity == Overrides()

    play(tmp_path, [OPEN] * 4, story)


def test_nothing_is_planned_for_an_agent_that_cannot(tmp_path: Path) -> None:
    model, world, _ = started(["length"], tmp_path, 60, capabilities=ALL)
    assert model.plans == [NOTHING, NOTHING]
    assert world.loop.prompts_sent == 2  # it was handed over again
    assert world.loop.protocol_retry_count == 0


def test_a_decision_is_the_last_word(tmp_path: Path) -> None:
    """X-01: whatever ends the turn afterwards."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        async def job(agent: FakeAgent, prompt: Prompt) -> None:
            agent.begin_turn()
            await agent.decide(prompt.stamp, call("complete"))
            agent.end_turn("error", error=OPEN)
            model.plans.append(await agent.events.interrupted(Interruption(Boundary.SETTLE, "error", OPEN)))
            agent.settle()

        world.adapter.default = does(job)
        world.start(policy_of("23h"))
        await asyncio.sleep(1)
        assert world.place == ("completed", None)
        assert model.plans == [NOTHING]

    play(tmp_path, [], story)


def test_an_aborted_run_is_told_to_end(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        async def job(agent: FakeAgent, prompt: Prompt) -> None:
            agent.begin_turn()
            run = world.supervisor.host.run
            assert run is not None
            run.aborted = AbortReason.TTSR
            model.plans.append(await agent.events.interrupted(Interruption(Boundary.TURN, "length")))
            agent.end_turn("length")
            agent.settle()

        world.adapter.default = does(job)
        world.start(policy_of("23h"))
        await asyncio.sleep(0.01)
        assert model.plans[0] == Plan(end=True)
        assert world.supervisor.host.recovery._budget.total == 0
        await world.ask("stop")

    play(tmp_path, [], story)


@pytest.mark.parametrize(
    ("config", "said", "on", "most"),
    [
        (ContinuityConfig(), Overrides(), True, 16),
        (ContinuityConfig(enabled=False), Overrides(), False, 16),
        (ContinuityConfig(enabled=False), Overrides(enabled=True), True, 16),
        (ContinuityConfig(), Overrides(enabled=False), False, 16),
        (ContinuityConfig(max_resumes=3), Overrides(), True, 3),
        (ContinuityConfig(max_resumes=3), Overrides(max_resumes="unlimited"), True, None),
        (ContinuityConfig(max_resumes="unlimited"), Overrides(max_resumes=0), False, 0),
        (ContinuityConfig(enabled=False, problem="x"), Overrides(enabled=True), False, 16),
    ],
)
def test_what_is_in_force(config: ContinuityConfig, said: Overrides, on: bool, most: int | None) -> None:
    made = continuity.settings(config, said)
    assert (made.on, made.max_resumes) == (on, most)


# ---- agents that cannot go on silently --------------------------------------------------------------


def tells(model: Model, clock: VirtualClock) -> Act:
    """Each prompt is one turn; nobody is asked about its end."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        model.asked.append(clock.now().mono - T0.mono)
        ending = model.endings.popleft() if model.endings else model.default
        agent.begin_turn()
        if ending in ("continue", "complete"):
            if prompt.stamp is not None:
                await agent.decide(prompt.stamp, call(ending))
            agent.end_turn("toolUse")
        elif ending in ("stop", "length"):
            agent.end_turn(ending, text="words")
        else:
            agent.end_turn("error", error=ending)
        agent.settle()

    return does(job)


def plain(folder: Path, endings: list[str], story: Story, *, default: str = "continue") -> tuple[Model, World]:
    model = Model(deque(endings), default)
    adapter = FakeAdapter()

    async def whole(world: World, clock: VirtualClock) -> None:
        adapter.default = tells(model, clock)
        await story(world, clock, model)

    return model, night(folder, whole, adapter)


def test_an_interrupted_iteration_is_handed_over_again_and_counted_once(tmp_path: Path) -> None:
    """The output limit at once, a broken stream after its delay, a usage limit after its time."""

    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(1)
        assert world.supervisor.status()["loop"]["recovery"] == {
            "kind": "stream",
            "mode": "redelivered",
            "attempt": 1,
            "of": 12,
            "until": instant(T0.wall + 5000),
        }
        await asyncio.sleep(6 * 3600)
        assert model.asked == [0, 0, 5000, 5000 + 5 * HOUR]
        assert world.place == ("waiting", None)
        assert (world.loop.iteration_count, world.loop.prompts_sent, world.loop.llm_calls) == (1, 4, 4)
        assert world.loop.protocol_retry_count == 0
        assert world.supervisor.status()["loop"]["recovery"] is None

    _, world = plain(tmp_path, ["length", OPEN, LIMIT], story)
    assert recoveries(world) == [("length", 1, 0), ("stream", 1, 5000), ("usage_limit", 3, 5 * HOUR)]
    assert [p.origin.value for p in world.adapter.prompts] == ["loop"] * 4
    assert {p.text.split("\n")[2] for p in world.adapter.prompts} == {"Iteration: 1 of 50"}


def test_at_most_the_budget_then_the_reminder(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(3600)
        assert len(model.asked) == 17 + 1
        assert world.place == ("paused", "protocol_error")
        assert (world.loop.iteration_count, world.loop.prompts_sent) == (1, 18)

    _, world = plain(tmp_path, [], story, default="length")
    assert len(recoveries(world)) == 16
    assert len(world.notices()) == 2


def test_a_reminder_that_was_interrupted_stays_the_reminder(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(60)
        assert world.place == ("waiting", None)

    _, world = plain(tmp_path, ["stop", OPEN, "continue"], story)
    assert [p.origin.value for p in world.adapter.prompts] == ["loop", "protocol", "protocol"]
    assert world.loop.protocol_retry_count == 1


@pytest.mark.parametrize(
    ("command", "place"), [(Pause(), ("paused", "user")), (Stop(), ("stopped", None))], ids=["pause", "stop"]
)
def test_a_redelivery_that_waits_is_ended_at_once(
    tmp_path: Path, command: Any, place: tuple[str, str | None]
) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(60)
        world.command(command)
        assert world.place == place
        assert world.supervisor.status()["loop"]["recovery"] is None
        await asyncio.sleep(6 * 3600)
        assert model.asked == [0]

    plain(tmp_path, [LIMIT], story)


def test_the_deadline_ends_a_redelivery_that_waits(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("1h", for_="2h"))
        await asyncio.sleep(2 * 3600 + 0.01)
        assert world.place == ("paused", "duration_limit")
        await asyncio.sleep(6 * 3600)
        assert model.asked == [0]

    plain(tmp_path, [LIMIT], story)


@pytest.mark.parametrize("error", ["401", "429 insufficient_quota", "prompt is too long", "what?"])
def test_what_is_terminal_gets_its_reminder(tmp_path: Path, error: str) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(60)

    _, world = plain(tmp_path, [error], story)
    assert [p.origin.value for p in world.adapter.prompts] == ["loop", "protocol"]


# ---- sessions of one account --------------------------------------------------------------------------


def test_one_session_asks_for_all(tmp_path: Path) -> None:
    """Three loops at the limit of one account: one request each ten minutes, and all go on when it is answered."""
    models = [Model(deque([CODEX] * most)) for most in (4, 1, 1)]

    async def whole(clock: VirtualClock) -> None:
        async with contextlib.AsyncExitStack() as stack:
            worlds = []
            for number, model in enumerate(models):
                adapter = FakeAdapter(capabilities=ABLE, default=model.act(clock))
                world = await stack.enter_async_context(World(clock, tmp_path / str(number), adapter))
                world.supervisor.host.recovery.share = SharedLimits(tmp_path / "limits", str(number))
                worlds.append(world)
                world.start(policy_of("23h"))
                await asyncio.sleep(1)
            shown = worlds[1].supervisor.status()["loop"]["recovery"]
            assert shown["until"] == instant(T0.wall + 10 * MINUTE + 5 * SECOND)
            await asyncio.sleep(2 * 3600)
            assert [world.place for world in worlds] == [("waiting", None)] * 3

    run_virtual(whole)
    assert models[0].asked == [n * 10 * MINUTE for n in range(5)]
    for model in models[1:]:
        first, again = model.asked
        assert first < 3 * SECOND
        assert 40 * MINUTE < again < 42 * MINUTE


def test_one_session_asks_for_all_where_iterations_are_handed_over_again(tmp_path: Path) -> None:
    models = [Model(deque([CODEX] * most)) for most in (4, 1, 1)]

    async def whole(clock: VirtualClock) -> None:
        async with contextlib.AsyncExitStack() as stack:
            worlds = []
            for number, model in enumerate(models):
                adapter = FakeAdapter(default=tells(model, clock))
                world = await stack.enter_async_context(World(clock, tmp_path / str(number), adapter))
                world.supervisor.host.recovery.share = SharedLimits(tmp_path / "limits", str(number))
                worlds.append(world)
                world.start(policy_of("23h"))
                await asyncio.sleep(1)
            await asyncio.sleep(2 * 3600)
            assert [world.place for world in worlds] == [("waiting", None)] * 3
            assert [world.loop.iteration_count for world in worlds] == [1] * 3

    run_virtual(whole)
    assert models[0].asked == [n * 10 * MINUTE for n in range(5)]
    for model in models[1:]:
        first, again = model.asked
        assert first < 3 * SECOND
        assert 40 * MINUTE < again < 42 * MINUTE


def test_a_session_that_died_is_replaced(tmp_path: Path) -> None:
    async def story(world: World, clock: VirtualClock, model: Model) -> None:
        gone = SharedLimits(tmp_path / "limits", "gone")
        gone.take("fake-", T0.wall + 60_000, T0.wall)
        world.supervisor.host.recovery.share = SharedLimits(tmp_path / "limits", "me")
        world.start(policy_of("23h"))
        await asyncio.sleep(3600)
        assert model.asked == [0, 65_000]
        assert SharedLimits(tmp_path / "limits", "x").is_open("fake-")

    play(tmp_path, [CODEX], story)


def test_abort_and_off_end_a_redelivery_that_waits(tmp_path: Path) -> None:
    async def aborted(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(60)
        assert (await world.ask("abort")).error is None
        assert world.place == ("paused", "interrupted")
        assert (await world.ask("abort")).error is not None

    async def off(world: World, clock: VirtualClock, model: Model) -> None:
        world.start(policy_of("23h"))
        await asyncio.sleep(60)
        assert (await world.ask("update", continuity={"enabled": False})).error is None
        await asyncio.sleep(1)
        assert model.asked == [0, 60_000]
        assert [p.origin.value for p in world.adapter.prompts] == ["loop", "protocol"]

    for name, story in (("a", aborted), ("b", off)):
        (tmp_path / name).mkdir()
        plain(tmp_path / name, [LIMIT], story)
