"""`loopsup install-timer`: have `loopsup tick` run once a minute.

`systemd` and `cron` are installed for this user; asking twice changes nothing. `launchd` and `kubernetes` are
printed, for you to put where they belong.
"""

from __future__ import annotations

import os
import shlex
from enum import StrEnum
from typing import Annotated

import typer

from loopsup.cli import units
from loopsup.cli.common import note, out
from loopsup.cli.launch import own_command
from loopsup.cli.policy_options import Faults
from loopsup.core.durations import show
from loopsup.core.limits import DAY, HOUR, MINUTE, SECOND
from loopsup.core.misfire import TICK_LATE_MS
from loopsup.errors import EXIT_DONE, UsageError

JOB = "loopsup-tick"  # the CronJob's name; its state is its own volume's
MAX_CRON_BYTES = 998  # Debian's cron cuts a longer command off in silence, in the middle of a word
INSTEAD = (
    "`loopsup install-timer cron` does without it; in a container use `loopsup install-timer kubernetes`, "
    "or run `loopsup start --foreground`"
)
GRACE_S = 60  # in a container: to end the agents in good order


class Kind(StrEnum):
    """The schedulers there is something for."""

    SYSTEMD = "systemd"
    CRON = "cron"
    LAUNCHD = "launchd"
    KUBERNETES = "kubernetes"


def install_timer(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="systemd, cron, launchd or kubernetes.")],
    every: Annotated[str | None, typer.Option("--every", metavar="DUR", help="How often; default 1m.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take it out again (systemd and cron).")] = False,
) -> int:
    """Have `loopsup tick` run regularly: installed for systemd and cron, printed for launchd and Kubernetes."""
    faults = Faults()
    every_ms = faults.duration("--every", every)
    faults.refuse()
    every_ms = MINUTE if every_ms is None else every_ms
    if every_ms < SECOND or every_ms > DAY:
        raise UsageError("--every must be from 1s to 24h")
    match kind:
        case Kind.SYSTEMD:
            out(_remove_systemd() if remove else _systemd(every_ms))
        case Kind.CRON:
            out(_cron(None if remove else _cron_line(every_ms), every_ms))
        case _ if remove:
            raise UsageError(f"nothing of {kind} was installed; remove what you put there yourself")
        case Kind.LAUNCHD:
            out(_launchd(every_ms))
        case Kind.KUBERNETES:
            out(_kubernetes(every_ms))
    if every_ms > TICK_LATE_MS and not remove:
        note(
            f"with ticks this far apart a wake is often {show(TICK_LATE_MS)} late or more, which counts as missed: "
            "loops with `--misfire skip` may never be woken"
        )
    return EXIT_DONE


# ---- systemd --------------------------------------------------------------------------------------


def _unit() -> str:
    return f"{units.ours()}-tick"


def _systemd(every_ms: int) -> str:
    # The iterations outlive the tick that began them, so that the next one comes in time for the other sessions.
    command = [*own_command(), "tick", "--detach"]
    service = units.systemd_service("fire what is due in loopsup", command, ["Type=oneshot", "KillMode=process"])
    timer = "\n".join(
        [
            "# written by loopsup",
            "[Unit]",
            "Description=run loopsup tick",
            "",
            "[Timer]",
            "OnStartupSec=30s",
            f"OnUnitActiveSec={every_ms // SECOND}s",
            "AccuracySec=1s",
            "",
            "[Install]",
            "WantedBy=timers.target",
            "",
        ]
    )
    place, unit = units.systemd_dir(), _unit()
    units.user_systemd(INSTEAD)  # nothing is written where nobody would read it
    changed = units.write(place / f"{unit}.service", service)
    changed = units.write(place / f"{unit}.timer", timer) or changed
    if changed:
        units.systemctl("daemon-reload")
    units.systemctl("enable", "--now", f"{unit}.timer")
    if changed:  # one that ran already goes on with its old interval otherwise
        units.systemctl("restart", f"{unit}.timer")
    done = "is installed" if changed else "was installed already"
    return (
        f"{unit}.timer {done}: `loopsup tick` every {show(every_ms)}\n"
        f"see it: systemctl --user list-timers {unit}.timer\n"
        "without a login it runs only after: loginctl enable-linger"
    )


