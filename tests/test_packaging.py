"""The distribution as others get it: built, installed outside the tree, run with `python -P`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.packaging, pytest.mark.timeout(600), pytest.mark.xdist_group("packaging")]

PATIENT_S = 60.0
THIRD_PARTY_PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.0"
[project.entry-points."loopsup.adapters"]
{name} = "{name}:create"
"""
THIRD_PARTY = """
from loopsup.ports import Capabilities

class Adapter:
    name = "parrot"
    summary = "repeats what it is told"
    capabilities = Capabilities(abort=True)

    def missing(self, command, env):
        return None

def create():
    return Adapter()
"""


class Venv:
    """A fresh virtual environment and a directory that holds nothing of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        run([sys.executable, "-m", "venv", str(folder / "venv")], cwd=folder)

    def install(self, *what: str) -> None:
        run([str(self.python), "-m", "pip", "install", "--quiet", *what], cwd=self.home)

    def loopsup(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(self.python), "-P", "-m", "loopsup", *args])

    def run(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LOOPSUP_HOME": str(self.home / "state"),
            "LANG": "C.UTF-8",
        }
        return subprocess.run(
            argv,
            cwd=self.home,
            env=env,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            stdin=subprocess.DEVNULL,
        )


def run(argv: Sequence[str], cwd: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"


def rows(agents: subprocess.CompletedProcess[str]) -> set[str]:
    """The names in the output of `loopsup agents`: `name: …`, and details indented below."""
    return {line.partition(":")[0] for line in agents.stdout.splitlines() if line and not line.startswith(" ")}


def status(made: Venv) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made.loopsup("status", "--session", "s", "--json").stdout)
    return found


def waits(made: Venv, iterations: int) -> dict[str, Any]:
    """The status when the loop waits after so many iterations, or more."""
    give_up = time.monotonic() + PATIENT_S
    while time.monotonic() < give_up:
        found = status(made)
        if found["loop"]["state"] == "waiting" and found["loop"]["iterationCount"] >= iterations:
            return found
        time.sleep(0.2)
    raise AssertionError(f"no {iterations} iterations: {found}")


def next_version(wheel: Path, folder: Path) -> Path:
    """The same wheel, as if it were the next release. (pip does not compare what it installs with RECORD.)"""
    fresh = folder / wheel.name.replace("0.1.0", "0.1.1")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(fresh, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename.endswith(("/METADATA", "/RECORD", "loopsup/__init__.py")):
                content = content.replace(b"0.1.0", b"0.1.1")
            info.filename = info.filename.replace("0.1.0", "0.1.1")
            new.writestr(info, content)
    return fresh


def third_party(folder: Path, name: str, source: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / "pyproject.toml").write_text(THIRD_PARTY_PROJECT.format(name=name))
    (folder / name / "__init__.py").write_text(source)
    return folder


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], cwd=folder)
    return folder


@pytest.fixture(scope="module")
def venv(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Venv:
    made = Venv(tmp_path_factory.mktemp("wheel"))
    (wheel,) = dist.glob("*.whl")
    made.install(str(wheel))
    return made


def test_the_wheel_has_code_adapters_hooks_and_types_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
    assert {name.split("/")[0] for name in modes} == {
        "loopsup",
        "loopsup_acp",
        "loopsup_copilot",
        "loopsup_demo",
        "loopsup_pi",
        "loopsup_pty",
        "loopsup-0.1.0.dist-info",
    }
    assert {name: mode for name, mode in modes.items() if "_hooks/" in name} == {
        "loopsup/_hooks/append-log": 0o755,
        "loopsup/_hooks/notify-desktop": 0o755,
    }
    packages = ("loopsup", "loopsup_acp", "loopsup_copilot", "loopsup_demo", "loopsup_pi", "loopsup_pty")
    assert {f"{name}/py.typed" for name in packages} <= modes.keys()
    assert "loopsup-0.1.0.dist-info/licenses/LICENSE" in modes


def test_the_sdist_can_be_tested_and_built(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")  # the wheel above was built from it
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "Makefile",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "pyproject.toml",
        "hooks/append-log",
        "tests/test_packaging.py",
        "examples/watch-ci/demo.sh",
        "docs/commands.md",
    } <= names


def test_an_installed_wheel_knows_its_agents(venv: Venv) -> None:
    done = venv.loopsup("agents")
    assert (done.returncode, done.stderr) == (0, "")
    assert {"acp", "copilot", "demo", "pi"} <= rows(done)


def ready_hooks(venv: Venv) -> list[str]:
    return [row["path"] for row in json.loads(venv.loopsup("hooks", "list", "--json").stdout)["hooks"]]


def test_the_console_script_and_the_version(venv: Venv) -> None:
    done = venv.run([str(venv.python.with_name("loopsup")), "--version"])
    assert (done.returncode, done.stdout.split()[-1]) == (0, "0.1.0")


def test_a_session_goes_on_as_the_version_that_was_installed_under_it(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    made = Venv(tmp_path)
    made.install(str(wheel))
    (made.home / "ci.status").write_text("running")
    demo = ("--agent", "demo", "--session", "s", "watch it", "--", "--file", "ci.status")
    begun = made.loopsup("start", "--detach", "--min-delay", "1s", "--every", "1h", *demo)
    assert begun.returncode == 0, begun.stderr
    try:
        before = waits(made, iterations=1)
        made.install(str(next_version(wheel, tmp_path)))
        assert made.loopsup("--version").stdout.split()[-1] == "0.1.1"
        assert status(made)["session"] == before["session"], "what runs goes on as it was until it is told"
        told = made.loopsup("reload", "--session", "s", "--json")
        assert told.returncode == 0, told.stderr
        kept = ("id", "iterationCount", "promptsSent", "startedAt", "nextDueAt", "lastDecision")
        assert status(made)["session"]["supervisor"] == before["session"]["supervisor"], "the same process"
        assert {key: status(made)["loop"][key] for key in kept} == {key: before["loop"][key] for key in kept}
        (log,) = (made.home / "state" / "sessions").glob("s/supervisor.log")
        ups = [line.split()[4] for line in log.read_text().splitlines() if "supervisor up" in line]
        assert ups == ["0.1.0,", "0.1.1,"]
        assert made.loopsup("update", "--session", "s", "--every", "1s").returncode == 0
        after = waits(made, iterations=2)
        assert after["session"]["agentSessionId"] == before["session"]["agentSessionId"]
    finally:
        closed = made.loopsup("close", "--session", "s")
    assert closed.returncode == 0, closed.stderr


def test_the_hooks_of_an_installed_wheel_can_be_executed(venv: Venv) -> None:
    listed = ready_hooks(venv)
    assert [Path(line).name for line in listed] == ["append-log", "notify-desktop"]
    assert all(os.access(line, os.X_OK) and "/_hooks/" in line for line in listed)


def test_a_third_party_adapter_shows_up_and_a_broken_one_harms_nobody(venv: Venv, tmp_path: Path) -> None:
    venv.install(str(third_party(tmp_path / "a", "parrot", THIRD_PARTY)))
    venv.install(str(third_party(tmp_path / "b", "wreck", "raise RuntimeError('no engine')\n")))
    agents = venv.loopsup("agents")
    assert agents.returncode == 0
    assert {"acp", "copilot", "demo", "parrot", "pi", "wreck"} <= rows(agents)
    assert "repeats what it is told" in agents.stdout
    assert "RuntimeError: no engine" in agents.stdout
    status = venv.loopsup("status")
    assert (status.returncode, "wreck" in status.stdout + status.stderr) == (3, False)  # 3: no session here
    assert venv.loopsup("ls").returncode == 0


def test_an_editable_install_works_too(tmp_path: Path) -> None:
    made = Venv(tmp_path / "editable")
    made.install("-e", str(ROOT))
    done = made.loopsup("agents")
    assert (done.returncode, done.stderr) == (0, "")
    assert {"acp", "copilot", "demo", "pi"} <= rows(done)
    assert ready_hooks(made) == [str(ROOT / "hooks" / name) for name in ("append-log", "notify-desktop")]
