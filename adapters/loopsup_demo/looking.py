"""Looking: at a status file or a command's exit status, and what follows from it (standard library only)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_STATUS = 4096  # bytes read of a status file: its first word and a line to cite
MAX_TAIL = 4096  # bytes kept of a command's output: its last line is cited
MAX_CITED = 200  # characters of one line in the evidence
PIPE_GRACE_S = 0.5  # after the command ended, a background process may keep its output open
KILL_GRACE_S = 1.0  # an aborted command gets this long after TERM

WORDS: Mapping[str, str] = {
    **dict.fromkeys(("running", "pending", "queued"), "continue"),
    **dict.fromkeys(("passed", "success", "green", "done"), "complete"),
    **dict.fromkeys(("failed", "error", "red"), "fail"),
    **dict.fromkeys(("blocked", "needs-human"), "block"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen and which decision follows from it."""

    verb: str
    summary: str
    evidence: str


def at_file(path: Path) -> Finding:
    """The first word of the file says it; whatever cannot be read needs a person."""
    where = Path.cwd() / path
    try:
        if not stat.S_ISREG(where.stat().st_mode):  # opening a FIFO would wait for ever
            return Finding("block", f"{path} is not a file", f"{where} is not a regular file")
        with where.open("rb") as stream:
            text = stream.read(MAX_STATUS).decode("utf-8", "replace")
    except FileNotFoundError:
        return Finding("block", f"the status file {path} is missing", f"{where} does not exist")
    except OSError as error:
        return Finding("block", f"the status file {path} cannot be read", f"{where}: {error.strerror}")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:
        return Finding("continue", f"{path} says nothing yet", f"{where} is empty")
    word = lines[0].split()[0].strip(":.,;!").lower()
    seen = f"{where} says: {cited(lines[0])}"
    if word not in WORDS:
        return Finding("block", f"{path} says something I do not know", f"{seen} (known: {', '.join(WORDS)})")
    return Finding(WORDS[word], f"{path} says {word}", seen)


async def at_command(argv: Sequence[str]) -> Finding:
    """Run it to its end; cancelling ends it with its process group."""
    shown = cited(shlex.join(argv))
    try:
        code, tail = await _run(argv)
    except (OSError, ValueError) as error:
        return Finding("block", f"{argv[0]} cannot be run", f"`{shown}`: {error}")
    lines = [line.strip() for line in tail.decode("utf-8", "replace").split("\n") if line.strip()]
    ended = f"exit status {code}" if code >= 0 else f"signal {-code}"
    evidence = f"`{shown}` ended with {ended}; " + (f"last output: {cited(lines[-1])}" if lines else "no output")
    match code:
        case 0:
            return Finding("complete", f"{argv[0]} succeeded", evidence)
        case os.EX_TEMPFAIL:  # "try again later": 75
            return Finding("continue", f"{argv[0]} is not finished yet", evidence)
        case _:
            return Finding("fail", f"{argv[0]} failed", evidence)


def cited(text: str) -> str:
    """One bounded line without control characters."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text)
    return plain if len(plain) <= MAX_CITED else plain[:MAX_CITED] + "…"


async def _run(argv: Sequence[str]) -> tuple[int, bytes]:
    read_end, write_end = os.pipe()
    try:
        # A pipe of our own: the exit must not wait for a background process that keeps it open.
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=write_end, stderr=write_end, process_group=0
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    tail = bytearray()
    reading = asyncio.create_task(_keep_tail(read_end, tail))
    try:
        code = await process.wait()
        await asyncio.wait([reading], timeout=PIPE_GRACE_S)
    finally:
        reading.cancel()
        if process.returncode is None:
            await _end(process)
    return code, bytes(tail)


async def _keep_tail(read_end: int, tail: bytearray) -> None:
    reader = asyncio.StreamReader()
    with os.fdopen(read_end, "rb") as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await reader.read(64 * 1024):
                tail += data
                del tail[:-MAX_TAIL]
        finally:
            transport.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), KILL_GRACE_S)
            return
