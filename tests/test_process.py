"""Real child processes: their lines, their exits, and the ladder that leaves no survivor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from loopsup.process import MAX_LINE, Child, Ladder, describe_exit

pytestmark = pytest.mark.slow

# Only what must run out is short: a busy machine gives a process no time for seconds, and the next rung would hit it.
UNHEARD = Ladder(ask_s=0.2, term_s=30.0, kill_s=30.0)
DEAF_TO_TERM = Ladder(ask_s=30.0, term_s=0.2, kill_s=30.0)
DEAF_TO_ALL = Ladder(ask_s=0.2, term_s=0.2, kill_s=30.0)
PATIENT = Ladder(ask_s=30.0, term_s=30.0, kill_s=30.0)  # a test that waits for a rung hangs, and fails

READY = "import os, signal, subprocess, sys, time\nsay = lambda *words: print(*words, flush=True)\n"
UNTIL_EOF = "say('ready')\nsys.stdin.read()\n"
FOR_EVER = "say('ready')\nwhile True: time.sleep(60)\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
SLEEPER = "[sys.executable, '-c', 'import time; time.sleep(60)']"


class Running:
    """A child and what it said."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.words: list[str] = []
        self.dropped = 0
        self.changed = asyncio.Event()
        self.child: Child

    def heard(self, line: bytes) -> None:
        self.lines.append(line)
        self.changed.set()

    def complained(self, line: str) -> None:
        self.words.append(line)

    async def line(self, number: int) -> str:
        """Line `number` (from 0), once it is there."""
        async with asyncio.timeout(60):
            while len(self.lines) <= number:
                self.changed.clear()
                await self.changed.wait()
        return self.lines[number].decode()


def running(
    code: str,
    tmp_path: Path,
    body: Callable[[Running], Awaitable[None]],
    ladder: Ladder = PATIENT,
    heard: Callable[[bytes], None] | None = None,
) -> Running:
    """Run `code` in a Python child and `body` beside it; the child is killed at the end, whatever happened."""

    async def main() -> Running:
        it = Running()
        it.child = await Child.spawn(
            [sys.executable, "-I", "-c", READY + code],
            cwd=tmp_path,
            env=os.environ,
            on_line=heard or it.heard,
            on_stderr=it.complained,
            ladder=ladder,
        )
        try:
            await body(it)
        finally:
            it.child.kill()
            await it.child.close()
        return it

    return asyncio.run(main())


async def gone(pid: int) -> bool:
    """True once no living process has this pid (bounded)."""
    async with asyncio.timeout(60):
        while alive(pid):
            await asyncio.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ---- lines ----------------------------------------------------------------------------------------


def test_lines_are_split_at_lf_only_and_across_chunks(tmp_path: Path) -> None:
    code = (
        "w = sys.stdout.buffer\n"
        "for part in (b'one\\ntw', b'o\\r\\n\\n', '\\u2028three\\u0085\\n'.encode(), b'rest'):\n"
        "    w.write(part); w.flush(); sys.stdin.readline()\n"
    )

    async def body(it: Running) -> None:
        for _ in range(4):
            await it.child.send(b"go\n")
        assert await it.child.wait() == "exit status 0"

    it = running(code, tmp_path, body)
    assert it.lines == [b"one", b"two", b"", "\u2028three\u0085".encode(), b"rest"]


def test_a_line_of_30_mib_arrives_whole(tmp_path: Path) -> None:
    size = 30 * 1024 * 1024

    async def body(it: Running) -> None:
        assert await it.child.wait() == "exit status 0"

    it = running(f"print('x' * {size})\nprint('after')\n", tmp_path, body)
    assert [len(line) for line in it.lines] == [size, len("after")]
    assert size < MAX_LINE


def test_a_big_line_is_sent_whole(tmp_path: Path) -> None:
    size = 8 * 1024 * 1024

    async def body(it: Running) -> None:
        await it.child.send(b"y" * size + b"\n")
        assert await it.line(0) == str(size + 1)

    running("say(len(sys.stdin.readline()))\n", tmp_path, body)


def test_both_streams_are_drained_at_once(tmp_path: Path) -> None:
    code = "for n in range(3000):\n    print('o' * 100)\n    print('e' * 100, file=sys.stderr)\n"

    async def body(it: Running) -> None:
        assert await it.child.wait() == "exit status 0"

    it = running(code, tmp_path, body)
    assert (it.lines, it.words) == ([b"o" * 100] * 3000, ["e" * 100] * 3000)


