"""`loopsup host` (hidden): what an extension inside an agent's own terminal asks where no supervisor serves it.

One JSON object comes on standard input:

    {"agent":"pi","line":"start --every 10m watch …","conversation":{"id":…,"file":…,"cwd":…}}

and JSON lines go to standard output: {"invite":"…"} where a supervisor has come up and awaits the agent, and
last {"done":bool,"message":"…"}, with "status", and "text" of a `status`. An empty `line` only asks who is there:
{"done":true,"session":name or null,"owner":pid or null,"state":"…"}.

Rules: a conversation that has a live supervisor is refused, with its process (the agent in front of the person would
be a second writer), but one that is about to go is waited for: its agent was quit a moment ago. A process below an
agent that loopsup drives gets nothing here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopsup.cli.common import out_json
from loopsup.errors import EXIT_DONE, LoopsupError, NotFoundError, RefusedError, UsageError
from loopsup.wire.control import BUSY_TIMEOUT_S, CLOSING, MAX_LINE, Request, Response
from loopsup.wire.slash import parse

if TYPE_CHECKING:
    from loopsup.cli.selection import Session
    from loopsup.ports import Conversation

LEAVING_MS = 20_000  # it ends in well under a second; a hook that runs to its limit, and an agent, get the rest


def host() -> int:
    """Carry out what a person typed inside an agent (asked by loopsup's extension there)."""
    try:
        _put(_carried_out(_question()))
    except LoopsupError as error:
        _put({"done": False, "message": error.message})
        return error.exit
    return EXIT_DONE


def _carried_out(asked: Mapping[str, Any]) -> dict[str, Any]:
    agent, conversation, line = str(asked["agent"]), _conversation(asked["conversation"]), str(asked["line"])
    session = _session(agent, conversation)
    if not line.strip():
        return _who(session)
    request = parse(line)
    if request.verb == "status":
        return _status(session)
    if os.environ.get("LOOPSUP_AGENT"):
        raise RefusedError("this comes from the agent itself; only a person may do that")
    if session is not None and _driven(session):
        raise RefusedError(f"another supervisor{_process(session)} drives this conversation; {_leave(session)}")
    if request.verb == "start":
        return _told(_started(agent, conversation, request), "the loop has started")
    if session is None:
        raise NotFoundError("there is no loop in this conversation; begin one with /loop start")
    if request.verb == "resume":
        return _told(_hosted(session, request, "reopen"), "the loop goes on")
    return _told(_offline(session, request), request.verb)


def _started(agent: str, conversation: Conversation, request: Request) -> Response:
    """A loop for this conversation: in its session, or in a new one; the agent is the one that asks."""
    from loopsup.cli import making, starting
    from loopsup.cli.places import How, Order, Place
    from loopsup.core.policy import check
    from loopsup.store.config import load_config
    from loopsup.wire.typed import as_policy

    args = request.args
    checked = check(as_policy(args["policy"]), args.get("afterMs"))
    if checked.faults:
        raise UsageError("; ".join(checked.faults))
    order = Order(
        args["objective"], args["policy"], args.get("afterMs"), agent, None, None, False, (), conversation.cwd
    )
    config = load_config()
    with starting.creation_lock_held():
        session = _linked(agent, conversation)
        if session is None:
            place = making.make(Place(How.NEW, adapter=_adapter(agent), conversation=conversation), order, config)
            session, how = place.session, How.NEW
            assert session is not None
        else:
            loop = session.truth()
            if loop is not None and not loop.terminal:
                from loopsup.cli.selection import described

                way_on = "/loop resume goes on with it, /loop stop ends it"
                raise RefusedError(f"there is a loop here already ({described(loop)}); {way_on}")
            how = How.REOPEN
    try:
        return _hosted(session, request, how.value)
    except BaseException:
        if how is How.NEW:
            making.unmake(session)
        raise


def _hosted(session: Session, request: Request, how: str) -> Response:
    """Start a supervisor whose agent is the one that asks."""
    from loopsup.cli import launch
    from loopsup.wire.control import Launch

    begun = launch.begin(Launch(session.name, how, request, hosted=True), session.folder)
    return begun.answer(invited=lambda text: _put({"invite": text}))


def _offline(session: Session, request: Request) -> Response:
    from loopsup import offline

    do: dict[str, Callable[[], Response]] = {
        "pause": lambda: offline.pause(session),
        "stop": lambda: offline.stop(session),
        "update": lambda: offline.update(session, request.args["policy"]),
    }
    return do[request.verb]()


def _status(session: Session | None) -> dict[str, Any]:
    from loopsup import offline
    from loopsup.cli import acting, render

    if session is None:
        raise NotFoundError("there is no loop in this conversation; begin one with /loop start")
    response = acting.ask(session, Request("status"), BUSY_TIMEOUT_S)  # a person asked, and can wait
    status = dict((None if response is None else response.status) or offline.status(session.refreshed()))
    return {"done": True, "message": "", "status": status, "text": render.status_text(status)}


def _who(session: Session | None) -> dict[str, Any]:
    if session is None:
        return {"done": True, "session": None, "owner": None, "state": ""}
    from loopsup.cli.selection import described

    owner = (session.owner_pid() or 0) if _driven(session) else None
    loop = session.truth()
    state = "" if loop is None or loop.terminal else described(loop)
    return {"done": True, "session": session.name, "owner": owner, "state": state}


def _driven(session: Session) -> bool:
    """A supervisor is there, and stays."""
    from loopsup.cli import acting
    from loopsup.clock import mono_ms

    give_up = mono_ms() + LEAVING_MS
    while session.alive():
        if mono_ms() >= give_up or not _leaving(session):
            return True
        acting.pause(acting.RETRY_S)
    return False


def _leaving(session: Session) -> bool:
    """It closes; or there is nobody to talk to yet or any more."""
    from loopsup import client

    try:
        return client.request(session.refreshed().socket, Request("ping")).message == CLOSING
    except (client.NobodyListensError, client.WentAwayError, NotFoundError):
        return True
    except LoopsupError:
        return False


def _session(agent: str, conversation: Conversation) -> Session | None:
    from loopsup.cli import starting

    with starting.creation_lock_held():
        return _linked(agent, conversation)


def _linked(agent: str, conversation: Conversation) -> Session | None:
    from loopsup.cli import selection

    return selection.of_conversation(agent, conversation.id, conversation.file)


def _adapter(agent: str) -> Any:
    from loopsup import registry

    return registry.load(agent)


def _process(session: Session) -> str:
    owner = session.owner_pid()
    return "" if owner is None else f" (process {owner})"


def _leave(session: Session) -> str:
    return f"`loopsup attach --session {session.name}` shows it, `loopsup close --session {session.name}` ends it"


def _told(response: Response, otherwise: str) -> dict[str, Any]:
    warnings = (f"warning: {warning}" for warning in response.warnings)
    message = "\n".join((response.message or otherwise, *warnings))
    return {"done": True, "message": message, "status": response.status}


def _question() -> dict[str, Any]:
    try:
        asked = json.loads(sys.stdin.buffer.readline(MAX_LINE + 1))
    except (ValueError, RecursionError) as error:
        raise _by_hand() from error
    if not isinstance(asked, dict) or not all(isinstance(asked.get(key), str) for key in ("agent", "line")):
        raise _by_hand()
    conversation = asked.get("conversation")
    if not isinstance(conversation, dict) or not all(map(_is_name, (conversation.get(key) for key in ("id", "cwd")))):
        raise _by_hand()
    return asked


def _by_hand() -> UsageError:
    return UsageError("this is asked by loopsup's extensions, not by hand")


def _is_name(value: object) -> bool:
    """It can be part of a path."""
    return isinstance(value, str) and value != "" and "\0" not in value


def _conversation(found: Mapping[str, Any]) -> Conversation:
    from loopsup.ports import Conversation

    if not _is_name(found.get("file")):
        raise UsageError("this conversation is not kept in a file (pi --no-session), so no loop can go on in it")
    return Conversation(found["id"], Path(found["file"]), Path(found["cwd"]))


def _put(obj: Mapping[str, Any]) -> None:
    out_json(obj)
    sys.stdout.flush()
