"""The documentation says what is there, all of it and nothing else; the README's commands are run."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from loopsup import errors
from loopsup.cli.app import HIDDEN, build
from loopsup.core.model import AttentionStatus, PauseReason, State
from loopsup.store.config import AGENT_SETTINGS, SETTINGS, load_config
from loopsup.wire import events
from tests.support import cli_env
from tests.support.make_docs import STATES, states_page

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [README, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
PAGES += [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
SCRIPTS = sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix == ".sh")
EVERYWHERE = {"--help", "-h"}


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def commands() -> dict[str, set[str]]:
    """Every visible command and its options, from the program itself."""
    group: Any = typer.main.get_command(build(None))
    return {
        name: {
            spelling
            for param in command.params
            if param.param_type_name == "option" and not param.hidden
            for spelling in param.opts
        }
        - EVERYWHERE
        for name, command in group.commands.items()
        if name not in HIDDEN and not command.hidden
    }


def sections(page: str, prefix: str) -> dict[str, str]:
    parts = re.split(rf"^## {re.escape(prefix)}(\S+)$", page, flags=re.MULTILINE)
    return {name: body.split("\n## ")[0] for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def rows(page: str) -> list[list[str]]:
    """Cells of every table row; a bar in a cell is written with a backslash."""
    lines = [line for line in page.split("\n") if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def blocks(page: str, info: str) -> list[str]:
    return re.findall(rf"^```{re.escape(info)}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


def test_every_command_and_every_option_is_documented_and_exists() -> None:
    documented = {
        name: {
            spelling
            for row in rows(body)
            for spelling in re.findall(r"(?:^|[ ,`])(--?[a-z][a-z-]*)", row[0].split("DUR")[0])
        }
        for name, body in sections(text(ROOT / "docs" / "commands.md"), "loopsup ").items()
    }
    assert documented == commands()


def code(page: Path) -> list[str]:
    """Everything in a page that is code: in backticks, fenced for a shell, or indented."""
    body = text(page).replace("\\\n", " ")
    if page.suffix == ".sh":
        return [line.strip() for line in body.split("\n") if not line.lstrip().startswith("#")]
    fenced = re.findall(r"^```(?:sh|sh run)\n(.*?)^```$", body, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", body, flags=re.MULTILINE | re.DOTALL)
    indented = [line for line in prose.split("\n") if line.startswith("    ")]
    inline = re.findall(r"`([^`\n]+)`", prose)
    return [line.strip() for part in (*fenced, *indented, *inline) for line in part.split("\n")]


def invocations() -> list[tuple[str, list[str]]]:
    """Every `loopsup …` command line in the pages and the examples, with where it stands."""
    found = []
    for page in (*PAGES, *SCRIPTS):
        for line in code(page):
            for tail in re.findall(r'(?:^|[;&|(] *|\$ )(?:loopsup|"\$LOOPSUP") ([a-z].*)', line):
                found.append((f"{page.relative_to(ROOT)}: {line}", _words(tail)))
    return found


def _words(line: str) -> list[str]:
    words = shlex.split(line.removesuffix(')"'), comments=True)  # what stood in "$(…)"
    if "--" in words:
        words = words[: words.index("--")]
    for end in ("|", "||", "&&", ";", "2>&1"):
        if end in words:
            words = words[: words.index(end)]
    return words


def test_every_command_line_in_the_pages_names_what_exists() -> None:
    known = commands()
    seen = set()
    for where, (name, *words) in invocations():
        seen.add(name)
        assert name in known, where
        used = {re.split(r"[=)]", word)[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known[name] | EVERYWHERE, where
    assert seen >= known.keys() - {"answer"}, "the README shows every command"


def test_every_event_type_is_documented_with_its_keys() -> None:
    documented = {
        row[0].strip("`"): (tuple(re.findall(r"[A-Za-z]+\??", row[1].split(", and ")[0])), row[2])
        for row in rows(text(ROOT / "docs" / "events.md"))
        if re.fullmatch(r"`[a-z_.]+`", row[0]) and len(row) == 3
    }
    assert documented == {
        kind: (keys, "live only" if kind in events.EPHEMERAL else "yes") for kind, keys in events.TYPES.items()
    }


def test_every_attention_status_and_stop_reason_is_documented() -> None:
    page = text(ROOT / "docs" / "events.md")
    (row,) = [row for row in rows(page) if row[0] == "`status`"]
    assert set(re.findall(r"`([a-z_]+)`", row[1])) == {status.value for status in AttentionStatus}
    (line,) = [line for line in page.split("\n") if line.startswith("- `stopReason` is")]
    assert set(re.findall(r"`([a-zA-Z]+)`", line)) - {"stopReason"} == events.STOP_REASONS


def test_every_exit_code_is_documented() -> None:
    page = text(ROOT / "docs" / "commands.md").split("## Exit codes")[1].split("## ")[0]
    general, of_wait = page.split("`wait`, and a `start`")
    assert {int(row[0]) for row in rows(general) if row[0].isdigit()} == {
        errors.EXIT_DONE,
        errors.EXIT_INTERRUPTED,
        *(error.exit for error in errors.BY_KIND.values() if error is not errors.WaitTimeoutError),
    }
    documented = {
        reason: int(row[0])
        for row in rows(of_wait)
        if row[0].isdigit() and not row[1].startswith("`--")
        for reason in re.findall(r"`([a-z_]+)`", row[1])
    }
    assert documented == dict(errors.WAIT_EXIT)
    assert documented.keys() == {
        *(state.value for state in State if state.value in ("completed", "failed", "stopped")),
        *(reason.value for reason in PauseReason),
    }
    readme = {int(code) for row in rows(text(README)) for code in re.findall(r"^\d+|(?<=, )\d+", row[0])}
    assert readme == {*errors.WAIT_EXIT.values(), errors.WaitTimeoutError.exit}


def test_the_configuration_in_the_readme_is_valid_and_whole(tmp_path: Path) -> None:
    (block,) = blocks(text(README), "toml whole")
    (tmp_path / "config.toml").write_text(block)
    load_config({"LOOPSUP_CONFIG": str(tmp_path / "config.toml")})
    shown = tomllib.loads(block)
    documented = {name: set(value) for name, value in shown.items() if isinstance(value, dict) and name != "agents"}
    documented[""] = {name for name, value in shown.items() if not isinstance(value, dict)}
    assert documented == {name: set(keys) for name, keys in SETTINGS.items()}
    assert {name: set(value) for name, value in shown["agents"].items()} == {"pi": set(AGENT_SETTINGS)}


def test_the_state_diagram_is_the_one_of_the_table() -> None:
    assert text(STATES) == states_page(), "run `make docs`"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text(page), flags=re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", text(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", blocks(text(README), "sh run"), ids=lambda block: block.split()[1])
def test_the_commands_of_the_readme_work(block: str, tmp_path: Path) -> None:
    with cli_env.sandbox(tmp_path) as env:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,  # a dozen commands, beside whatever else the machine has to do
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
