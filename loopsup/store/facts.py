"""What status says of a session itself, from its identity and from who owns it."""

from __future__ import annotations

from loopsup.store import ticks
from loopsup.store.home import find_home
from loopsup.store.identity import Identity
from loopsup.wire.status import SessionFacts


def session_facts(
    identity: Identity,
    *,
    alive: bool,
    responding: bool,
    pid: int | None,
    clients: int = 0,
    problem: str | None = None,
    parked: bool = False,
) -> SessionFacts:
    """The facts of a session whose identity can be read."""
    return SessionFacts(
        name=identity.name,
        id=identity.id,
        agent=identity.agent,
        agent_session_id=identity.agent_session_id,
        file=identity.agent_file,
        cwd=identity.cwd,
        alive=alive,
        responding=responding,
        pid=pid,
        clients=clients,
        problem=problem,
        last_tick_at=ticks.last(find_home()),
        parked=parked,
    )
