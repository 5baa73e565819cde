"""Stream rules at work: feeds the stream to the matching and to `core.rule_state`, and does what comes of it.

Rules. The abort goes out at once; everything after it waits for the window's end (one more deadline of the
supervisor's one timer) and for the agent to have settled, whichever comes later. Between the two nothing is in
flight, and yet the run goes on: it is not settled, and whatever ends it (an abort by a person, a pause, a stop, the
deadline, the agent's end) makes the retry void. Without rules nothing is fed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, assert_never

from loopsup.clock import Clock
from loopsup.core.model import AbortReason, Moment
from loopsup.core.rule_events import (
    Cancelled,
    Configured,
    DecisionAccepted,
    Elapsed,
    Inject,
    Injected,
    Interrupt,
    Matched,
    NotInjected,
    Prompted,
    Record,
    Released,
    Restored,
    RuleEffect,
    RuleEvent,
    Silenced,
    TooSlow,
    Triggered,
    TurnEnded,
    TurnStarted,
)
from loopsup.core.rule_state import RuleState, next_due, opened, step
from loopsup.core.rules import TEXT, THINKING, ContextMode, Hits, Matching, Rule, RuleSettings, Source, Stream
from loopsup.ports import Accepted, Origin, Prompt, Refused, ToolCall, ToolVerdict, Unknown
from loopsup.wire import events as words

if TYPE_CHECKING:
    from loopsup.shell.host import AgentHost
    from loopsup.shell.run import Run

ENDED = "The response this call belongs to was interrupted by a rule of the user's; the call did not run."
REQUESTS = frozenset({Origin.USER, Origin.LOOP})  # prompts with a fresh count of interruptions


class StreamRules:
    """The stream rules of one session's agent. `load` puts them in force; until then, and without any, it is idle."""

    def __init__(self, host: AgentHost, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._state = RuleState()
        self._matching: Matching | None = None
        self._inject: Inject | None = None  # its time has come, the agent has not settled yet
        self._rested = False  # the agent has settled, and the run goes on
        self._sent = False  # the reminder is on its way
        self.settings: Callable[[], RuleSettings | None] = lambda: None  # as configured now; None: unchanged
        self.in_the_way: Callable[[Run], str | None] = lambda run: None  # what goes before a retry
        self.record: Callable[[Record, str], None] = lambda record, partial: None
        self._partial = ""  # what became of the text that was cut off, in a word

    def load(
        self, rules: tuple[Rule, ...], settings: RuleSettings, matching: Matching, injected: tuple[str, ...]
    ) -> None:
        """Put rules in force (capability `abort`). `injected`: those that have acted in this conversation."""
        self._state = opened(rules, settings, injected)
        self._matching = None if matching.idle or not self._state.rules else matching

    @property
    def active(self) -> bool:
        """Whether tools have to wait for their check."""
        return self._matching is not None and self._state.settings.enabled

    @property
    def injected(self) -> Mapping[str, int]:
        """The rules that have acted on the present branch, and at what age."""
        return self._state.injected

    @property
    def resting(self) -> bool:
        """Nothing is in flight, and the run goes on."""
        return self._rested

    @property
    def pending(self) -> bool:
        """The response was interrupted, and the model has not begun again."""
        return self._state.pending

    @property
    def kept(self) -> bool:
        """Whether the settlement of the agent is not that of the run."""
        return self._state.pending and not self._sent

    # ---- what happens to the run ------------------------------------------------------------------

    def begin(self, *, fresh: bool) -> None:
        """A prompt is handed over, or the agent began by itself."""
        if self._matching is not None:
            self._matching.turn()
            self._step(Prompted(fresh))

    def calm(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The event as it is to be told: an interruption of ours is no error of the agent's (T-36)."""
        if not self.kept:
            return data
        if kind == words.SESSION_ERROR:
            return None
        if kind == words.TURN_END and data.get("stopReason") == "error":
            return {**{key: value for key, value in data.items() if key != "error"}, "stopReason": "aborted"}
        return data

    def heard(self, kind: str, data: Mapping[str, Any]) -> None:
        """An event of the root agent's, after it was told."""
        matching = self._matching
        if matching is None:
            return
        match kind:
            case words.TURN_START:
                self._arrived()
                matching.turn()
                self._step(TurnStarted(str(data.get("turnId"))))
            case words.TURN_END:
                self._step(TurnEnded())
            case words.MESSAGE_DELTA if self._state.watching:
                self._found(matching.delta(TEXT, str(data.get("text"))))
            case words.REASONING_DELTA if self._state.watching:
                self._found(matching.delta(THINKING, str(data.get("text"))))
            case words.TOOL_CALL_DELTA if self._state.watching:
                self._found(matching.delta(_tool(data), str(data.get("text"))))
            case words.ASSISTANT_MESSAGE if self._state.watching:
                self._found(matching.whole(TEXT, str(data.get("text"))))
                for request in data.get("toolRequests") or ():
                    self._found(matching.call(_tool(request), request.get("arguments")))
            case words.TOOL_START if self._state.watching:  # of an agent that cannot hold it, too
                self._found(matching.call(_tool(data), data.get("arguments")))

    def check(self, call: ToolCall) -> ToolVerdict:
        """Whether a tool (also `loop_control`) may run: not in a response that is, or for this is, interrupted."""
        matching = self._matching
        if matching is None:
            return ToolVerdict()
        self._arrived()
        if not self._state.pending and self._state.watching:
            self._found(matching.call(Stream(Source.TOOL, call.tool, call.id), call.arguments))
        return ToolVerdict(False, ENDED, ends=True) if self._state.pending else ToolVerdict()

    def decided(self) -> None:
        """The iteration's decision was accepted (X-03)."""
        if self._matching is not None:
            self._step(DecisionAccepted())

    def rest(self, run: Run) -> None:
        """The agent has settled after the abort; the run goes on."""
        self._host.watch.rest()
        self._host.questions.clear()
        self._host.told(run)
        self._host.close_turn(run, "aborted")
        run.abort_asked, self._rested = None, True
        self._go_on()

    def cancel(self, why: str) -> None:
        """The retry is void. Where the agent rests already this settles the run."""
        self._step(Cancelled(why))

    def over(self, why: str) -> None:
        """The run has ended."""
        self._rested = self._sent = False
        self._step(Cancelled(why))

    def restored(self, names: tuple[str, ...]) -> None:
        """The conversation stands on a branch where these have acted."""
        if self._matching is not None:
            self._step(Restored(names))

    # ---- time -------------------------------------------------------------------------------------

    def due(self) -> int | None:
        """The monotonic instant at which `tick` has something to do."""
        at = next_due(self._state)
        return None if at is None else at.mono

    def tick(self, now: Moment) -> None:
        at = next_due(self._state)
        if at is None or not at.reached(now):
            return
        changed = self.settings()
        if changed is not None:
            self._step(Configured(changed))  # T-21
        self._step(Elapsed())

    # ---- inside -----------------------------------------------------------------------------------

    def _found(self, hits: Hits) -> None:
        if hits.slow:
            self._step(TooSlow(hits.slow))
        if hits.names and self._state.turn is not None:
            self._step(Matched(self._state.turn, hits.names))

    def _step(self, event: RuleEvent) -> None:
        taken = step(self._state, event, self._clock.now())
        self._state = taken.state
        for effect in taken.effects:
            self._perform(effect)

    def _perform(self, effect: RuleEffect) -> None:
        match effect:
            case Interrupt():
                self._cut()
            case Triggered(rules):
                self._publish(
                    words.TTSR_TRIGGERED, {"rules": [{"name": one.name, "path": one.path} for one in rules]}
                )
                self._host.desk.ready()
            case Inject():
                self._inject = effect
                self._go_on()
            case Record():
                self.record(effect, self._partial)
            case Released(names, why):
                self._inject = None
                told = f"interrupted for {_named(names)} and not tried again: {why}"
                self._publish(words.LOOP_NOTICE, {"message": told})
                self._settle()
            case Silenced(names, request):
                why = "it was broken again and again, so it is not watched any more until the next request"
                slow = "a trigger of it takes too long, so it is not watched any more in this session"
                self._publish(words.LOOP_NOTICE, {"message": f"{_named(names)}: {why if request else slow}"})
            case _:
                assert_never(effect)

    def _cut(self) -> None:
        """End the response in flight, at once; its run goes on."""
        host, run = self._host, self._host.run
        if run is not None and run.abort_asked is None:
            run.answer, run.abort_asked = "", self._clock.now().mono
            host.spawn(host.slot.abort(AbortReason.TTSR))

    def _go_on(self) -> None:
        """The retry, once its time has come and the agent has settled."""
        inject = self._inject
        if inject is not None and self._rested and not self._sent:
            self._inject, self._sent = None, True
            self._host.spawn(self._deliver(inject))

    async def _deliver(self, inject: Inject) -> None:
        host, run, token = self._host, self._host.run, inject.token
        if run is None or not self._state.awaits(token):
            return
        if (first := self.in_the_way(run)) is not None:
            self._step(NotInjected(token, first))
            return
        can = host.slot.capabilities
        keep = inject.context is ContextMode.KEEP and can.keep_partial
        self._partial = "kept" if keep else "discarded" if can.rewind else "left to the agent"
        prompt = Prompt(inject.text, Origin.TTSR, str(uuid.uuid4()), run.stamp, keep=keep)
        self._rested = False
        run.unsaid = {"messageId": prompt.message_id, "origin": prompt.origin.value, "text": prompt.text}
        run.stop, run.error, run.retry_after_ms = "stop", None, None
        host.watch.sign()
        result = await host.slot.prompt(prompt)
        if host.run is not run:  # settled or lost while the answer was on its way
            return
        if isinstance(result, Refused) and run.unsaid is None:
            result = Unknown(f"it was refused and worked on all the same: {result.reason}")
        match result:
            case Accepted():
                host.told(run)
                self._arrived()
                if run.aborted is not None:  # meanwhile, by somebody who may have been too early for the agent
                    await host.slot.abort(run.aborted)
            case Refused(reason):
                run.unsaid, self._rested = None, True
                self._step(NotInjected(token, f"the agent did not take the reminder ({words.bounded(reason)})"))
                self._settle()
            case Unknown(reason):
                run.unsaid = None
                self._step(NotInjected(token, "nobody knows whether the reminder arrived"))
                await host.end_agent(f"it is unknown whether the reminder of a rule arrived ({reason})")

    def _arrived(self) -> None:
        """The model has begun again: the reminder is in the conversation."""
        if self._sent:
            self._sent = False
            if (window := self._state.window) is not None:
                self._step(Injected(window.token))

    def _settle(self) -> None:
        """The retry does not come: the run ends where it stands."""
        run = self._host.run
        if not self._rested or run is None:
            return
        self._rested = self._sent = False
        if run.aborted is None:
            run.aborted = AbortReason.TTSR
        self._host.hearing.settled(True)

    def _publish(self, kind: str, data: Mapping[str, Any]) -> None:
        run = self._host.run
        self._host.desk.publish(kind, data, iteration=None if run is None else run.iteration)


def _tool(data: Mapping[str, Any]) -> Stream:
    return Stream(Source.TOOL, str(data.get("toolName") or ""), str(data.get("toolCallId") or ""))


def _named(names: tuple[str, ...]) -> str:
    return f"the rule {names[0]}" if len(names) == 1 else f"the rules {', '.join(names)}"
