"""`loopsup disable`: the session does not come back after a reboot any more. What runs goes on."""

from __future__ import annotations

import sys

from loopsup.cli import selection, units
from loopsup.cli.common import JsonOption, SessionOption, show_result
from loopsup.cli.enable import mark, unit_path
from loopsup.errors import EXIT_DONE


def disable(session: SessionOption = None, as_json: JsonOption = False) -> int:
    """Undo `enable`."""
    found = selection.pick(session)
    path = unit_path(found)
    status = dict(mark(found, on=False).status or {})
    told = f"session '{found.name}' was not to come back after a reboot"
    if path.exists():
        if sys.platform != "darwin":
            units.systemctl("disable", path.name)
        units.delete(path)
        if sys.platform != "darwin":
            units.systemctl("daemon-reload")
        told = f"session '{found.name}' does not come back after a reboot"
    show_result(told, status, (), as_json=as_json)
    return EXIT_DONE
