#!/usr/bin/env python3
"""The smallest program `--agent pty` can drive: a prompt, bracketed paste, and a decision through `loopsup control`.

    tiny_tui.py STATUS-FILE

An agent would give a message to its model, which would decide in its shell. This one reads a file instead.
"""

import os
import re
import subprocess
import sys
import termios
import tty
from pathlib import Path

PASTE, PASTE_END = b"\x1b[200~", b"\x1b[201~"
DECISIONS = {"passed": "complete", "failed": "fail"}  # any other word: go on


def show(text: str) -> None:
    os.write(1, text.replace("\n", "\r\n").encode())


def work(file: str) -> None:
    show("\nworking")  # the sign of work, for --busy; it goes away afterwards
    found = Path(file).read_text().strip() or "empty"
    told = ["--summary", found, "--evidence", f"cat {file}"]
    command = ["loopsup", "control", DECISIONS.get(found, "continue"), *told]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    show(f"\r\x1b[K{found}: {(done.stdout + done.stderr).strip()}\n> ")


def main(file: str) -> None:
    show("\x1b[?2004h> ")  # switches bracketed paste on, and is at the prompt
    keys = b""
    while data := os.read(0, 65536):
        keys += data
        if PASTE in keys and PASTE_END not in keys:
            continue  # the rest of it is on its way
        for paste, key in re.findall(rb"\x1b\[200~(.*?)\x1b\[201~|(.)", keys, re.DOTALL):
            if key in (b"\x03", b"\x04"):
                return
            if key == b"\r":
                work(file)
            else:
                show(f"[{len(paste.splitlines())} lines]" if paste else key.decode("ascii", "ignore"))
        keys = b""


before = termios.tcgetattr(0)
tty.setraw(0)
try:
    main(sys.argv[1])
finally:
    show("\x1b[?2004l\n")
    termios.tcsetattr(0, termios.TCSADRAIN, before)
