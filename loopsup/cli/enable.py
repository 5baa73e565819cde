"""`loopsup enable`: let the session come back after a reboot, by a unit of systemd or launchd for this user.

What comes back is what was there: an active loop goes on, one that was paused or closed by hand stays so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from loopsup.cli import acting, selection, units
from loopsup.cli.common import JsonOption, SessionOption, show_result
from loopsup.cli.launch import own_command
from loopsup.cli.selection import Session
from loopsup.errors import EXIT_DONE
from loopsup.wire.control import Request, Response

STOP_S = 60  # for the agent to end in good order when the machine goes down
INSTEAD = (
    "a loop that was started with `--driver tick` and is fired by `loopsup tick` from cron goes on after a reboot "
    "without it; in a container run `loopsup start --foreground`"
)


def enable(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Let the session come back after a reboot."""
    found = selection.pick(session)
    path, text = unit_path(found), unit_text(found)
    if sys.platform != "darwin":
        units.user_systemd(INSTEAD)  # nothing is written where nobody would read it
    status = dict(mark(found, on=True).status or {})
    changed = units.write(path, text)
    if sys.platform != "darwin":
        if changed:
            units.systemctl("daemon-reload")
        units.systemctl("enable", path.name)
    told = f"session '{found.name}' comes back after a reboot ({path})"
    if sys.platform != "darwin":
        told += "; without a login only after: loginctl enable-linger"
    show_result(told, status, (), as_json=as_json)
    return EXIT_DONE


def mark(session: Session, *, on: bool) -> Response:
    """Note it in session.toml, by the supervisor where one lives."""
    from loopsup import offline

    return acting.perform(session, Request("enable", {"on": on}), lambda found: offline.enable(found, on=on))


def unit_path(session: Session) -> Path:
    """Where the unit's file is."""
    if sys.platform == "darwin":
        return units.launchd_dir() / f"{_label(session)}.plist"
    return units.systemd_dir() / f"{units.ours()}-session-{session.name}.service"


def unit_text(session: Session) -> str:
    """What stands in it. UsageError where a path cannot be written into one."""
    command = [*own_command(), "reopen", "--session", session.name]
    if sys.platform == "darwin":
        more = ["<key>RunAtLoad</key><true/>", f"<key>ExitTimeOut</key><integer>{STOP_S}</integer>"]
        return units.plist(_label(session), command, more)
    more = ["KillMode=mixed", f"TimeoutStopSec={STOP_S}", "", "[Install]", "WantedBy=default.target"]
    return units.systemd_service(f"loopsup session {session.name}", command, more)


def _label(session: Session) -> str:
    return f"{units.ours()}.session.{session.name}"
