"""States × inputs, with no hole: where each event can take a loop from each state.

The docs' state diagram is drawn from this table, and the tests hold `step` to it: no transition outside
the table ever happens, and each one in it does. `None` stands for "no loop".
"""

from __future__ import annotations

from collections.abc import Mapping

from loopsup.core.events import (
    AgentLost,
    AgentStartFailed,
    BranchMoved,
    Close,
    ConversationForking,
    DecisionCalled,
    HandoverAccepted,
    HandoverRefused,
    IterationSettled,
    Opened,
    Pause,
    RedeliveryEnded,
    Resume,
    Start,
    Stop,
    Ticked,
    TtsrInjection,
    Update,
)
from loopsup.core.model import State

W, Q, R, P = State.WAITING, State.QUEUED, State.RUNNING, State.PAUSED
C, F, S = State.COMPLETED, State.FAILED, State.STOPPED
Place = State | None

_BRANCH = {None, P, C, F, S}  # wherever the marked loop stands; an active one comes back paused
_STAY: dict[Place, dict[type, set[Place]]] = {
    None: {Start: {W, Q, R, None}, BranchMoved: _BRANCH},
    W: {
        Pause: {P},
        Stop: {S},
        Update: {W, P},
        Close: {P, W},
        Ticked: {W, Q, R, P},
        ConversationForking: {P},
        BranchMoved: _BRANCH,
        Opened: {W, P},
    },
    Q: {
        Pause: {P},
        Stop: {S},
        Update: {Q, P},
        Close: {P, W},
        Ticked: {Q, R, P},
        AgentStartFailed: {Q, P},
        ConversationForking: {P},
        BranchMoved: _BRANCH,
        Opened: {Q, P, W},
    },
    R: {
        Pause: {R, P},
        Stop: {R, S},
        Update: {R, P},
        Close: {P, C, F, S, W},
        Ticked: {R, P},
        HandoverRefused: {R, Q, P, S, W, C, F},
        DecisionCalled: {R, W, P, C, F},
        IterationSettled: {R, W, P, C, F, S},
        RedeliveryEnded: {R, P},
        AgentLost: {R, W, P, C, F, S},
        AgentStartFailed: {R, P},
        ConversationForking: {R, P},
        BranchMoved: _BRANCH,
        Opened: {P, C, F, S},
    },
    P: {
        Resume: {P, W, Q, R},
        Stop: {S},
        Close: {P, C, F},
        HandoverRefused: {P, C, F},
        IterationSettled: {P, C, F},
        AgentLost: {P, C, F},
        BranchMoved: _BRANCH,
        Opened: {P, C, F},
    },
    C: {Start: {W, Q, R, C}, BranchMoved: _BRANCH},
    F: {Start: {W, Q, R, F}, BranchMoved: _BRANCH},
    S: {Start: {W, Q, R, S}, BranchMoved: _BRANCH},
}

EVENTS: tuple[type, ...] = (
    Start,
    Pause,
    Resume,
    Stop,
    Update,
    Close,
    Ticked,
    HandoverAccepted,
    HandoverRefused,
    DecisionCalled,
    IterationSettled,
    RedeliveryEnded,
    AgentLost,
    AgentStartFailed,
    ConversationForking,
    BranchMoved,
    TtsrInjection,
    Opened,
)
PLACES: tuple[Place, ...] = (None, *State)

# (where the loop stands, event type) -> where it can stand after the one step of that event.
TABLE: Mapping[tuple[Place, type], frozenset[Place]] = {
    (place, event): frozenset(_STAY[place].get(event, {place})) for place in PLACES for event in EVENTS
}
