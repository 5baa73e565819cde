"""A session's own life: who owns it, when it closes, what lies in its way on the disk."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from loopsup.core.reaper import ORPHAN_GRACE_MS
from loopsup.errors import StorageError
from tests.support.demo_words import DONE, ON, decide
from tests.support.world import QUICK, World

pytestmark = pytest.mark.slow
GRACE_S = ORPHAN_GRACE_MS / 1000


def test_a_session_nobody_needs_closes_and_a_follower_keeps_it(world: World) -> None:
    del world.env["LOOPSUP_ORPHAN_REAP_GRACE_S"]
    world.start([decide(DONE, wait_for=world.gate("watched")), decide(DONE), decide(DONE)])
    pid = world.supervisor()
    attached = world.spawn("attach", "--json")
    world.wait_for(lambda: world.peek()["session"]["clients"] == 1, "the follower")
    process = psutil.Process(pid)
    world.open("watched")
    world.until(state="completed")
    with pytest.raises(psutil.TimeoutExpired):
        process.wait(GRACE_S + 3)  # somebody is watching
    attached.terminate()
    world.finish(attached)
    world.until_over(pid, GRACE_S + 60)
    assert world.loop()["state"] == "completed"
    assert [event["data"]["reason"] for event in world.events("session.shutdown")] == ["idle"]
    assert world.run("wait").code == 0
    told = world.ok("start", "--detach", "--every", "1h", "--session", "project", "in the old conversation")
    assert told.code == 0
    assert world.run("wait").code == 0
    ids = {event["data"]["agentSessionId"] for event in world.events("session.start", "session.resume")}
    assert len(ids) == 1


def test_several_sessions_in_one_directory_must_be_named(world: World) -> None:
    world.start([decide(ON)])
    refused = world.json(*("start", "--every", "1h", "--agent", "demo", "x"), code=4)
    assert "--session" in refused["error"]["message"]
    world.start([decide(ON)], "--session", "second")
    for verb in ("status", "pause", "stop", "wait"):
        several = world.json(verb, code=2)["error"]["message"]
        assert "project" in several
        assert "second" in several
    world.ok("stop", "--session", "second")
    assert world.json("status", env={"LOOPSUP_SESSION": "second"})["loop"]["state"] == "stopped"
    below = world.project / "a" / "b"
    below.mkdir(parents=True)
    world.ok("close", "--session", "second")
    assert world.json("status", cwd=below)["session"]["name"] == "project"
    rows = world.json("ls")
    assert "project" in str(rows)
    assert "second" in str(rows)


def test_ten_starts_at_once_make_one_loop(world: World) -> None:
    script = world.script([decide(ON)])
    argv = ("start", "--detach", "--every", "1h", "--agent", "demo", "x", "--", "--script", str(script))
    ended = [world.finish(start, 90) for start in [world.spawn(*argv) for _ in range(4)]]
    assert sorted(one.code for one in ended) == [0, 4, 4, 4], ended
    assert len(world.json("ls")["sessions"]) == 1
    world.until(state="waiting")
    assert len(world.said("loop")) == 1


def test_a_second_supervisor_on_the_same_folder_is_impossible(world: World) -> None:
    world.start([decide(ON)])
    pid = world.supervisor()
    launch = '{"v":1,"name":"project","open":"reopen","first":null,"allowAll":false,"foreground":false,"keep":false}'
    reading, writing = os.pipe()
    second = world.spawn("supervise", "--ready-fd", str(writing), stdin=subprocess.PIPE, pass_fds=(writing,))
    os.close(writing)
    out, _ = second.communicate(launch + "\n", timeout=60)
    with os.fdopen(reading) as ready:
        answer = ready.read()
    assert second.returncode == 4, (out, answer)
    assert str(pid) in answer
    assert world.supervisor() == pid
    assert world.run("start", "--foreground", "--every", "1h", "--session", "project", "x").code == 4


def test_a_vanished_socket_is_made_again(world: World) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    world.socket().unlink()
    world.wait_for(world.socket().is_socket, "the socket", 90)
    assert world.json("pause")["loop"]["state"] == "paused"


@pytest.mark.parametrize("kind", ["file", "directory", "foreign socket"])
def test_what_is_not_our_socket_is_not_spoken_to(world: World, kind: str) -> None:
    world.start([decide(ON)])
    world.until(state="waiting")
    path, pid = world.socket(), world.supervisor()
    if kind == "foreign socket" and os.geteuid() != 0:
        pytest.skip("chown to another user, which makes a socket of theirs, is allowed to root only")
    world.halt(pid)  # it looks for its socket every second, and must not make a new one in between
    moved = path.with_suffix(".moved")
    path.rename(moved)  # ours goes on listening there
    if kind == "file":
        path.write_text("x")
    elif kind == "directory":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
        os.chown(path, 12345, 12345)
    world.kill(pid, signal.SIGCONT)
    refused = world.run("pause", "--json")
    assert refused.code == 4
    assert "is not a socket of this user" in refused.obj["error"]["message"]
    assert world.run("status", "--json").code in (4, 5)
    assert path.exists()
    assert world.recorded()["phase"]["type"] == "waiting"


@pytest.fixture
def small_disk(world: World) -> Iterator[Path]:
    """The state home on a file system of its own, of half a MiB."""
    world.home.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", str(world.home)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False, text=True)
    except FileNotFoundError:
        pytest.skip("the full disk is a small tmpfs of its own, and there is no mount command to make one")
    if done.returncode != 0:
        pytest.skip(
            f"the full disk is a small tmpfs of its own, and mounting one is not permitted: {done.stderr.strip()}"
        )
    yield world.home
    for process in world.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself just now
            process.terminate()
    world.until_deserted()
    subprocess.run(["umount", "-l", str(world.home)], check=True)


def filled(disk: Path) -> Path:
    """Not a byte is free any more; the file that takes them all."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 512)
    return filler


