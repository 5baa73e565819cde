"""From an order to a supervisor at work.

A live session takes its next loop over its socket; for any other a supervisor is started. Rules: the
session is picked and made under the lock of `sessions/`, which is held until the new supervisor owns
its session, so that two `start` at once cannot both make one; a new session that did not get its loop
is removed again.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopsup.cli import acting, agent_choice, launch, making, places
from loopsup.cli.common import note, warn
from loopsup.cli.places import How, Order, Place
from loopsup.cli.selection import Session
from loopsup.clock import mono_ms
from loopsup.core.durations import show
from loopsup.core.limits import PARKING_FROM_MS
from loopsup.core.model import Driver
from loopsup.errors import LoopsupError, RefusedError
from loopsup.store.config import load_config
from loopsup.store.home import find_home
from loopsup.store.hooks import find_hook
from loopsup.store.lock import creation_lock
from loopsup.wire.control import Launch, Request, Response

__all__ = ["Order", "detached", "foreground", "key_warnings", "park_warnings"]

# Names and shapes of secrets; one look at the arguments, not a proof.
_KEY_LIKE = re.compile(
    r"(?i)(?:^--?(?:[a-z0-9-]*-)?(?:api-?key|token|secret|password)(?:=|$))|(?:(?:key|token|secret|password)=)"
    r"|(?:^|[=:])(?:sk-|ghp_|github_pat_|xox[abp]-|AKIA)"
)


def detached(order: Order) -> tuple[Session, Response]:
    """Give the order to a supervisor that outlives this process; its response once the loop is accepted.

    A loop that ticks drive has no use for one: there it returns when the supervisor has ended, or after a grace
    where others keep the session open. What is to be warned of is among the response's warnings: nobody needs it
    where nothing is started.
    """
    request = _request(order)
    with creation_lock_held():
        place, warnings = _placed(order)
        assert place.session is not None
        if place.how is How.LIVE:
            begun = None
        else:
            with _removed_on_failure(place):
                begun = launch.begin(_launch(place, order, request), place.session.folder)
                begun.until_owned(place.session.alive)
    ticks = order.driver == Driver.TICK
    if begun is not None:
        with _removed_on_failure(place):
            response = begun.answer(leave=not ticks)
        if ticks:
            begun.until_over()
    else:
        answer = acting.ask(place.session, request)
        response = answer or launch.reopen(place.session, request)  # it closed just now, being idle
        if ticks:
            _until_free(place.session)
    return place.session.refreshed(), replace(response, warnings=(*warnings, *response.warnings))


def _until_free(session: Session) -> None:
    """Return when nobody owns it any more, or after a grace: a follower may keep it open."""
    give_up = mono_ms() + int(launch.END_GRACE_S * 1000)
    while session.refreshed().alive() and mono_ms() < give_up:
        time.sleep(launch.OWNED_POLL_S)


def foreground(order: Order, *, keep: bool, as_json: bool) -> int:
    """Be the supervisor; the exit code is the loop's outcome."""
    with _given_up_by_signals():
        return _served(order, keep=keep, as_json=as_json)


@contextlib.contextmanager
def _given_up_by_signals() -> Iterator[None]:
    """Until the supervisor listens for them itself, TERM and HUP do what Ctrl-C does: nothing is left behind."""

    def give_up(*_: object) -> None:
        for number in ours:  # a second one would break into the cleaning up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:  # not those somebody has us ignore (nohup)
        signal.signal(number, give_up)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _served(order: Order, *, keep: bool, as_json: bool) -> int:
    from loopsup.cli.supervise import show_end
    from loopsup.shell.main import supervise

    with creation_lock_held():
        place, warnings = _placed(order)
    session = place.session
    assert session is not None
    if place.how is How.LIVE:
        raise RefusedError(
            f"session '{session.name}' has a supervisor already; leave out --foreground, "
            f"or close it first: loopsup close --session {session.name}"
        )
    refusals: list[LoopsupError] = []

    def told(response: Response) -> None:
        if response.error is None:
            warn(warnings)
            note(f"{response.message}, in session '{session.name}'")
        else:  # not raised here: the supervisor still has an agent to end
            refusals.append(response.error)

    launched = replace(_launch(place, order, _request(order)), foreground=True, keep=keep, as_json=as_json)
    with _removed_on_failure(place):
        code = supervise(launched, told)
        if refusals:
            raise refusals[0]
    show_end(launched)
    return code


def key_warnings(args: Iterable[str]) -> list[str]:
    """A warning for arguments that look like a secret; the secret itself is not repeated."""
    if any(_KEY_LIKE.search(arg) for arg in args):
        return [
            "an argument after -- looks like a key; arguments are kept in session.toml, "
            "put keys into the environment or into env_file instead"
        ]
    return []


def park_warnings(order: Order) -> list[str]:
    """A rhythm that never leaves the agent alone for long enough."""
    longest = order.policy["maxDelayMs"] if order.policy["rhythm"] == "auto" else order.policy["rhythm"]
    if not order.park or longest >= PARKING_FROM_MS:
        return []
    return [
        f"--park does nothing here: it closes the agent only between wakes at least {show(PARKING_FROM_MS)} apart, "
        f"and these are at most {show(longest)}"
    ]


def hook_warnings() -> list[str]:
    """A hook that could not be run is told now, not in the night it is needed."""
    problem = find_hook().problem
    return [] if problem is None else [f"the attention hook cannot be used: {problem}"]


def rule_warnings(cwd: Path) -> tuple[str, ...]:
    """Stream rules that will not act though somebody may count on them."""
    from loopsup.in_force import rules_in_force

    return rules_in_force(cwd).notices


def _placed(order: Order) -> tuple[Place, tuple[str, ...]]:
    """The place for the order, made where it is new, and what to warn of once it is served."""
    config = load_config()
    warnings = hook_warnings()
    if config.continuity.problem is not None:
        warnings.append(f"configuration: {config.continuity.problem}")
    place = places.find(order, config)
    if place.how is How.LIVE:
        return place, tuple(warnings)
    warnings += rule_warnings(order.cwd)
    adapter = place.adapter
    if adapter is None:
        assert place.session is not None
        adapter = agent_choice.choose(place.session.identity.agent, config)
    warnings += agent_choice.check_permissions(
        adapter.name, adapter.capabilities, config.permissions, allow_all=order.allow_all
    )
    return place if place.how is How.REOPEN else making.make(place, order, config), tuple(warnings)


def creation_lock_held() -> contextlib.AbstractContextManager[None]:
    home = find_home()
    home.ensure()
    return creation_lock(home.sessions)


def _launch(place: Place, order: Order, request: Request) -> Launch:
    assert place.session is not None
    return Launch(place.session.name, place.how.value, request, allow_all=order.allow_all)


def _request(order: Order) -> Request:
    args: dict[str, Any] = {"objective": order.objective, "policy": order.policy}
    if order.after_ms is not None:
        args["afterMs"] = order.after_ms
    if order.driver != Driver.RESIDENT:
        args["driver"] = order.driver
    if order.continuity:
        args["continuity"] = order.continuity
    if order.park:
        args["park"] = True
    return Request("start", args)


@contextlib.contextmanager
def _removed_on_failure(place: Place) -> Iterator[None]:
    """A new session that got no loop leaves nothing behind."""
    try:
        yield
    except BaseException:
        if place.how is How.NEW and place.session is not None:
            making.unmake(place.session)
        raise