def test_a_line_that_cannot_be_dealt_with_does_not_stop_the_reading(tmp_path: Path) -> None:
    lines: list[bytes] = []
    reported: list[str] = []

    def heard(line: bytes) -> None:
        lines.append(line)
        if line == b"bad":
            raise ValueError("not my kind of line")

    async def body(it: Running) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(str(context["exception"]))
        )
        await it.child.wait()

    running("print('good\\nbad\\ngood')\n", tmp_path, body, heard=heard)
    assert lines == [b"good", b"bad", b"good"]
    assert reported == ["not my kind of line"]


# ---- exits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("sys.exit(0)", "exit status 0"),
        ("sys.exit(3)", "exit status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9 (SIGKILL)"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "signal 15 (SIGTERM)"),
    ],
)
def test_the_exit_is_told_in_words(code: str, words: str, tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        assert await it.child.wait() == words

    running(code, tmp_path, body)


def test_an_unnamed_signal_is_told_by_its_number() -> None:
    assert describe_exit(-200) == "signal 200"


def test_last_words_come_before_the_exit(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        assert await it.child.wait() == "exit status 1"
        assert (it.lines, it.words) == ([b"a", b"b"], ["c"])

    running("say('a'); say('b'); print('c', file=sys.stderr); sys.exit(1)", tmp_path, body)


def test_the_exit_is_noticed_though_a_grandchild_holds_the_pipes(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        async with asyncio.timeout(60):
            assert await it.child.wait() == "exit status 7"
        assert it.child.returncode == 7
        grandchild = int(await it.line(0))
        assert alive(grandchild)
        await it.child.close()
        assert await gone(grandchild)

    running(f"say(subprocess.Popen({SLEEPER}).pid); sys.exit(7)", tmp_path, body)


def test_a_command_that_does_not_exist_is_an_os_error(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(FileNotFoundError, match="no-such-agent"):
            await Child.spawn(
                [str(tmp_path / "no-such-agent")],
                cwd=tmp_path,
                env={},
                on_line=lambda _: None,
                on_stderr=lambda _: None,
            )

    asyncio.run(main())


def test_sending_to_a_child_that_ended_is_a_connection_error(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        await it.child.wait()
        with pytest.raises(ConnectionError):
            await it.child.send(b"hello\n")

    running("sys.exit(0)", tmp_path, body)


def test_sending_after_close_is_a_connection_error(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        await it.child.close()
        with pytest.raises(ConnectionError):
            await it.child.send(b"hello\n")

    running(UNTIL_EOF, tmp_path, body)


def test_sending_to_a_child_that_closed_its_input_ends_in_a_connection_error(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        async def send_on() -> None:
            async with asyncio.timeout(60):
                while True:
                    await it.child.send(b"hello\n")
                    await asyncio.sleep(0)

        await it.line(0)
        with pytest.raises(ConnectionError):
            await send_on()

    running("os.close(0)\n" + FOR_EVER, tmp_path, body)


# ---- the ladder -----------------------------------------------------------------------------------


def test_a_child_has_a_session_and_group_of_its_own(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        await it.line(0)
        pid = it.child.pid
        assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)

    running(UNTIL_EOF, tmp_path, body)


def test_closing_asks_first(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        await it.line(0)
        await it.child.close()
        assert (it.child.returncode, it.lines) == (0, [b"ready", b"bye"])

    running(UNTIL_EOF + "say('bye')\n", tmp_path, body)


def test_the_caller_may_ask_in_another_way(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        await it.line(0)
        await it.child.close(lambda: it.child.send(b"quit\n"))
        assert it.child.returncode == 4

    running("say('ready')\nif sys.stdin.readline() == 'quit\\n': sys.exit(4)\n", tmp_path, body)


def test_one_that_ignores_the_end_of_its_input_gets_term(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        await it.line(0)
        await it.child.close()
        assert it.child.returncode == -signal.SIGTERM

    running(FOR_EVER, tmp_path, body, UNHEARD)


def test_one_that_ignores_term_gets_kill(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        await it.line(0)
        await it.child.close()
        assert it.child.returncode == -signal.SIGKILL

    running(DEAF + FOR_EVER, tmp_path, body, DEAF_TO_ALL)


def test_an_ask_that_hangs_or_cannot_be_heard_only_costs_its_grace(tmp_path: Path) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async def broken() -> None:
        raise BrokenPipeError

    for ask in (hang, broken):

        async def body(it: Running, ask: Callable[[], Awaitable[None]] = ask) -> None:
            await it.line(0)
            await it.child.close(ask)
            assert it.child.returncode == -signal.SIGTERM

        running(FOR_EVER, tmp_path, body, UNHEARD)


def test_an_ask_with_a_fault_still_ends_the_child(tmp_path: Path) -> None:
    async def faulty() -> None:
        raise KeyError("ask")

    async def body(it: Running) -> None:
        await it.line(0)
        with pytest.raises(KeyError):
            await it.child.close(faulty)
        assert await gone(it.child.pid)

    running(DEAF + FOR_EVER, tmp_path, body)


def test_a_cancelled_close_still_ends_the_child(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        await it.line(0)
        closing = asyncio.create_task(it.child.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await gone(it.child.pid)

    running(DEAF + FOR_EVER, tmp_path, body)


def test_closing_twice_and_at_once_is_harmless(tmp_path: Path) -> None:
    async def body(it: Running) -> None:
        await it.line(0)
        await asyncio.gather(it.child.close(), it.child.close())
        await it.child.close()
        assert it.child.returncode == 0

    running(UNTIL_EOF, tmp_path, body)


def test_a_grandchild_in_a_session_of_its_own_is_swept(tmp_path: Path) -> None:
    code = f"say(subprocess.Popen({SLEEPER}, start_new_session=True, stdout=subprocess.DEVNULL).pid)\n"

    async def body(it: Running) -> None:
        grandchild = int(await it.line(0))
        await it.line(1)
        await it.child.close()
        assert (it.child.returncode, alive(grandchild)) == (0, False)

    running(code + UNTIL_EOF, tmp_path, body)


def test_an_orphan_in_the_childs_session_is_swept(tmp_path: Path) -> None:
    """Its parent has ended and it has a group of its own: only the session tells whose it is."""
    code = (
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        os.setpgid(0, 0)\n"
        "        say(os.getpid())\n"
        "        time.sleep(60)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "sys.stdin.read()\n"
    )

    async def body(it: Running) -> None:
        orphan = int(await it.line(0))
        await it.child.close()
        assert (it.child.returncode, alive(orphan)) == (0, False)

    running(code, tmp_path, body)


def test_a_deaf_grandchild_of_a_polite_child_is_killed(tmp_path: Path) -> None:
    deaf = READY + DEAF + FOR_EVER
    code = f"say(subprocess.Popen([sys.executable, '-c', {deaf!r}]).pid)\n"

    async def body(it: Running) -> None:
        await it.line(2)  # both are ready, in whatever order
        (grandchild,) = (int(line) for line in it.lines if line.isdigit())
        await it.child.close()
        assert (it.child.returncode, alive(grandchild)) == (0, False)

    running(code + UNTIL_EOF, tmp_path, body, DEAF_TO_TERM)


def test_a_stranger_is_left_alone(tmp_path: Path) -> None:
    """A process that is neither a descendant nor in the child's session survives the sweep."""

    async def body(it: Running) -> None:
        stranger = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "import sys; sys.stdin.read()", stdin=asyncio.subprocess.PIPE
        )
        await it.line(0)
        await it.child.close()
        assert stranger.returncode is None
        assert alive(stranger.pid)
        await stranger.communicate(b"")
        assert stranger.returncode == 0

    running(UNTIL_EOF, tmp_path, body)


SPAWNS_AWAY = f"p = subprocess.Popen({SLEEPER}, start_new_session=True)\nsay(p.pid)\n"


async def looked(child: Child) -> None:
    """Until it has looked at its tree, as it does soon after each line."""
    async with asyncio.timeout(60):
        while not child._tree.seen:
            await asyncio.sleep(0.02)


def test_what_a_killed_child_was_running_is_swept(tmp_path: Path) -> None:
    """Nobody can say any more whose it was: it has another session, and its parent is gone."""

    async def body(it: Running) -> None:
        tool = int(await it.line(0))
        await looked(it.child)
        os.kill(it.child.pid, signal.SIGKILL)
        await it.child.wait()
        assert alive(tool)
        await it.child.close()
        assert await gone(tool)

    running(SPAWNS_AWAY + FOR_EVER, tmp_path, body)


def test_a_daemon_that_left_is_not_swept_though_it_was_seen(tmp_path: Path) -> None:
    """In good order the tree at the close counts."""
    leaves = f"import subprocess, sys; print(subprocess.Popen({SLEEPER}, start_new_session=True).pid, flush=True)"
    code = (
        f"p = subprocess.Popen([sys.executable, '-c', {leaves + '; sys.stdin.read()'!r}], stdin=subprocess.PIPE)\n"
        "sys.stdin.readline()\np.stdin.close()\np.wait()\nsay('left')\nsys.stdin.read()\n"
    )

    async def body(it: Running) -> None:
        daemon = int(await it.line(0))
        await looked(it.child)
        await it.child.send(b"go\n")
        await it.line(1)
        await it.child.close()
        try:
            assert alive(daemon)
        finally:
            os.kill(daemon, signal.SIGKILL)

    running(code, tmp_path, body)
