"""Questions of the agent: the policy, a person, or time answers them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopsup.core.limits import MINUTE
from loopsup.ports import Doing, Permissions, Prompt, Question
from tests.shell.world import World, night
from tests.support.fake_agent import FakeAdapter, FakeAgent, does, says
from tests.support.script import T0, call
from tests.support.virtual import VirtualClock

BASH = Question("q1", "permission", "bash", "rm -r build")
DIALOG = Question("d1", "dialog", "", "which branch?")


def _asking(*questions: Question) -> FakeAdapter:
    """An iteration that asks and goes on when all has been answered."""

    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.events.doing(Doing.TOOL)
        for question in questions:
            agent.events.ask(question)
        while len(agent.answers) < len(questions):
            await asyncio.sleep(1)
        await agent.decide(prompt.stamp, call("continue"))
        agent.end_turn()
        agent.settle()

    adapter = FakeAdapter(default=says("continue"))
    adapter.acts.append(does(job))
    return adapter


POLICY = [
    (Permissions(mode="allow"), True),
    (Permissions(mode="deny"), False),
    (Permissions(allow=("bash",)), True),
    (Permissions(deny=("bash",)), False),
    (Permissions(mode="allow", deny=("bash",)), False),
    (Permissions(mode="deny", allow=("bash",)), True),
    (Permissions(allow=("bash",), deny=("bash",)), False),
    (Permissions(mode="deny", allow_all=True), True),
    (Permissions(deny=("bash",), allow_all=True), False),
]


@pytest.mark.parametrize(("permissions", "allowed"), POLICY)
def test_the_policy_answers_at_once(tmp_path: Path, permissions: Permissions, allowed: bool) -> None:
    agent = _asking(BASH)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(2)
        text = "" if allowed else "The permission policy denies this."
        assert agent.newest.answers == [("q1", allowed, text)]
        assert world.place == ("waiting", None)

    world = night(tmp_path, story, agent, permissions=permissions)
    outcome = "allowed" if allowed else "denied"
    assert [e["data"] for e in world.events("permission.requested", "permission.completed")] == [
        {"id": "q1", "tool": "bash", "text": "rm -r build"},
        {"id": "q1", "outcome": outcome, "by": "policy"},
    ]


@pytest.mark.parametrize(
    ("permissions", "question"),
    [
        (Permissions(), BASH),
        (Permissions(allow=("read",)), BASH),
        (Permissions(mode="allow"), DIALOG),
        (Permissions(allow_all=True), DIALOG),
        (Permissions(mode="deny"), DIALOG),
    ],
)
def test_nobody_answers(tmp_path: Path, permissions: Permissions, question: Question) -> None:
    agent = _asking(question)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(60)
        shown = world.supervisor.status()["loop"]["question"]
        assert (shown["id"], shown["since"], shown["expiresAt"]) == (
            question.id,
            "2026-10-10T00:00:00.000Z",
            "2026-10-10T00:05:00.000Z",
        )
        await asyncio.sleep(239)
        assert agent.newest.answers == []
        await asyncio.sleep(3)
        (id_, allow, text) = agent.newest.answers[0]
        assert (id_, allow) == (question.id, False)
        assert text.startswith("No person answered within 5m; treat this as denied.")
        assert "block" in text
        assert world.place == ("waiting", None)
        assert world.supervisor.status()["loop"]["question"] is None

    world = night(tmp_path, story, agent, permissions=permissions)
    assert [e["data"]["by"] for e in world.events("permission.completed")] == ["timeout"]


def test_the_wall_clock_does_not_answer(tmp_path: Path) -> None:
    agent = _asking(BASH)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(60)
        clock.move_wall(30 * MINUTE)
        world.supervisor.touch()
        await asyncio.sleep(60)
        assert agent.newest.answers == []

    night(tmp_path, story, agent)


def test_several_at_once(tmp_path: Path) -> None:
    second = Question("q2", "permission", "write", "notes.txt")
    agent = _asking(BASH, second, DIALOG)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        unknown = await world.ask("answer", allow=True, id="q9")
        assert unknown.error is not None
        assert unknown.error.message == "there is no pending question q9"
        assert (await world.ask("answer", allow=False, id="q2")).message == "the question is answered: denied"
        assert (await world.ask("answer", allow=True)).message == "the question is answered: allowed"
        assert agent.newest.answers == [("q2", False, "The person denies this."), ("q1", True, "")]
        assert world.supervisor.status()["loop"]["question"]["id"] == "d1"
        again = await world.ask("answer", allow=True, id="q1")
        assert again.error is not None
        assert again.error.exit == 4
        await asyncio.sleep(301)
        assert [answer[0] for answer in agent.newest.answers] == ["q2", "q1", "d1"]
        none = await world.ask("answer", allow=True)
        assert none.error is not None
        assert none.error.message == "no question is pending"

    night(tmp_path, story, agent)


@pytest.mark.parametrize("args", [{}, {"allow": "yes"}, {"allow": 1}, {"allow": True, "id": ["q1"]}])
def test_answers_that_are_none(tmp_path: Path, args: dict[str, object]) -> None:
    agent = _asking(BASH)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        response = await world.ask("answer", **args)
        assert response.error is not None
        assert response.error.exit == 2
        assert agent.newest.answers == []

    night(tmp_path, story, agent)


def test_withdrawn(tmp_path: Path) -> None:
    async def job(agent: FakeAgent, prompt: Prompt) -> None:
        agent.begin_turn()
        agent.events.ask(BASH)
        agent.events.ask(DIALOG)
        await asyncio.sleep(10)
        agent.events.ask_over("q1", "cancelled")
        agent.events.ask_over("q9", "cancelled")
        agent.end_turn()
        agent.settle()

    agent = FakeAdapter(default=says("continue"))
    agent.acts.append(does(job))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(11)
        assert world.supervisor.host.questions.pending is None
        await asyncio.sleep(400)
        assert agent.newest.answers == []

    world = night(tmp_path, story, agent)
    assert [e["data"] for e in world.events("permission.completed")] == [
        {"id": "q1", "outcome": "cancelled", "by": "agent"},
        {"id": "d1", "outcome": "withdrawn", "by": "agent"},
    ]


def test_gone_with_the_agent(tmp_path: Path) -> None:
    agent = _asking(BASH)

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        agent.newest.die()
        await asyncio.sleep(400)
        assert world.supervisor.host.questions.pending is None
        assert agent.agents[0].answers == []

    night(tmp_path, story, agent)


def test_a_long_question_is_cut(tmp_path: Path) -> None:
    agent = _asking(Question("q1", "permission", "bash", "x" * 10_000))

    async def story(world: World, clock: VirtualClock) -> None:
        world.start()
        await asyncio.sleep(1)
        text = world.supervisor.status()["loop"]["question"]["text"]
        assert text == "x" * 4000 + "… (6000 more characters)"
        assert T0.wall < world.now.wall

    night(tmp_path, story, agent)
