"""Which session a `start` means: a live one, one to reopen, or a new one.

Rules (product): an active or paused loop is never replaced, the refusal names the way to a second session;
a closed session whose loop has ended is never picked without its name, its end is told instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from loopsup import registry
from loopsup.cli import agent_choice, selection
from loopsup.cli.common import note
from loopsup.cli.selection import Session
from loopsup.core.model import Driver, Loop, Paused
from loopsup.errors import RefusedError, UsageError
from loopsup.ports import Adapter, Conversation
from loopsup.store.config import Config


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asks for. `policy` and `continuity` as on the control socket, `name` as typed."""

    objective: str
    policy: dict[str, Any]
    after_ms: int | None
    agent: str | None
    name: str | None
    continue_ref: str | None
    allow_all: bool
    agent_args: tuple[str, ...]
    cwd: Path
    continuity: dict[str, Any] = field(default_factory=dict)
    driver: str = Driver.RESIDENT.value
    park: bool = False


class How(StrEnum):
    """How a session takes the loop."""

    LIVE = "live"
    REOPEN = "reopen"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the loop goes. New: `session` is None and the rest says what to make."""

    how: How
    session: Session | None = None
    name: str | None = None
    adapter: Adapter | None = None
    conversation: Conversation | None = None


def find(order: Order, config: Config) -> Place:
    """The place for this order; nothing is made yet. Only under the lock of `sessions/`."""
    name = selection.wanted_name(order.name)
    if order.continue_ref is not None:
        return _adopted(order, config, name)
    if name is not None:
        found = selection.lookup(name, locked=True)
        return _new(order, config, name) if found is None else _existing(found, order)
    here = selection.of_directory(order.cwd)
    taking = [session for session in here if session.alive() or _unfinished(session)]
    if len(taking) > 1:
        raise UsageError(f"several sessions are open here ({selection.listed(taking)}); name one with --session NAME")
    if taking:
        return _existing(taking[0], order)
    return _new(order, config, None, closed=here[0] if here else None)


def _existing(session: Session, order: Order) -> Place:
    loop = session.truth()
    if loop is not None and not loop.terminal:
        raise RefusedError(
            f"session '{session.name}' has a loop already ({selection.described(loop)}); {_way_on(session, loop)}, "
            "or start a second session beside it with --session NAME"
        )
    identity = session.identity
    if order.agent not in (None, identity.agent):
        raise UsageError(
            f"session '{session.name}' is a conversation with '{identity.agent}', not with '{order.agent}'; "
            "start another one with --session NAME"
        )
    if order.agent_args and order.agent_args != identity.args:
        registry.load(identity.agent).check_args(order.agent_args, Path(identity.cwd))  # a slip is told as such
        raise UsageError(
            f"the agent of session '{session.name}' keeps the arguments it was first started with; "
            "leave out what stands after --, or start another session with --session NAME"
        )
    if Path(identity.cwd) != order.cwd:
        note(f"session '{session.name}' works in {identity.cwd}, not here")
    if not session.alive():
        return Place(How.REOPEN, session)
    if order.allow_all:
        raise RefusedError(
            f"the agent of session '{session.name}' runs already and --allow-all is for its start; "
            f"close it first: loopsup close --session {session.name}"
        )
    return Place(How.LIVE, session)


def _way_on(session: Session, loop: Loop) -> str:
    if isinstance(loop.phase, Paused):
        named = f"--session {session.name}"
        return f"`loopsup resume {named}` goes on with it, `loopsup stop {named}` ends it"
    return "stop it first"


def _unfinished(session: Session) -> bool:
    loop = session.loop()
    return loop is not None and not loop.terminal


def _new(order: Order, config: Config, name: str | None, *, closed: Session | None = None) -> Place:
    adapter = agent_choice.choose(order.agent, config)
    adapter.check_args(order.agent_args, order.cwd)
    if closed is not None:
        note(
            f"the session '{closed.name}' of this directory has ended, so a new one is made; "
            f"`loopsup start --session {closed.name}` goes on with the old conversation"
        )
    return Place(How.NEW, name=name, adapter=adapter)


def _adopted(order: Order, config: Config, name: str | None) -> Place:
    """`--continue`: the session that has this conversation, or a new one for it."""
    assert order.continue_ref is not None
    adapter = agent_choice.choose(order.agent, config)
    adapter.check_args(order.agent_args, order.cwd)
    conversation = adapter.locate(order.continue_ref, order.cwd, agent_choice.environment(adapter.name, config))
    if conversation.cwd.resolve() != order.cwd.resolve():
        raise RefusedError(
            f"the conversation {conversation.id} belongs to {conversation.cwd}; go there to continue it"
        )
    owner = selection.of_conversation(adapter.name, conversation.id, conversation.file)
    if owner is None:
        if name is not None and selection.lookup(name, locked=True) is not None:
            raise RefusedError(f"session '{name}' is another conversation; give --continue a new --session NAME")
        return Place(How.NEW, name=name, adapter=adapter, conversation=conversation)
    if name not in (None, owner.name):
        raise RefusedError(f"the conversation {conversation.id} is session '{owner.name}' already; use that name")
    return _existing(owner, order)
