"""Commands without a supervisor: what a dead one left is recorded first, then one step, then let go."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from loopsup import offline
from loopsup.cli import selection
from loopsup.core.events import Opened, Pause, Stop, Ticked, Update
from loopsup.core.model import (
    Decision,
    Delivery,
    Driver,
    Fixed,
    Flight,
    Loop,
    Moment,
    Paused,
    PauseReason,
    PromptKind,
    Running,
    State,
    Stopped,
    Verb,
)
from loopsup.core.step import step
from loopsup.errors import RefusedError
from loopsup.shell import hook
from loopsup.store import eventlog
from loopsup.store.journal import read_all
from loopsup.store.lock import LockHeldError, SessionLock, probe
from loopsup.wire.journal import Record
from loopsup.wire.status import missed_object
from tests.cli.support import NOW, Sessions, a_loop

HOUR = 3_600_000


class At:
    """A clock that stands."""

    def __init__(self, ms: int) -> None:
        self._now = NOW.plus(ms)

    def now(self) -> Moment:
        return self._now


def flight(decision: Decision | None = None) -> Flight:
    return Flight(
        4, 1, PromptKind.ITERATION, Delivery.ACCEPTED, Fixed(600_000), 60_000, 86_400_000, NOW.wall, decision=decision
    )


def records(folder: Path) -> list[Record]:
    return [line for line in read_all(folder) if isinstance(line, Record)]


def events(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    return [(event["type"], event["data"]) for event in eventlog.read(folder)]


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, str, Any]]:
    """The hooks started; one is configured."""
    started: list[tuple[Path, str, Any]] = []

    def spawn(folder: Path, on_attention: str, event: Any) -> None:
        assert probe(folder) is None  # the hook's own process must be able to record its outcome
        started.append((folder, on_attention, event))

    file = tmp_path / "hook"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    config = tmp_path / "config" / "loopsup"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'on_attention = "{file}"\n')
    monkeypatch.setattr(hook, "spawn_detached", spawn)
    return started


def test_a_stop_is_two_records_the_loss_and_the_stop(sessions: Sessions, hooks: list[Any]) -> None:
    folder = sessions.make(loop=a_loop())
    response = offline.change(selection.named("work"), Stop(), At(1000))
    assert response.message == "the loop is stopped"
    assert [(type(record.event), record.seq) for record in records(folder)] == [(Ticked, 1), (Opened, 2), (Stop, 3)]
    assert events(folder) == [
        (
            "loop.transition",
            {"from": "waiting", "to": "paused", "pauseReason": "supervisor_lost", "cause": "opened"},
        ),
        ("loop.transition", {"from": "paused", "to": "stopped", "cause": "stop"}),
    ]
    assert hooks == []
    assert probe(folder) is None


@pytest.mark.parametrize("change", [offline.stop, offline.close])
def test_the_socket_a_dead_supervisor_left_is_removed(sessions: Sessions, change: Any) -> None:
    sessions.make(loop=a_loop())
    session = selection.named("work")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(session.socket))
    change(session)
    assert not session.socket.exists()


def test_what_is_no_socket_stays(sessions: Sessions) -> None:
    sessions.make(loop=a_loop())
    session = selection.named("work")
    session.socket.write_text("mine")
    offline.stop(session)
    assert session.socket.read_text() == "mine"


def test_the_journal_replays(sessions: Sessions) -> None:
    """Each recorded event, stepped from the state before it at its own time, gives the recorded state."""
    folder = sessions.make(loop=a_loop(Running(flight())))
    session = selection.named("work")
    for event in (Pause(), Update(for_ms=HOUR), Update(max_iterations=9), Stop()):
        offline.change(session, event, At(2000))
    before, *rest = records(folder)
    loop: Loop | None = before.loop
    for record in rest:
        loop = step(loop, record.event, record.now).loop
        assert loop == record.loop
    assert isinstance(loop and loop.phase, Stopped)


def test_a_deadline_that_passed_is_materialised_first(sessions: Sessions, hooks: list[Any]) -> None:
    """L-102, L-103: endedAt is the deadline, observedAt the moment somebody looked."""
    loop = a_loop()
    folder = sessions.make(loop=loop)
    late = 30 * HOUR
    response = offline.change(selection.named("work"), Pause(), At(late))
    assert [type(record.event) for record in records(folder)] == [Ticked, Opened, Ticked]
    status = dict(response.status or {})
    assert (status["loop"]["state"], status["loop"]["pauseReason"]) == ("paused", "duration_limit")
    ((where, path, event),) = hooks
    assert (where, Path(path).name) == (folder, "hook")
    assert (event["status"], event["session"]["id"]) == ("duration_limit", "id-work")
    assert event["endedAt"] < event["observedAt"]
    assert event == status["loop"]["lastAttention"]
    assert ("loop.attention", event) in events(folder)
    assert json.loads(json.dumps(event)) == event
    offline.change(selection.named("work"), Pause(), At(late + 1))
    assert len(hooks) == 1  # L-104


def test_a_missed_wake_is_told_also_where_no_supervisor_found_it(sessions: Sessions) -> None:
    """A loop that ticks drive: its wake came never, and now its time is up."""
    folder = sessions.make(loop=a_loop(driver=Driver.TICK))
    offline.change(selection.named("work"), Pause(), At(30 * HOUR))
    loop = sessions.loop()
    assert loop is not None
    assert loop.last_missed is not None
    told = [data for kind, data in events(folder) if kind == "loop.misfire"]
    assert told == [missed_object(loop.last_missed)]
    assert told[0]["done"] == "dropped"


def test_a_refused_command_still_records_what_had_passed(sessions: Sessions, hooks: list[Any]) -> None:
    sessions.make(loop=a_loop(Paused(PauseReason.USER)))
    offline.change(selection.named("work"), Stop(), At(0))
    with pytest.raises(RefusedError):
        offline.change(selection.named("work"), Pause(), At(0))


def test_an_accepted_decision_counts_after_a_crash(sessions: Sessions, hooks: list[Any]) -> None:
    """D-44."""
    decision = Decision(Verb.COMPLETE, "green", "run 7", None, 4, NOW.wall)
    sessions.make(loop=a_loop(Running(flight(decision))))
    with pytest.raises(RefusedError):
        offline.change(selection.named("work"), Pause(), At(1000))
    loop = sessions.loop()
    assert loop is not None
    assert loop.state is State.COMPLETED
    assert [event["status"] for _, _, event in hooks] == ["completed"]


def test_llm_calls_of_a_lost_iteration_are_recounted_and_open_ones_ended(sessions: Sessions) -> None:
    folder = sessions.make(loop=a_loop(Running(flight()), llm_calls=5))
    with eventlog.EventWriter.open(folder) as log:
        log.append(NOW.wall, "user.message", {"messageId": "m", "origin": "loop", "text": "…"}, iteration=4)
        for turn in ("t1", "t2"):
            log.append(NOW.wall, "assistant.turn_start", {"turnId": turn}, iteration=4)
            if turn == "t1":
                log.append(NOW.wall, "assistant.turn_end", {"turnId": turn, "stopReason": "toolUse"}, iteration=4)
    offline.change(selection.named("work"), Pause(), At(1000))
    loop = sessions.loop()
    assert loop is not None
    assert loop.llm_calls == 7
    ends = [data["turnId"] for kind, data in events(folder) if kind == "assistant.turn_end"]
    assert ends == ["t1", "t2"]


def test_a_torn_journal_is_mended_on_the_way(sessions: Sessions) -> None:
    folder = sessions.make(loop=a_loop(Paused(PauseReason.USER)))
    with (folder / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"v":1,"seq":2,"at"')
    response = offline.change(selection.named("work"), Stop(), At(0))
    assert "skipped" in str(dict(response.status or {})["session"]["problem"])
    assert [type(record.event) for record in records(folder)] == [Ticked, Stop]


def test_an_unknown_version_can_be_stopped_and_nothing_else(sessions: Sessions) -> None:
    """D-48, L-116: the unknown line stays as it is."""
    folder = sessions.make(loop=a_loop(Paused(PauseReason.USER)))
    line = b'{"v":99,"seq":2,"loop":{"id":"l1","objective":"x"},"new":true}\n'
    with (folder / "journal.jsonl").open("ab") as journal:
        journal.write(line)
    before = sessions.journal()
    with pytest.raises(RefusedError):
        offline.change(selection.named("work"), Update(max_iterations=9), At(0))
    assert sessions.journal() == before
    offline.change(selection.named("work"), Stop(), At(0))
    assert sessions.journal().startswith(before)
    loop = sessions.loop()
    assert loop is not None
    assert loop.state is State.STOPPED


def test_nothing_is_done_behind_an_owners_back(sessions: Sessions) -> None:
    folder = sessions.make(loop=a_loop())
    before = sessions.journal()
    with SessionLock.acquire(folder), pytest.raises(LockHeldError):
        offline.change(selection.named("work"), Stop(), At(0))
    assert sessions.journal() == before


def test_a_broken_hook_is_told_and_the_outcome_stands(
    sessions: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config" / "loopsup"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('on_attention = "/nonexistent/hook"\n')
    sessions.make(loop=a_loop())
    offline.change(selection.named("work"), Pause(), At(30 * HOUR))
    assert "the attention hook was not started: " in capsys.readouterr().err
    loop = sessions.loop()
    assert loop is not None
    assert loop.deadline_expired
