"""The rules of a session: the files of all folders in their order, first name first.

The folders, from the first to the last: those of the project (the directory and its parents up to the repository's
top, the nearest first), those the configuration names (`[ttsr] folders`), and the user's own. A project's files act
only where they are trusted (`store.trust`); one that does not act shadows nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from loopsup.core.rules import ContextMode, RepeatMode, Rule, RuleSettings
from loopsup.errors import LoopsupError
from loopsup.store.config import Config, TtsrConfig, config_path, load_config
from loopsup.store.home import find_home, user_home
from loopsup.store.rulefile import parse
from loopsup.store.trust import fingerprint, trusted

PROJECT_FOLDERS = (
    ".loopsup/rules",
    ".omp/rules",
    ".agents/rules",
    ".cursor/rules",
    ".windsurf/rules",
    ".clinerules",
)
USER_FOLDERS = (".omp/agent/rules", ".agents/rules")
ENDINGS = (".md", ".mdc")
MAX_FILE = 64 * 1024  # bytes: a reminder is a page at most
MAX_FILES = 1000  # of one folder; more are not read
MAX_PARENTS = 64  # directories up to the repository's top


class Standing(StrEnum):
    """What becomes of a rule file."""

    ACTIVE = "active"
    SHADOWED = "shadowed"
    UNTRUSTED = "untrusted"
    CHANGED = "changed"
    DISABLED = "disabled"
    NO_TRIGGER = "no trigger"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Found:
    """One rule file. `project`: the directory it belongs to and is trusted with; None: it is the user's own.

    `by`: for a shadowed one, the file that goes first. `why`: a clause on why it does not act; `problems`: what in
    it was not understood. `mark` is its fingerprint.
    """

    file: Path
    rule: Rule
    standing: Standing
    project: Path | None = None
    by: str | None = None
    why: str | None = None
    problems: tuple[str, ...] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a session starts with. `notices`: what a person should know, a sentence each."""

    rules: tuple[Rule, ...]
    settings: RuleSettings
    notices: tuple[str, ...] = ()


def session_rules(cwd: Path, env: Mapping[str, str] = os.environ) -> Loaded:
    """The rules in force for a session in `cwd`. Broken configuration or storage: no rules, and a notice."""
    try:
        config = load_config(env)
        settings = rule_settings(config.ttsr)
        if not settings.enabled:
            return Loaded((), settings)
        found = find_rules(cwd, env, config)
    except LoopsupError as error:
        return Loaded((), RuleSettings(), (f"no stream rules are in force: {error.message}",))
    return Loaded(tuple(each.rule for each in found if each.standing is Standing.ACTIVE), settings, _notices(found))


def rule_settings(config: TtsrConfig) -> RuleSettings:
    """`[ttsr]` as the core knows it."""
    return RuleSettings(
        config.enabled, ContextMode(config.context_mode), RepeatMode(config.repeat_mode), config.repeat_gap
    )


def find_rules(cwd: Path, env: Mapping[str, str], config: Config) -> list[Found]:
    """Every rule file, in order, with what becomes of it. StorageError where the list of trusted files is damaged."""
    marks = trusted(find_home(env))
    first: dict[str, str] = {}
    found = []
    for file, project in _files(cwd, env, config):
        each = _found(file, project, marks, _shown(file, cwd, env))
        if each.standing is Standing.ACTIVE:
            by = first.setdefault(each.rule.name, each.rule.path)
            if by != each.rule.path:
                each = replace(each, standing=Standing.SHADOWED, by=by)
        found.append(each)
    return found


def one_rule(file: Path) -> Found:
    """A single file, wherever it is; trust is no matter."""
    return _found(file, None, {}, os.fsdecode(file))


def _files(cwd: Path, env: Mapping[str, str], config: Config) -> Iterator[tuple[Path, Path | None]]:
    seen: set[Path] = set()
    own = {Path(os.path.realpath(each)) for each in _own_folders(env, config)}
    for folder, project in (*_project_folders(cwd), *((each, None) for each in _own_folders(env, config))):
        place = Path(os.path.realpath(folder))
        if place not in seen:  # the home directory can be a project, too; its owner's rules act there as elsewhere
            seen.add(place)
            yield from ((file, None if place in own else project) for file in _in(folder))


