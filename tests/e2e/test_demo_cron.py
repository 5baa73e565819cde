"""The line that `install-timer cron` writes, run the way cron runs it: its shell, its environment, its `%`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.demo_words import ON, decide
from tests.support.world import Ran, World

pytestmark = pytest.mark.slow

PATIENT_S = 180.0  # a tick waits for its iteration, on a busy machine
CRONTAB = """#!/bin/sh
if [ "$1" = -l ]; then
    [ -f "$0.kept" ] || { echo "no crontab for me" >&2; exit 1; }
    cat "$0.kept"
else
    cat > "$0.kept"
fi
"""


def crontab(world: World) -> Path:
    """A `crontab` on the PATH, which is short as cron's lines must be; the file it keeps."""
    tool = world.root / "bin" / "crontab"
    tool.parent.mkdir()
    tool.write_text(CRONTAB)
    tool.chmod(0o755)
    world.env["PATH"] = os.pathsep.join((str(tool.parent), str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    return tool.with_name("crontab.kept")


def as_cron(world: World, line: str) -> Ran:
    """What cron does once a minute: `\\%` is a per cent sign, and of our environment there is nothing."""
    command = line.split(" ", 5)[5]
    assert not re.search(r"(?<!\\)%", command), "the rest would be its standard input"
    done = subprocess.run(
        ["/bin/sh", "-c", command.replace("\\%", "%")],
        cwd=world.env["HOME"],
        env={"HOME": world.env["HOME"], "LOGNAME": "me", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENT_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_the_line_in_the_crontab_fires_what_is_due_and_is_silent(world: World) -> None:
    kept = crontab(world)
    world.home = world.root / "h 50% $x 'q' ü"
    world.env["LOOPSUP_HOME"] = str(world.home)
    world.start([decide(ON), decide(ON)], "--driver", "tick", "--every", "1h")
    world.ok("install-timer", "cron")
    (line,) = kept.read_text().splitlines()
    assert as_cron(world, line) == (0, "", ""), "cron would mail it"
    assert world.loop()["iterationCount"] == 1
    assert world.loop()["lastTickAt"] is not None
    assert as_cron(world, line) == (0, "", ""), "nothing is due"
    assert world.loop()["iterationCount"] == 1
    (world.home / "sessions" / "project" / "session.toml").write_text("x = [")
    with (world.home / "sessions" / "project" / "journal.jsonl").open("a") as journal:
        journal.write("no record\n")
    failed = as_cron(world, line)
    assert (failed.code, failed.out) == (1, "")
    assert "session.toml is damaged" in failed.err, "this is to be mailed"
