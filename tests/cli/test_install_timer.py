"""`install-timer`: what is written for a scheduler, and that asking twice changes nothing."""

from __future__ import annotations

import hashlib
import os
import plistlib
import stat
import sys
from pathlib import Path

import pytest
import yaml

from loopsup.cli import enable
from loopsup.cli.app import run
from loopsup.cli.selection import Session
from loopsup.store.identity import load_identity
from tests.cli.reading import Made

FAKE = """#!/bin/sh
echo "$@" >> "$CALLS"
"""
CRONTAB = """#!/bin/sh
echo "$@" >> "$CALLS"
if [ "$1" = -l ]; then
    [ -f "$CRONTAB" ] || { echo "no crontab for me" >&2; exit 1; }
    cat "$CRONTAB"
else
    cat > "$CRONTAB"
fi
"""


def named_for(home: Path) -> str:
    """What the units of a state home that is not the usual one are called."""
    return f"loopsup-{hashlib.sha256(os.fsencode(os.path.realpath(home))).hexdigest()[:8]}"


class Machine:
    """A home with schedulers that only write down what they are asked."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.bin, self._calls = root, root / "bin", root / "calls"
        self.crontab = root / "crontab"
        self.ours = named_for(root / "state 100%")
        self.units = root / "home" / ".config" / "systemd" / "user"
        self.bin.mkdir()
        (root / "home").mkdir()
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "LOOPSUP_CONFIG"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {
            "HOME": root / "home",
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "CALLS": self._calls,
            "CRONTAB": self.crontab,
            "LOOPSUP_HOME": root / "state 100%",
        }.items():
            monkeypatch.setenv(name, str(value))

    def tool(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def calls(self) -> list[str]:
        """The calls since the last time."""
        found = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_systemd(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.tool("systemctl", FAKE)
    assert run(["install-timer", "systemd", "--every", "2m"]) == 0
    service = (machine.units / f"{machine.ours}-tick.service").read_text().splitlines()
    assert f'ExecStart="{sys.executable}" "-P" "-m" "loopsup" "tick" "--detach"' in service
    assert f'Environment="LOOPSUP_HOME={machine.root}/state 100%%"' in service
    assert {"Type=oneshot", "KillMode=process"} <= set(service)
    timer = (machine.units / f"{machine.ours}-tick.timer").read_text().splitlines()
    assert {"OnUnitActiveSec=120s", "WantedBy=timers.target"} <= set(timer)
    on = f"--user enable --now {machine.ours}-tick.timer"
    look, reload = "--user show-environment", "--user daemon-reload"
    assert machine.calls() == [look, reload, on, f"--user restart {machine.ours}-tick.timer"]
    assert run(["install-timer", "systemd", "--every", "2m"]) == 0
    assert machine.calls() == [look, on]
    assert run(["install-timer", "systemd", "--remove"]) == 0
    assert machine.calls() == [f"--user disable --now {machine.ours}-tick.timer", reload]
    assert list(machine.units.iterdir()) == []
    assert run(["install-timer", "systemd", "--remove"]) == 0
    assert machine.calls() == []
    capsys.readouterr()


@pytest.mark.parametrize(
    ("program", "started"),
    [
        ("/opt/a b%/ü/python", '"/opt/a b%%/ü/python"'),
        # systemd takes no quotes or backslash in the path of a program, and reads `$$` there as it stands.
        ("/o'b/py", """/usr/bin/env "/o'b/py\""""),
        ('/"b"/py', """/usr/bin/env "/\\"b\\"/py\""""),
        ("/b\\x/py", """/usr/bin/env "/b\\\\x/py\""""),
        ("/$x/py", """/usr/bin/env "/$$x/py\""""),
    ],
)
def test_a_program_in_an_odd_place(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str, started: str
) -> None:
    machine.tool("systemctl", FAKE)
    monkeypatch.setattr(sys, "executable", program)
    assert run(["install-timer", "systemd"]) == 0
    service = (machine.units / f"{machine.ours}-tick.service").read_text().splitlines()
    assert f'ExecStart={started} "-P" "-m" "loopsup" "tick" "--detach"' in service
    capsys.readouterr()