def _project_folders(cwd: Path) -> Iterator[tuple[Path, Path]]:
    directories = [cwd, *cwd.parents][:MAX_PARENTS]
    top = next((at for at, each in enumerate(directories) if (each / ".git").exists()), 0)
    for directory in directories[: top + 1]:
        for name in PROJECT_FOLDERS:
            yield directory / name, directory


def _own_folders(env: Mapping[str, str], config: Config) -> Iterator[Path]:
    beside, home = config_path(env).parent, user_home(env)
    for name in config.ttsr.folders:
        yield home / name[2:] if name.startswith("~/") else beside / name
    base = env.get("XDG_CONFIG_HOME")
    configuration = Path(base) if base and Path(base).is_absolute() else home / ".config"
    yield configuration / "loopsup" / "rules"
    for name in USER_FOLDERS:
        yield home / name


def _in(folder: Path) -> list[Path]:
    try:
        files = sorted(each for each in folder.iterdir() if each.suffix in ENDINGS)
    except OSError:
        return []
    return files[:MAX_FILES]


def _found(file: Path, project: Path | None, marks: Mapping[str, Mapping[str, str]], shown: str) -> Found:
    nothing = Rule(file.stem, shown, "", ())
    try:
        content = _read(file)
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeError) else str(getattr(error, "strerror", error))
        return Found(file, nothing, Standing.UNREADABLE, project, why=why)
    parsed = parse(text, file.stem, shown)
    mark = fingerprint(content)
    standing = Standing.ACTIVE
    if not parsed.rule.triggers:
        standing = Standing.NO_TRIGGER
    elif not parsed.enabled or parsed.why is not None:
        standing = Standing.DISABLED
    elif project is not None:
        known = marks.get(os.fsdecode(project), {}).get(name_in(project, file))
        standing = Standing.UNTRUSTED if known is None else Standing.ACTIVE if known == mark else Standing.CHANGED
    said = parsed.why or (None if parsed.enabled else "enabled: false")
    return Found(file, parsed.rule, standing, project, None, said, parsed.problems, mark)


def name_in(project: Path, file: Path) -> str:
    """How a file is remembered among a project's trusted ones."""
    return os.fsdecode(file.relative_to(project))


def _read(file: Path) -> bytes:
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is not a regular file")
        with os.fdopen(fd, "rb", closefd=False) as opened:
            content = opened.read(MAX_FILE + 1)
    finally:
        os.close(fd)
    if len(content) > MAX_FILE:
        raise ValueError(f"it is larger than {MAX_FILE} bytes")
    return content


def _shown(file: Path, cwd: Path, env: Mapping[str, str]) -> str:
    """As the model and people read it: relative to the directory, else to the home directory, else absolute."""
    for base, prefix in ((cwd, ""), (user_home(env), "~/")):
        if file.is_relative_to(base):
            return prefix + os.fsdecode(file.relative_to(base))
    return os.fsdecode(file)


def _notices(found: list[Found]) -> tuple[str, ...]:
    def those(standing: Standing) -> list[Found]:
        return [each for each in found if each.standing is standing]

    notices = []
    for standing, told in (
        (Standing.UNTRUSTED, "not trusted, so it does not act"),
        (Standing.CHANGED, "changed since it was trusted, so it does not act"),
    ):
        names = ", ".join(each.rule.path for each in those(standing))
        if names:
            notices.append(f"stream rules: {names} ({told}); look at it, then run: loopsup rules trust")
    notices += [f"the stream rule {each.rule.path} cannot be read: {each.why}" for each in those(Standing.UNREADABLE)]
    notices += [
        f"the stream rule {each.rule.path}: {problem}" for each in those(Standing.ACTIVE) for problem in each.problems
    ]
    return tuple(notices)
