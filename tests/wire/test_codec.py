"""The codec: every value the core can hold goes out and comes back; everything else is refused with its path."""

from __future__ import annotations

import json
import typing
from dataclasses import dataclass

import pytest
from hypothesis import given, settings

from loopsup.core import events
from loopsup.core.events import Event, Pause, Start, Update
from loopsup.core.model import (
    Auto,
    Delivery,
    Fixed,
    Flight,
    Loop,
    Moment,
    Paused,
    PauseReason,
    Phase,
    Policy,
    PromptKind,
    Rhythm,
    State,
    Waiting,
)
from loopsup.wire.codec import MAX_INT, decode, encode, tag
from tests.wire.values import values


@settings(deadline=None)  # a busy machine is no failure
@given(values(Loop))
def test_every_loop_round_trips_through_json(loop: Loop) -> None:
    assert decode(Loop, json.loads(json.dumps(encode(loop)))) == loop


@settings(deadline=None)  # a busy machine is no failure
@given(values(Event))
def test_every_event_round_trips_through_json(event: Event) -> None:
    assert decode(Event, json.loads(json.dumps(encode(event, Event)))) == event


def test_unions_are_tagged_by_name_and_optionals_are_not() -> None:
    assert encode(Start("l1", "do", Policy(Fixed(600_000)), None, True), Event) == {
        "type": "start",
        "loop_id": "l1",
        "objective": "do",
        "policy": {
            "rhythm": {"type": "fixed", "every_ms": 600_000},
            "min_delay_ms": 60_000,
            "max_delay_ms": 86_400_000,
            "for_ms": 86_400_000,
            "max_iterations": 50,
            "misfire": {"type": "once"},
        },
        "after_ms": None,
        "idle": True,
        "driver": "resident",
    }
    assert encode(Pause(), Event) == {"type": "pause"}
    waiting = {"type": "waiting", "due": {"wall": 1, "mono": 2}, "held": None}
    assert encode(Waiting(Moment(1, 2)), Phase) == waiting
    assert encode(Update(), Event)["rhythm"] is None


def test_the_tag_of_every_phase_is_the_name_of_its_state() -> None:
    assert {tag(kind) for kind in typing.get_args(Phase)} == {state.value for state in State}


def test_unknown_keys_are_ignored_and_missing_ones_take_their_default() -> None:
    assert decode(Phase, {"type": "paused", "reason": "user", "later": [1]}) == Paused(PauseReason.USER)


PHASES = "waiting, queued, running, paused, completed, failed, stopped"
GOOD_FLIGHT = encode(
    Flight(1, 1, PromptKind.ITERATION, Delivery.SENT, Auto(), 1, 2, 3),
)


@pytest.mark.parametrize(
    ("kind", "obj", "error"),
    [
        (Moment, {"wall": True, "mono": 0}, "wall: expected an integer, found true"),
        (Moment, {"wall": 1.0, "mono": 0}, "wall: expected an integer, found 1.0"),
        (Moment, {"wall": float("nan"), "mono": 0}, "wall: expected an integer, found nan"),
        (Moment, {"wall": MAX_INT + 1, "mono": 0}, "wall: the integer is out of range"),
        (Moment, {"wall": "1", "mono": 0}, "wall: expected an integer, found '1'"),
        (Moment, {"wall": 1}, "mono: missing"),
        (Moment, [1, 2], "value: expected an object, found an array"),
        (Phase, {"type": "sleeping"}, f"type: 'sleeping' is none of {PHASES}"),
        (Phase, {"reason": "user"}, f"type: null is none of {PHASES}"),
        (Phase, {"type": ["paused"]}, f"type: an array is none of {PHASES}"),
        (Phase, None, "value: expected an object, found null"),
        (Phase, {"type": "waiting", "due": {"wall": None, "mono": 1}}, "due.wall: expected an integer, found null"),
        (PauseReason, "tired", "value: 'tired' is none of " + ", ".join(PauseReason)),
        (PauseReason, 3, "value: 3 is none of " + ", ".join(PauseReason)),
        (tuple[int, ...], [1, "2"], "[1]: expected an integer, found '2'"),
        (tuple[int, ...], {"0": 1}, "value: expected an array, found an object"),
        (Flight, {**GOOD_FLIGHT, "retry_used": 1}, "retry_used: expected true or false, found 1"),
        (Flight, {**GOOD_FLIGHT, "retry": 5}, "retry: expected an object, found 5"),
        (int | None, "x", "value: expected an integer, found 'x'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_path(kind: object, obj: object, error: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        decode(kind, obj)
    assert str(caught.value) == error


def test_the_path_leads_from_the_outermost_name() -> None:
    obj = encode(Loop("l", "o", Policy(Fixed(1)), 0, Waiting(Moment(1, 2))))
    obj["phase"]["due"]["mono"] = "soon"
    with pytest.raises(ValueError, match=r"^loop\.phase\.due\.mono: expected an integer, found 'soon'$"):
        decode(Loop, obj, "loop")


@pytest.mark.parametrize(
    "sent", [float("nan"), [float("inf")], [10**5000], {"a": {1, 2}}], ids=["nan", "inf", "long", "set"]
)
def test_what_json_cannot_hold_is_named_not_raised(sent: object) -> None:
    shown = encode(events.DecisionCalled(None, sent), Event)["arguments"]
    assert shown == {"unrepresentable": type(sent).__name__}


def test_endless_nesting_is_named_not_raised() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert encode(events.DecisionCalled(None, deep), Event)["arguments"] == {"unrepresentable": "list"}


@dataclass(frozen=True)
class _Typed:
    type: str


@dataclass(frozen=True)
class _Other:
    name: str


def test_a_union_whose_tag_would_hide_a_field_is_refused() -> None:
    with pytest.raises(TypeError, match="has a member with a field named 'type'"):
        encode(_Typed("x"), _Typed | _Other)


def test_a_type_without_a_rule_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="the codec has no rule for"):
        decode(float, 1.0)
    assert decode(Rhythm | None, None) is None