def _remove_systemd() -> str:
    place, unit = units.systemd_dir(), _unit()
    if not (place / f"{unit}.timer").exists():
        return f"{unit}.timer is not installed"
    units.systemctl("disable", "--now", f"{unit}.timer")
    units.delete(place / f"{unit}.timer")
    units.delete(place / f"{unit}.service")
    units.systemctl("daemon-reload")
    return f"{unit}.timer is removed"


# ---- cron -----------------------------------------------------------------------------------------


def _mark() -> str:
    """What ends our line in the crontab, and is how it is found again."""
    return f"# {units.ours()} tick"


def _cron(line: str | None, every_ms: int) -> str:
    try:
        before = units.run("crontab", "-l", may_fail=("no crontab",))
    except units.NoToolError as error:
        raise UsageError(f"{error.message}; `loopsup install-timer --help` names the other ways") from error
    # Not `splitlines`, which knows more ends of a line than cron does.
    lines = before.removesuffix("\n").split("\n") if before else []
    kept = [each for each in lines if not each.endswith(_mark())]
    ours = [each for each in lines if each.endswith(_mark())]
    if ours == ([] if line is None else [line]):
        return "the crontab has no `loopsup tick`" if line is None else "the crontab has `loopsup tick` already"
    after = [*kept, *([] if line is None else [line])]
    units.run("crontab", "-", stdin="".join(f"{each}\n" for each in after))
    if line is None:
        return "`loopsup tick` is taken out of the crontab"
    return f"the crontab runs `loopsup tick` every {show(every_ms)}; see it: crontab -l"


def _cron_line(every_ms: int) -> str:
    variables = [f"{key}={shlex.quote(value)}" for key, value in units.kept_environment().items()]
    command = " ".join([*variables, *map(shlex.quote, own_command()), "tick"])
    if "\n" in command:
        raise UsageError("a path with a line break in it cannot be written into a crontab; rename it")
    command = f"{command} >/dev/null {_mark()}".replace("%", "\\%")  # errors are mailed, the rest is in `history`
    if len(os.fsencode(command)) > MAX_CRON_BYTES:
        raise UsageError(
            f"the command would be longer than the {MAX_CRON_BYTES} bytes cron reads of one, mostly because of PATH; "
            "take out of it what the agent does not need, or use `loopsup install-timer systemd`"
        )
    return f"{_cron_times(every_ms)} {command}"


def _cron_times(every_ms: int) -> str:
    minutes, hours = every_ms // MINUTE, every_ms // HOUR
    if every_ms == MINUTE:
        return "* * * * *"
    if every_ms < HOUR and every_ms % MINUTE == 0 and 60 % minutes == 0:
        return f"*/{minutes} * * * *"
    if every_ms == DAY:
        return "0 0 * * *"
    if every_ms % HOUR == 0 and 24 % hours == 0:
        return "0 * * * *" if hours == 1 else f"0 */{hours} * * *"
    raise UsageError(f"a crontab cannot say every {show(every_ms)}; use 1m, 2m, 5m, 10m, 15m, 30m, 1h, 6h or 24h")


# ---- printed --------------------------------------------------------------------------------------


def _launchd(every_ms: int) -> str:
    more = [
        f"<key>StartInterval</key><integer>{every_ms // SECOND}</integer>",
        "<key>AbandonProcessGroup</key><true/>",
    ]
    label = f"{units.ours()}.tick"
    text = units.plist(label, [*own_command(), "tick", "--detach"], more)
    place = f"~/Library/LaunchAgents/{label}.plist"
    told = f"<!-- put this into {place}, then: launchctl bootstrap gui/{os.getuid()} {place} -->"
    first, _, rest = text.partition("\n")  # nothing may stand above the line that says it is XML
    return f"{first}\n{told}\n{rest}"


def _kubernetes(every_ms: int) -> str:
    # One at a time: the state is one volume, and a tick waits for the iterations it began.
    return f"""\
# Fill in the image (with loopsup and the agent in it) and a claim that keeps the state; the agent's keys come
# as environment variables. `loopsup start --driver tick …` is run once in the same place.
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {JOB}
spec:
  schedule: "{_cron_times(every_ms)}"
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: {GRACE_S}
          containers:
            - name: tick
              image: YOUR-IMAGE
              command: ["loopsup", "tick"]
              env:
                - {{name: LOOPSUP_HOME, value: /state/loopsup}}
              volumeMounts:
                - {{name: state, mountPath: /state}}
          volumes:
            - name: state
              persistentVolumeClaim: {{claimName: YOUR-CLAIM}}
"""