def test_a_program_systemd_cannot_start_at_all_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.tool("systemctl", FAKE)
    monkeypatch.setattr(sys, "executable", "/o'b/a=b/py")
    assert run(["install-timer", "systemd"]) == 2
    assert not machine.units.exists()


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
@pytest.mark.parametrize("name", ["a\nb", "a\x01b", "a\udcffb"])
def test_what_no_unit_file_can_hold_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, name: str
) -> None:
    machine.tool("systemctl", FAKE)
    monkeypatch.setenv("LOOPSUP_HOME", f"/state/{name}")
    assert run(["install-timer", kind]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert "cannot be written into a unit file" in told
    assert not machine.units.exists()


@pytest.mark.parametrize(("every", "warned"), [("1m", False), ("5m", True)])
def test_ticks_far_apart_are_warned_of(
    machine: Machine, capsys: pytest.CaptureFixture[str], every: str, warned: bool
) -> None:
    """Each wake of a loop with `--misfire skip` could fall between two of them."""
    machine.tool("crontab", CRONTAB)
    assert run(["install-timer", "cron", "--every", every]) == 0
    assert ("--misfire skip" in capsys.readouterr().err) is warned
    assert run(["install-timer", "cron", "--every", every, "--remove"]) == 0
    assert capsys.readouterr().err == ""


def test_where_systemd_refuses_nothing_is_written(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.tool("systemctl", "#!/bin/sh\necho 'Failed to connect to bus' >&2; exit 1\n")
    assert run(["install-timer", "systemd"]) == 4
    (told,) = capsys.readouterr().err.splitlines()
    assert "Failed to connect to bus" in told
    assert "loginctl enable-linger" in told
    assert "loopsup start --foreground" in told
    assert not machine.units.exists()


def test_cron(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.tool("crontab", CRONTAB)
    assert run(["install-timer", "cron"]) == 0
    (line,) = machine.crontab.read_text().splitlines()
    assert line.startswith("* * * * * PATH=")
    assert f"LOOPSUP_HOME='{machine.root}/state 100\\%'" in line
    assert line.endswith(f"{sys.executable} -P -m loopsup tick >/dev/null # {machine.ours} tick")
    machine.crontab.write_text(f"MAILTO=me\n{line}\n0 1 * * * backup\n")
    assert run(["install-timer", "cron"]) == 0
    assert machine.crontab.read_text() == f"MAILTO=me\n{line}\n0 1 * * * backup\n"
    assert run(["install-timer", "cron", "--every", "5m"]) == 0
    kept = machine.crontab.read_text().splitlines()
    assert kept == ["MAILTO=me", "0 1 * * * backup", line.replace("* * * * *", "*/5 * * * *", 1)]
    assert run(["install-timer", "cron", "--remove"]) == 0
    assert machine.crontab.read_text() == "MAILTO=me\n0 1 * * * backup\n"
    capsys.readouterr()


def test_the_other_lines_of_a_crontab_keep_every_byte(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.tool("crontab", CRONTAB)
    theirs = b"# caf\xe9, a\x0cb, c\xe2\x80\xa8d\n0 1 * * * backup\n\n"
    machine.crontab.write_bytes(theirs)
    assert run(["install-timer", "cron"]) == 0
    assert machine.crontab.read_bytes().startswith(theirs + b"* * * * * PATH=")
    assert run(["install-timer", "cron", "--remove"]) == 0
    assert machine.crontab.read_bytes() == theirs
    capsys.readouterr()


def test_a_command_that_cron_would_cut_off_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.tool("crontab", CRONTAB)
    monkeypatch.setenv("PATH", f"{machine.bin}:/usr/bin:/bin:/{'long' * 250}")
    assert run(["install-timer", "cron"]) == 2
    assert "PATH" in capsys.readouterr().err
    assert not machine.crontab.exists()


def test_a_crontab_that_cannot_be_read_is_not_replaced(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.tool("crontab", '#!/bin/sh\n[ "$1" = -l ] || touch "$CRONTAB"\necho \'not allowed\' >&2; exit 1\n')
    assert run(["install-timer", "cron"]) == 2
    assert "not allowed" in capsys.readouterr().err
    assert not machine.crontab.exists()


HOMES = (None, "home/.local/state/loopsup", "one", "two")  # the usual one, the same by its name, and two others


def test_two_state_homes_have_a_timer_each(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Installed or removed, what is there for another home stays as it is; the usual one has the plain names."""
    machine.tool("systemctl", FAKE)
    machine.tool("crontab", CRONTAB)

    def each(*argv: str) -> None:
        for kind in ("systemd", "cron"):
            assert run(["install-timer", kind, *argv]) == 0

    def there() -> tuple[list[str], list[str]]:
        lines = machine.crontab.read_text().splitlines()
        return sorted(path.name for path in machine.units.iterdir()), sorted(line.split("#")[1] for line in lines)

    def of(*names: str) -> tuple[list[str], list[str]]:
        files = [f"{name}-tick.{kind}" for name in names for kind in ("service", "timer")]
        return sorted(files), sorted(f" {name} tick" for name in names)

    for home in HOMES:
        if home is None:
            monkeypatch.delenv("LOOPSUP_HOME")
        else:
            monkeypatch.setenv("LOOPSUP_HOME", str(machine.root / home))
        each()
    one, two = (named_for(machine.root / name) for name in HOMES[2:])
    assert there() == of("loopsup", one, two)
    each("--remove")
    assert there() == of("loopsup", one)
    monkeypatch.delenv("LOOPSUP_HOME")
    each("--remove")
    assert there() == of(one)
    assert str(machine.root / "one") in (machine.units / f"{one}-tick.service").read_text()
    capsys.readouterr()


def test_sessions_of_one_name_in_two_state_homes_have_a_unit_each(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made("proj", machine.root)
    there = Session("proj", made.folder, made.identity)
    paths = {enable.unit_path(there)}
    for home in ("one", "one/", "two"):
        monkeypatch.setenv("LOOPSUP_HOME", str(machine.root / home))
        paths.add(enable.unit_path(there))
    monkeypatch.delenv("LOOPSUP_HOME")
    usual = enable.unit_path(there)
    assert len(paths | {usual}) == 4
    assert usual.name in ("loopsup-session-proj.service", "loopsup.session.proj.plist")


@pytest.mark.parametrize(("kind", "code"), [("systemd", 4), ("cron", 2)])
def test_without_the_tool_it_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, code: int
) -> None:
    monkeypatch.setenv("PATH", str(machine.bin))
    assert run(["install-timer", kind]) == code
    told = capsys.readouterr().err
    assert "on this machine" in told
    assert {"systemd": "install-timer cron` does without it", "cron": "install-timer --help"}[kind] in told
    assert not machine.units.exists()


@pytest.mark.skipif(
    sys.platform == "darwin", reason="on macOS `enable` asks launchd, so there is no systemd to be missing"
)
@pytest.mark.parametrize("tool", ["#!/bin/sh\necho 'Failed to connect to bus' >&2; exit 1\n", None])
def test_enable_where_no_systemd_runs_for_the_user(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tool: str | None
) -> None:
    monkeypatch.setenv("PATH", str(machine.bin))
    if tool is not None:
        machine.tool("systemctl", tool)
    made = Made("proj", machine.root).start()
    assert run(["enable", "--session", "proj"]) == 4
    told = capsys.readouterr().err
    assert "loopsup start --foreground" in told
    assert "`--driver tick`" in told
    assert "install-timer" not in told
    assert ("enable-linger" in told) == (tool is not None), "where there is no systemd, nothing starts it"
    assert not machine.units.exists()
    assert load_identity(made.folder) == made.identity


@pytest.mark.parametrize(
    ("every", "times"),
    [("1m", "* * * * *"), ("15m", "*/15 * * * *"), ("1h", "0 * * * *"), ("6h", "0 */6 * * *"), ("24h", "0 0 * * *")],
)
def test_kubernetes(machine: Machine, capsys: pytest.CaptureFixture[str], every: str, times: str) -> None:
    """The whole of it: `kubernetes-validate --strict` (1.37) passes just this."""
    assert run(["install-timer", "kubernetes", "--every", every]) == 0
    container = {
        "name": "tick",
        "image": "YOUR-IMAGE",
        "command": ["loopsup", "tick"],
        "env": [{"name": "LOOPSUP_HOME", "value": "/state/loopsup"}],
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,
        "containers": [container],
        "volumes": [{"name": "state", "persistentVolumeClaim": {"claimName": "YOUR-CLAIM"}}],
    }
    assert yaml.safe_load(capsys.readouterr().out) == {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "loopsup-tick"},
        "spec": {
            "schedule": times,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"backoffLimit": 0, "template": {"spec": pod}}},
        },
    }


@pytest.mark.parametrize(
    "argv",
    [
        ["cron", "--every", "7m"],
        ["kubernetes", "--every", "90s"],
        ["systemd", "--every", "2d"],
        ["launchd", "--remove"],
    ],
)
def test_what_cannot_be_is_refused(machine: Machine, capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    machine.tool("crontab", CRONTAB)
    assert run(["install-timer", *argv]) == 2
    assert not machine.crontab.exists()
    capsys.readouterr()


def test_launchd(machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOOPSUP_HOME", '/a & <b> "c" ü')
    assert run(["install-timer", "launchd", "--every", "1m"]) == 0
    assert plistlib.loads(capsys.readouterr().out.encode()) == {
        "Label": named_for(Path('/a & <b> "c" ü')) + ".tick",
        "ProgramArguments": [sys.executable, "-P", "-m", "loopsup", "tick", "--detach"],
        "EnvironmentVariables": {"PATH": os.environ["PATH"], "LOOPSUP_HOME": '/a & <b> "c" ü'},
        "StartInterval": 60,
        "AbandonProcessGroup": True,
    }


def test_enable_on_macos_is_an_agent_of_launchd(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    Made("proj", machine.root).start()
    agents = machine.root / "home" / "Library" / "LaunchAgents"
    assert run(["enable", "--session", "proj"]) == 0
    assert plistlib.loads((agents / f"{machine.ours}.session.proj.plist").read_bytes()) == {
        "Label": f"{machine.ours}.session.proj",
        "ProgramArguments": [sys.executable, "-P", "-m", "loopsup", "reopen", "--session", "proj"],
        "EnvironmentVariables": {"PATH": os.environ["PATH"], "LOOPSUP_HOME": os.environ["LOOPSUP_HOME"]},
        "RunAtLoad": True,
        "ExitTimeOut": 60,
    }
    assert run(["disable", "--session", "proj"]) == 0
    assert list(agents.iterdir()) == []
    capsys.readouterr()


def test_the_files_are_ordinary_ones(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.tool("systemctl", FAKE)
    assert run(["install-timer", "systemd"]) == 0
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o133 for path in machine.units.iterdir()}
    assert modes == {0}
    capsys.readouterr()