def test_a_full_disk_changes_nothing_and_is_told_until_it_is_over(world: World, small_disk: Path) -> None:
    world.start([decide(ON), decide(DONE)])
    world.until(state="waiting")
    filler = filled(small_disk)
    with contextlib.suppress(StorageError):  # what is left of the journal's last page takes a record or two
        for verb in ("pause", "resume") * 8:
            world.ask(verb)
    before, state = world.journal(), world.peek()["loop"]["state"]
    refused = world.json("stop", code=1)
    assert refused["error"]["kind"] == "storage"
    found = world.json("status")
    assert found["loop"]["state"] == state
    assert "journal" in found["session"]["problem"]
    assert world.journal() == before
    filler.unlink()
    stopped = world.json("stop")
    assert stopped["loop"]["state"] == "stopped"
    assert stopped["session"]["problem"] is None
    assert [record["seq"] for record in world.journal()] == list(range(1, len(before) + 2))
    world.ok("start", "--detach", "--every", "1h", "the next")
    assert world.run("wait").code == 0


def test_a_full_disk_in_an_iteration_does_not_accept_the_decision(world: World, small_disk: Path) -> None:
    long = {**DONE, "evidence": "run 42 passed; " * 600}
    tries = {"do": "calls", "turns": [[{"args": long}], [{"args": long}]], "wait_for": world.gate("go")}
    world.start([tries, decide(DONE, wait_for=world.gate("space"))])
    world.until_event("assistant.turn_start")
    filler = filled(small_disk)
    world.open("go")
    found = world.wait_for(lambda: world.peek()["loop"]["llmCalls"] >= 3 and world.peek()["loop"], "both calls")
    assert (found["state"], found["lastDecision"]) == ("running", None)
    assert "the disk is full" in world.log()
    filler.unlink()
    world.open("space")
    world.until(state="completed", timeout=150)  # tried again every 30 s, then the reminder is answered
    assert world.peek()["loop"]["protocolRetryCount"] == 1
    assert world.peek()["session"]["problem"] is None


def test_a_limit_on_file_sizes_is_no_way_to_lose_a_session(world: World) -> None:
    script = world.script([decide(ON)])
    argv = ("start", "--every", "1h", "--detach", "--agent", "demo", "x", "--", "--script", str(script))

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))

    failed = world.run(*argv, preexec=limited)
    assert failed.code in (1, 5), failed
    assert "Traceback" not in failed.err
    assert world.processes() == []
    assert world.json("status", code=3)["error"]["kind"] == "not_found"


def test_an_unreadable_session_does_not_hide_the_others(world: World) -> None:
    world.start([decide(ON)])
    world.start([decide(ON)], "--session", "broken")
    world.until(session="broken", state="waiting")
    world.ok("close", "--session", "broken")
    (world.folder("broken") / "session.toml").write_text("not = = toml")
    assert world.run("status", "--session", "broken").code in (1, 2)
    rows = world.json("ls")
    assert "broken" in str(rows)
    assert world.json("status")["session"]["name"] == "project"
    assert world.run("status", "--session", "../etc").code == 2
    assert world.run("status", "--session", "nobody").code == 3


def test_files_are_private(world: World) -> None:
    world.start([decide(ON), decide(DONE)], *QUICK)
    world.until(state="completed")  # what is still written comes and goes under names of its own
    for path in [world.home, *world.home.rglob("*")]:
        assert path.lstat().st_mode & 0o077 == 0, path


def test_what_lies_in_the_way_of_a_socket_is_told_and_not_removed(world: World) -> None:
    world.start([decide(ON), decide(DONE)])
    world.until(state="waiting")
    world.ok("close")
    world.until_deserted()
    path = world.socket()
    path.mkdir()
    before = world.journal()
    refused = world.json("resume", code=1)
    assert "move it away" in refused["error"]["message"]
    assert path.is_dir()
    assert world.journal() == before
    assert world.processes() == []
    path.rmdir()
    assert world.json("resume")["loop"]["state"] == "waiting"


def test_a_closed_session_that_has_ended_is_not_picked_by_itself(world: World) -> None:
    world.start([decide(DONE)])
    assert world.run("wait").code == 0
    world.ok("close")
    script = world.script([decide(DONE)])
    argv = ("--detach", "--every", "1h", "--agent", "demo", "again", "--", "--script", str(script))
    told = world.run("start", "--json", *argv)
    assert (told.code, told.obj["session"]["name"]) == (0, "project-2")
    assert "loopsup start --session project" in told.err
    world.ok("close", "--session", "project-2")
    old = world.json("start", "--session", "project", "--detach", "--every", "1h", "in the old one")
    assert old["session"]["agentSessionId"] != told.obj["session"]["agentSessionId"]
    assert world.run("wait").code == 0
    ids = {event["data"]["agentSessionId"] for event in world.events("session.start", "session.resume")}
    assert ids == {old["session"]["agentSessionId"]}
