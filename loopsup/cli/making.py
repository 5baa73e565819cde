"""Making the folder of a new session, and taking it back where it got no loop."""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import replace
from pathlib import Path

from loopsup.cli.places import Order, Place
from loopsup.cli.selection import Session, named
from loopsup.clock import wall_ms
from loopsup.errors import LoopsupError
from loopsup.store import folders, sessions
from loopsup.store.config import Config
from loopsup.store.home import find_home
from loopsup.store.identity import Identity


def make(place: Place, order: Order, config: Config) -> Place:
    """The place with its session made. Only under the lock of `sessions/`."""
    assert place.adapter is not None
    home = find_home()
    conversation = place.conversation
    identity = Identity(
        name=place.name or sessions.new_name(home, order.cwd),
        id=str(uuid.uuid4()),
        agent=place.adapter.name,
        cwd=os.fspath(order.cwd),
        socket=os.fspath(home.new_socket()),
        created=wall_ms(),
        command=config.agent(place.adapter.name).command,
        args=order.agent_args,
        allow_all=order.allow_all,
    )
    if conversation is None:
        folders.create(home, identity)
    else:
        file = conversation.file
        identity = replace(
            identity, agent_session_id=conversation.id, agent_file=None if file is None else os.fspath(file)
        )
        if file is None:
            folders.create(home, identity)
        else:
            folders.create_beside(home, identity, Path(file))
    return replace(place, session=named(identity.name))


def unmake(session: Session) -> None:
    """Remove a session that got no loop, unless somebody owns it. One with a loop has something to lose."""
    with contextlib.suppress(LoopsupError):
        if named(session.name).loop() is None:
            folders.remove(find_home(), session.name)
