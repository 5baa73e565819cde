"""A scripted terminal program, as a real process (standard library only): every fault of T5, T7 and T9 on demand.

    python fake_tui.py SCRIPT STATE [--id ID | --again ID]     SCRIPT: a JSON file, STATE: a directory

It draws a transcript, a line of work (`◎ working`) while it works, and an input line (`❯ …`), each time as a whole.
The script is an object: `start` (how it comes up) and `prompts` (a list; prompt n of the conversation gets the nth,
later ones the last). Keys of `start`, all optional:

    exit, words         end at once with this status, having shown these words
    mute                nothing is shown before a key comes
    question            a dialog stands there until a key comes
    plain               no bracketed paste
    no_work             the line of work is never shown
    no_frame            nothing is drawn anew by itself while it works (no spinner)
    lose_enter          that many Enters are lost
    enter_is_text       Enter is a new line in the text, for ever
    teletype            after an Enter these words stand below the message, the cursor below them, and no input line
    joined              text and Enter that arrive in one read are a paste
    ignore_escape, ignore_hup
    grandchild          a child in a session of its own that ignores HUP and TERM and holds the terminal

A prompt is a list of steps, done in order:

    {"say": text} {"sleep": s} {"hang": true} {"die": status} {"flood": n}
    {"run": [argv]}     a command in its shell; its output and status are kept as a tool's result
    {"menu": text}      a dialog that goes away with any key; the key is kept
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import termios
import tty
import uuid
from pathlib import Path
from typing import Any

ON = b"\x1b[?1049h\x1b[?2004h\x1b[?1000h\x1b[?1006h\x1b[?1004h\x1b[>1u"
OFF = b"\x1b[<u\x1b[?1004l\x1b[?1006l\x1b[?1000l\x1b[?2004l\x1b[?1049l"
PROMPT = "❯ "
WORKING = "◎ working"
FRAMES = "|/-\\"
FRAME_S = 0.1
SHOWN = 30  # rows of the transcript
PIECE = re.compile(rb"\x1b\[200~(.*?)\x1b\[201~|\x1b\[[<0-9;?]*[A-Za-z~]|\x1b.?|[^\x1b]", re.DOTALL)


class Tui:
    def __init__(self, script: Path, state: Path, identity: str) -> None:
        self.script = script
        self.file = state / f"{identity}.jsonl"
        self.shown: list[str] = ["fake tui"]
        self.text = ""
        self.work: asyncio.Task[None] | None = None
        self.dialog: str | None = None
        self.key: asyncio.Future[str] | None = None
        self.frame = 0
        self.lost = 0
        self.pending = b""
        self.start: dict[str, Any] = json.loads(script.read_text()).get("start", {})
        self.visible = not self.start.get("mute")

    # ---- the screen -------------------------------------------------------------------------------

    def draw(self) -> None:
        if not self.visible:
            return
        rows = [row for text in self.shown for row in text.split("\n")][-SHOWN:]
        if self.dialog is not None:
            rows += [self.dialog, "❯ 1. Yes", "  2. No", "(use arrow keys)"]
            out = "\x1b[H\x1b[2J" + "\r\n".join(rows)
        else:
            if self.work is not None and not self.start.get("no_work") and "teletype" not in self.start:
                rows.append(f"{WORKING} {FRAMES[self.frame % len(FRAMES)]}")
            if self.start.get("no_work") and self.frame:
                rows.append(f"({self.frame})")
            if self.work is not None and "teletype" in self.start:
                rows.append(self.start["teletype"] + "\r\n")
                os.write(1, ("\x1b[H\x1b[2J" + "\r\n".join(rows)).encode())
                return
            lines = self.text.split("\n")
            inputs = [PROMPT + lines[0], *("  " + line for line in lines[1:])]
            out = "\x1b[H\x1b[2J" + "\r\n".join([*rows, *inputs])
        os.write(1, out.encode())

    def still(self) -> bool:
        return bool(self.start.get("no_frame")) or "teletype" in self.start

    async def spin(self) -> None:
        while self.work is not None:
            await asyncio.sleep(FRAME_S)
            if self.work is not None and self.dialog is None and not self.still():
                self.frame += 1
                self.draw()

    # ---- the keyboard -----------------------------------------------------------------------------

    def read(self) -> None:
        try:
            data = os.read(0, 65536)
        except OSError:
            data = b""
        if not data:
            raise SystemExit(0)
        self.visible = True
        data, self.pending = self.pending + data, b""
        if b"\x1b[200~" in data and b"\x1b[201~" not in data:
            self.pending = data
            return
        if self.start.get("joined") and len(data) > 1 and data.endswith(b"\r"):
            data = data[:-1] + b"\n"
        for found in PIECE.finditer(data):
            self.piece(found[0], found[1])
        self.draw()

    def piece(self, raw: bytes, pasted: bytes | None) -> None:
        if self.dialog is not None:
            self.answer(raw)
        elif pasted is not None:
            self.text += pasted.decode("utf-8", "replace").replace("\r", "\n")
        elif raw == b"\r":
            self.enter()
        elif raw == b"\x1b":
            self.escape()
        elif raw in (b"\x03", b"\x15"):
            self.text = ""
        elif raw == b"\x7f":
            self.text = self.text[:-1]
        elif raw == b"\x04" and not self.text:
            raise SystemExit(0)
        elif raw[:1] >= b" " or raw == b"\n":
            self.text += raw.decode("utf-8", "replace")

    def answer(self, raw: bytes) -> None:
        if raw.startswith(b"\x1b[") and raw[-1:] in b"IOMm":
            return
        self.dialog = None
        if self.key is not None and not self.key.done():
            self.key.set_result(repr(raw))

    def enter(self) -> None:
        if self.start.get("enter_is_text"):
            self.text += "\n"
        elif self.lost < self.start.get("lose_enter", 0):
            self.lost += 1
        elif self.text.strip() and self.work is None:
            text, self.text = self.text, ""
            self.keep("user", text)
            self.shown += ["> " + text]
            self.work = asyncio.ensure_future(self.perform())
            self.work.add_done_callback(self.done)
            self.spinner = asyncio.ensure_future(self.spin())

    def escape(self) -> None:
        if self.work is not None and not self.start.get("ignore_escape"):
            self.work.cancel()

    def done(self, work: asyncio.Task[None]) -> None:
        self.work = None
        if work.cancelled():
            self.shown.append("interrupted")
        elif (error := work.exception()) is not None:
            os.write(2, repr(error).encode())
            os._exit(70)
        self.frame = 0
        self.draw()

    # ---- the work ---------------------------------------------------------------------------------

    async def perform(self) -> None:
        prompts = json.loads(self.script.read_text())["prompts"]
        count = sum(item["kind"] == "user" for item in self.kept())
        for step in prompts[min(count, len(prompts)) - 1]:
            await self.step(step)
        self.shown.append("done.")

    async def step(self, step: dict[str, Any]) -> None:
        if "say" in step:
            self.shown.append(step["say"])
            self.draw()
        elif "sleep" in step:
            await asyncio.sleep(step["sleep"])
        elif "hang" in step:
            await asyncio.Event().wait()
        elif "die" in step:
            os._exit(step["die"])
        elif "flood" in step:
            for number in range(step["flood"]):
                os.write(1, f"{'flood':>{40 + number % 7}}\x1b[3{number % 8}m\r\n".encode())
                if number % 200 == 0:
                    await asyncio.sleep(0)
        elif "run" in step:
            process = await asyncio.create_subprocess_exec(
                *step["run"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            out, _ = await process.communicate()
            self.keep("tool", f"[{process.returncode}] {out.decode()}")
        elif "menu" in step:
            self.key = asyncio.get_running_loop().create_future()
            self.dialog = step["menu"]
            self.draw()
            self.keep("key", await self.key)

    def keep(self, kind: str, text: str) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps({"kind": kind, "text": text}) + "\n")

    def kept(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in self.file.read_text().splitlines()]
        except FileNotFoundError:
            return []


async def main() -> None:
    script, state, *rest = sys.argv[1:]
    it = Tui(Path(script), Path(state), rest[1] if rest else str(uuid.uuid4()))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGHUP, signal.SIGTERM):
        ignored = number == signal.SIGHUP and it.start.get("ignore_hup")
        loop.add_signal_handler(number, (lambda: None) if ignored else (lambda: os._exit(0)))
    loop.add_signal_handler(signal.SIGWINCH, it.draw)
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        if "exit" in it.start:
            os.write(1, it.start.get("words", "").encode())
            return
        if it.start.get("grandchild"):
            code = "import signal, time\nfor n in (1, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(300)"
            subprocess.Popen([sys.executable, "-I", "-S", "-c", code], start_new_session=True)
        if it.visible:
            os.write(1, ON.replace(b"\x1b[?2004h", b"") if it.start.get("plain") else ON)
        it.dialog = it.start.get("question")
        it.draw()
        loop.add_reader(0, it.read)
        await asyncio.Event().wait()
    finally:
        with contextlib.suppress(OSError):
            os.write(1, b"" if "exit" in it.start else OFF)
            termios.tcsetattr(0, termios.TCSADRAIN, before)
        if "exit" in it.start:
            os._exit(it.start["exit"])


if __name__ == "__main__":
    asyncio.run(main())
