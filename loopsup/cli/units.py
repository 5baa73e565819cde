"""Files and commands of the machine's own schedulers: systemd (of the user), launchd, crontab.

Rules: only files of ours are written, and only the user's own units; what is written says that loopsup did. What is
written for one state home never replaces what another one has there (`ours`). PATH
and the variables that say where loopsup keeps things go along, because a scheduler starts with neither; secrets
never do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from xml.sax.saxutils import escape

from loopsup.errors import RefusedError, StorageError, UsageError
from loopsup.store.files import storage_error
from loopsup.store.home import find_home, user_home, usual_home

KEPT = ("PATH", "LOOPSUP_HOME", "LOOPSUP_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
VIA = "/usr/bin/env"  # starts what systemd would not take as the first word; no shell
HOME_DIGITS = 8  # of a hash: a user has a handful of state homes, and names stay readable
TOOL_TIMEOUT_S = 30.0  # systemctl and crontab answer at once; one that does not is stuck


class NoToolError(UsageError):
    """The machine has no such scheduler."""


def kept_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a scheduler has to be told of our environment."""
    return {name: env[name] for name in KEPT if env.get(name)}


def ours(env: Mapping[str, str] = os.environ) -> str:
    """What the names of all we write begin with: `loopsup`, with a hash for a state home other than the usual one.

    That stands in front, where no name of a session can look like it.
    """
    root, usual = (os.path.realpath(home.root) for home in (find_home(env), usual_home(env)))
    return "loopsup" if root == usual else f"loopsup-{sha256(os.fsencode(root)).hexdigest()[:HOME_DIGITS]}"


# ---- systemd --------------------------------------------------------------------------------------


def systemd_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where the user's units are."""
    config = env.get("XDG_CONFIG_HOME")
    base = Path(config) if config and Path(config).is_absolute() else user_home(env) / ".config"
    return base / "systemd" / "user"


def plain(text: str) -> str:
    """What a unit file can hold: systemd and XML take neither control characters nor what is no UTF-8."""
    if any(character < " " or character == "\x7f" or "\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(
            f"{text!a} cannot be written into a unit file, as it has a control character in it or is no UTF-8; "
            "rename it"
        )
    return text


def systemd_word(text: str) -> str:
    """One argument or assignment of a unit file, so that systemd reads it as it is."""
    plain(text)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") + '"'


def systemd_command(command: Sequence[str]) -> str:
    """A command line for ExecStart=. Of a program's own path systemd takes no quotes, and leaves `$$` as it is."""
    words = " ".join(map(systemd_word, command))
    if not any(character in command[0] for character in "'\"\\$"):
        return words
    if "=" in command[0]:  # env would take it for an assignment
        raise UsageError(f"systemd cannot start {command[0]!a}; install loopsup in a directory with a plainer name")
    return f"{VIA} {words}"


def systemd_service(
    description: str, command: Sequence[str], more: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> str:
    """The text of a service."""
    variables = kept_environment() if env is None else env
    # `$` is not special in Environment=, so it is not doubled there.
    lines = [f"Environment={systemd_word(f'{key}={value}').replace('$$', '$')}" for key, value in variables.items()]
    return "\n".join(
        [
            "# written by loopsup",
            "[Unit]",
            f"Description={description}",
            "",
            "[Service]",
            *lines,
            f"ExecStart={systemd_command(command)}",
            *more,
            "",
        ]
    )


def systemctl(*args: str) -> None:
    """`systemctl --user …`. UsageError where there is none or it refuses, in its own words."""
    run("systemctl", "--user", *args)


def user_systemd(instead: str) -> None:
    """RefusedError where no systemd runs for this user: then there is nobody a unit could be given to.

    `instead`: what does without it.
    """
    try:
        systemctl("show-environment")
    except NoToolError as error:
        raise RefusedError(f"there is no systemd on this machine, so nothing was changed; {instead}") from error
    except UsageError as error:
        raise RefusedError(
            "systemd does not run for your user here, so nothing was changed; on a server `loginctl enable-linger` "
            f"starts it; {instead} ({error.message})"
        ) from error


# ---- launchd --------------------------------------------------------------------------------------


def launchd_dir() -> Path:
    return user_home() / "Library" / "LaunchAgents"


def plist(label: str, command: Sequence[str], more: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """A launchd agent. `more`: further lines of its dictionary."""
    variables = kept_environment() if env is None else env
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">',
            '<plist version="1.0">',
            "<dict>",
            f"  <key>Label</key><string>{escape(label)}</string>",
            "  <key>ProgramArguments</key>",
            "  <array>",
            *(f"    <string>{escape(plain(word))}</string>" for word in command),
            "  </array>",
            "  <key>EnvironmentVariables</key>",
            "  <dict>",
            *(f"    <key>{escape(k)}</key><string>{escape(plain(v))}</string>" for k, v in variables.items()),
            "  </dict>",
            *(f"  {line}" for line in more),
            "</dict>",
            "</plist>",
            "",
        ]
    )


# ---- both -----------------------------------------------------------------------------------------


def write(path: Path, text: str) -> bool:
    """Write a unit file; False if it stood there already. StorageError."""
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.rename(path)
    except OSError as error:
        raise storage_error("cannot write", path, error) from error
    except ValueError as error:
        raise StorageError(f"{path} is there and is no text; move it away") from error
    return True


def delete(path: Path) -> bool:
    """Remove a unit file; False if there was none. StorageError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_error("cannot remove", path, error) from error
    return True


def run(tool: str, *args: str, stdin: str | None = None, may_fail: Sequence[str] = ()) -> str:
    """The output of a scheduler's tool. `may_fail`: words in its complaint that mean "there is nothing"."""
    found = shutil.which(tool)
    if found is None:
        raise NoToolError(f"there is no {tool} on this machine")
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [found, *args],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="surrogateescape",  # a crontab may have any bytes, and goes back as it came
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        said = done.stderr.strip() or done.stdout.strip()
        if done.returncode == 0:
            return done.stdout
        if any(word in said for word in may_fail):
            return ""
        last = said.splitlines()[-1] if said else f"exit status {done.returncode}"
        raise UsageError(f"`{tool} {' '.join(args)}` failed: {last}")
    raise UsageError(f"`{tool} {' '.join(args)}` did not end within {TOOL_TIMEOUT_S:g} s")
