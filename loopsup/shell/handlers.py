"""What each control verb does: one method a verb, named after it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loopsup.core.autopilot import DEFAULT_REMINDERS, MAX_REMINDERS
from loopsup.core.effects import Reply
from loopsup.core.events import Event, Pause, RedeliveryEnded, Resume, Start, Stop, Ticked, Update
from loopsup.core.model import AbortReason, Driver, State
from loopsup.core.overrides import NOTHING_SAID, TOLD, Overrides
from loopsup.errors import (
    AgentUnableError,
    ClosingError,
    LoopsupError,
    NotFoundError,
    RefusedError,
    SettlingError,
    UsageError,
    from_kind,
)
from loopsup.shell import arguments, reload
from loopsup.shell.gallery import Gallery
from loopsup.shell.run import Message
from loopsup.shell.vacancy import ACTIVE
from loopsup.store.identity import save_identity
from loopsup.wire.control import CLOSING, EARLY_VERBS, MAX_OBJECTIVE, Request, Response, encode_response

if TYPE_CHECKING:
    from loopsup.shell.supervisor import Supervisor

RELOAD = "reload"

# What a person does to the session: it is not left any more, whatever a reaper began.
ACTING = frozenset({"start", "resume", "say", "answer", "update", "abort", "pause", "stop", "heartbeat"})
DROP_GRACE_S = 30.0  # a dropped follower may read what it was sent; one that does not is cut off
MAX_STAGE = 64  # bytes; the stages are words of ours
MAX_TEXT = 4 * 1024 * 1024  # bytes of a message; agents take a few MiB, models less


class Handlers:
    """Carries out requests on one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.gallery = Gallery(supervisor)

    async def handle(self, request: Request) -> Response:
        """The response; a refusal is a response with its error. Never raises LoopsupError."""
        method = getattr(self, f"_{request.verb}")
        if request.verb not in EARLY_VERBS:
            await self._supervisor.opened.wait()
        try:
            if self._supervisor.closing and request.verb not in ("ping", "status", "close", "wait"):
                raise ClosingError(CLOSING)
            if request.verb in ACTING:
                self._supervisor.vacancy.present()
            message, warnings = await method(request.args)
        except LoopsupError as error:
            return Response(error=error)
        return Response(self._supervisor.status(), message, warnings)

    async def follow(self, request: Request, writer: asyncio.StreamWriter, gone: asyncio.Future[None]) -> None:
        """The stream of one follower, until the session ends or it leaves."""
        await self._supervisor.opened.wait()
        if self._supervisor.vacancy.settling:
            raise SettlingError(
                "a response nobody watched is being ended, and then the session; try again in a minute"
            )
        bus = self._supervisor.bus
        since = request.args.get("since")
        follower = bus.subscribe(since if isinstance(since, int) else None)
        later, cut = asyncio.get_running_loop().call_later, writer.transport.abort
        follower.on_drop = lambda: later(DROP_GRACE_S, cut)
        try:
            writer.write(encode_response(Response(self._supervisor.status())))
            self._supervisor.touch()
            while not gone.done():
                upcoming = asyncio.ensure_future(follower.next())
                waiting: list[asyncio.Future[Any]] = [upcoming, gone]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if not upcoming.done():
                    upcoming.cancel()
                    return
                line = upcoming.result()
                if line is None:
                    return
                writer.write(line)
                await writer.drain()
        finally:
            bus.unsubscribe(follower)
            self._supervisor.touch()

    async def _ping(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        return CLOSING if self._supervisor.closing else "", ()

    async def _status(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        return "", ()

    async def _start(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        after = args.get("afterMs")
        event = Start(
            loop_id=str(uuid.uuid4()),
            objective=arguments.text(args, "objective", MAX_OBJECTIVE),
            policy=arguments.policy(args.get("policy")),
            after_ms=None if after is None else arguments.integer(after, "afterMs"),
            idle=self._supervisor.host.idle,
            driver=arguments.driver(args.get("driver")),
        )
        said = arguments.overrides(args.get("continuity"), NOTHING_SAID)
        park = self._park(args)
        done = self._command(event)
        self._supervisor.park(park)
        self._supervisor.recover(said)
        self._supervisor.vacancy.fleeting = event.driver is Driver.TICK  # also after a loop that ticks drove
        return done

    def _park(self, args: Mapping[str, Any]) -> bool:
        park = args.get("park") is True
        if park and not self._supervisor.host.slot.capabilities.resume:
            agent = self._supervisor.identity.agent
            raise AgentUnableError(f"--park needs an agent that can resume its conversation; '{agent}' cannot")
        return park

    async def _pause(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        return self._command(Pause())

    async def _resume(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        return self._command(Resume(idle=self._supervisor.host.idle))

    async def _stop(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        return self._command(Stop())

    async def _update(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        changes = args.get("policy", {})
        if not isinstance(changes, dict):
            raise UsageError("update needs a policy")
        said = arguments.overrides(args.get("continuity"), self._supervisor.identity.continuity)
        if not changes and "continuity" in args:
            return self._recover(said)
        rhythm = changes.get("rhythm")
        numbers = {
            key: None if changes.get(key) is None else arguments.integer(changes[key], key)
            for key in arguments.NUMBERS
        }
        done = self._command(
            Update(
                rhythm=None if rhythm is None else arguments.rhythm(rhythm),
                min_delay_ms=numbers["minDelayMs"],
                max_delay_ms=numbers["maxDelayMs"],
                for_ms=numbers["forMs"],
                max_iterations=numbers["maxIterations"],
                misfire=arguments.misfire(changes.get("misfire")),
            )
        )
        if "continuity" in args:
            self._recover(said)
        return done

    def _recover(self, said: Overrides) -> tuple[str, tuple[str, ...]]:
        if self._supervisor.loop is None:
            raise NotFoundError("there is no loop in this session")
        self._supervisor.recover(said)
        return TOLD[self._supervisor.host.recovery.settings.on], ()

    async def _tick(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        supervisor = self._supervisor
        loop = supervisor.loop
        if loop is None:
            raise NotFoundError("there is no loop in this session")
        if loop.driver is not Driver.TICK:
            raise RefusedError("the wakes of this loop are fired by its own supervisor")
        supervisor.command(Ticked(idle=supervisor.host.idle, by=Driver.TICK))
        if supervisor.loop == loop:
            under_way = loop.state in (State.QUEUED, State.RUNNING)
            return "an iteration is under way already" if under_way else "nothing is due", ()
        skipped = supervisor.loop is not None and supervisor.loop.state is State.WAITING
        return "its missed wake is skipped" if skipped else "fired", ()

    async def _heartbeat(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        reply = self._supervisor.pulse.command(arguments.heartbeat_event(args))
        if not reply.ok:
            raise from_kind(reply.kind, reply.message)
        return reply.message, ()

    async def _reload(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        if self._supervisor.hosted:
            raise RefusedError("the agent of this session runs in a terminal of its own; end it there, then resume")
        await reload.check_program(self._supervisor.identity.agent)
        if not self._supervisor.at_rest:
            raise RefusedError("a turn is under way; reload when it has settled (`loopsup status` shows it)")
        self._supervisor.ask_to_close(RELOAD)
        await self._supervisor.closed.wait()
        return "the supervisor is restarted", ()

    async def _enable(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        supervisor = self._supervisor
        changed = replace(supervisor.identity, enabled=args.get("on") is True)
        save_identity(supervisor.folder, changed)
        supervisor.identity = changed
        return "", ()

    async def _abort(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        supervisor = self._supervisor
        run = supervisor.host.run
        if not await supervisor.host.abort(AbortReason.USER):
            before = supervisor.loop
            supervisor.command(RedeliveryEnded(supervisor.host.idle, AbortReason.USER))
            if supervisor.loop == before:
                raise RefusedError("no turn is in flight")
            return "the interrupted iteration is not handed over again", ()
        async with supervisor.changed:
            supervisor.touch()
            await supervisor.changed.wait_for(lambda: supervisor.host.run is not run or supervisor.closing)
        return "the turn is aborted", ()

    async def _wait(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        supervisor = self._supervisor
        if supervisor.loop is None:
            raise NotFoundError("there is no loop in this session")
        with self._watching():
            async with supervisor.changed:
                await supervisor.changed.wait_for(
                    lambda: (
                        supervisor.loop is None
                        or supervisor.loop.state not in ACTIVE
                        or supervisor.closed.is_set()  # only then the journal says how it was left
                    )
                )
        return "", ()

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Somebody waits: counts as a follower, so that the session stays open and no turn is taken for forgotten."""
        follower = self._supervisor.bus.join()
        try:
            yield
        finally:
            self._supervisor.bus.unsubscribe(follower)
            self._supervisor.touch()

    async def _say(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        text = arguments.text(args, "text", MAX_TEXT)
        if not text.strip():
            raise UsageError("the message is blank")
        wait = args.get("wait") is True
        waiter: asyncio.Future[str] | None = asyncio.get_running_loop().create_future() if wait else None
        self._supervisor.host.say(Message(text, str(uuid.uuid4()), waiter, reminders=self._reminders(args)))
        self._supervisor.touch()
        if waiter is None:
            return "the message is on its way", ()
        with self._watching():
            return await waiter or "the agent has settled without saying anything", ()

    def _reminders(self, args: Mapping[str, Any]) -> int | None:
        """The autopilot's bound, None for a plain message."""
        if args.get("autopilot") is not True:
            return None
        if not self._supervisor.host.slot.capabilities.task_complete:
            agent = self._supervisor.identity.agent
            raise AgentUnableError(f"--autopilot needs an agent with a task_complete tool; '{agent}' has none")
        most = arguments.integer(args.get("maxReminders", DEFAULT_REMINDERS), "maxReminders")
        if not 0 <= most <= MAX_REMINDERS:
            raise UsageError(f"--max-reminders is a whole number from 0 to {MAX_REMINDERS}")
        return most

    async def _answer(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        allow, which = args.get("allow"), args.get("id")
        if not isinstance(allow, bool):
            raise UsageError("answer needs allow or deny")
        if which is not None and not isinstance(which, str):
            raise UsageError("id must be text")
        text = "" if allow else "The person denies this."
        if self._supervisor.host.slot.capabilities.terminal and self._supervisor.host.questions.pending is not None:
            raise RefusedError("this question stands on the agent's own screen; answer it there: `loopsup attach`")
        found = await self._supervisor.host.answer(which, allow, "user", text)
        if found is None:
            raise RefusedError(f"there is no pending question {which}" if which else "no question is pending")
        return f"the question is answered: {'allowed' if allow else 'denied'}", ()

    async def _hello(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        self._supervisor.host.slot.carriers.hello(args.get("token"), arguments.text(args, "stage", MAX_STAGE))
        return "", ()

    async def _decide(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        host = self._supervisor.host
        host.slot.carriers.check(args.get("token"))
        verdict = host.hearing.carried(args.get("arguments"))
        if not verdict.accepted:
            raise RefusedError(verdict.message)
        return verdict.message, ()

    async def _reap(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        why = self._supervisor.vacancy.needed()
        if why is not None:
            raise RefusedError(f"the session stays: {why}")
        self._supervisor.ask_to_close("session_cap")
        return "the session closes", ()

    async def _close(self, args: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        self._supervisor.ask_to_close("command")
        await self._supervisor.closed.wait()
        return "the session is closed", ()

    def _command(self, event: Event) -> tuple[str, tuple[str, ...]]:
        reply: Reply = self._supervisor.command(event)
        if not reply.ok:
            raise from_kind(reply.kind, reply.message)
        return reply.message, reply.warnings
