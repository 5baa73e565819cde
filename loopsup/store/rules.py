"""The rules of a session: the files of all folders in their order, first name first.

The folders, from the first to the last: those of the project (the directory and its parents up to the repository's
top, the nearest first), those the configuration names (`[ttsr] folders`), and the user's own. A project's files act
only where they are trusted (`store.trust`); one that does not act shadows nothing. A repository may be hostile: of a
project's folders so much is read, all together, as takes a second or two, and what is left out is told.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from loopsup.core.rules import ContextMode, RepeatMode, Rule, RuleSettings
from loopsup.errors import LoopsupError
from loopsup.store.config import Config, TtsrConfig, config_path, load_config
from loopsup.store.home import find_home, user_home
from loopsup.store.rulefile import MAX_HEADER, header_size, parse
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
MAX_FILES = 1000  # of one folder of the person's own; more are not read
PROJECT_FILES = 500  # of all folders of a project; a file costs up to 2 ms, whatever is in it
PROJECT_HEADERS = (
    64 * 1024
)  # characters of the headers of a project's rules: more than a hundred long ones, in a second
MAX_NAMES = 10  # of files in one sentence
MAX_PARENTS = 64  # directories up to the repository's top


@dataclass(slots=True)
class _Left:
    """What may still be read of other people's files."""

    files: int = field(default_factory=lambda: PROJECT_FILES)
    headers: int = PROJECT_HEADERS


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
    found, left = [], _Left()
    for file, project, too_many in _files(cwd, env, config, left):
        shown = _shown(file, cwd, env)
        if too_many is not None:
            found.append(Found(file, _nothing(file, shown), Standing.UNREADABLE, project, why=too_many))
            continue
        each = _found(file, project, marks, shown, left)
        if each.standing is Standing.ACTIVE:
            by = first.setdefault(each.rule.name, each.rule.path)
            if by != each.rule.path:
                each = replace(each, standing=Standing.SHADOWED, by=by)
        found.append(each)
    return found


def one_rule(file: Path) -> Found:
    """A single file, wherever it is; trust is no matter."""
    return _found(file, None, {}, os.fsdecode(file), _Left())


def _files(
    cwd: Path, env: Mapping[str, str], config: Config, left: _Left
) -> Iterator[tuple[Path, Path | None, str | None]]:
    """Each with its project. A folder itself stands for those of its files that are left out, with a clause on it."""
    seen: set[Path] = set()
    own = {Path(os.path.realpath(each)) for each in _own_folders(env, config)}
    for folder, project in (*_project_folders(cwd), *((each, None) for each in _own_folders(env, config))):
        place = Path(os.path.realpath(folder))
        if place not in seen:  # the home directory can be a project, too; its owner's rules act there as elsewhere
            seen.add(place)
            yield from _in(folder, None if place in own else project, left)


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


def _in(folder: Path, project: Path | None, left: _Left) -> Iterator[tuple[Path, Path | None, str | None]]:
    try:
        files = sorted(each for each in folder.iterdir() if each.suffix in ENDINGS)
    except OSError:
        return
    most, told = MAX_FILES, f"a folder may have {MAX_FILES} rule files, and the others are left out"
    if project is not None:
        most, told = left.files, f"a project may have {PROJECT_FILES} rule files, and the others are left out"
        left.files -= len(files[:most])
    yield from ((file, project, None) for file in files[:most])
    if len(files) > most:
        yield folder, project, told


def _nothing(file: Path, shown: str) -> Rule:
    return Rule(file.stem, shown, "", ())


def _found(
    file: Path, project: Path | None, marks: Mapping[str, Mapping[str, str]], shown: str, left: _Left
) -> Found:
    try:
        content = _read(file)
        text = content.decode("utf-8")
        _afford(text, left if project is not None else None)
    except (OSError, ValueError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeError) else str(getattr(error, "strerror", error))
        return Found(file, _nothing(file, shown), Standing.UNREADABLE, project, why=why)
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


def _afford(text: str, left: _Left | None) -> None:
    """ValueError where it takes too long to understand this. `left`: it is somebody else's."""
    size = header_size(text)
    if size > MAX_HEADER:
        raise ValueError(f"its header is longer than {MAX_HEADER} characters")
    if left is not None:
        if size > left.headers:
            left.headers = 0  # a shorter one behind it would act without those before it
            raise ValueError(f"the headers of a project may have {PROJECT_HEADERS} characters, all together")
        left.headers -= size


def _shown(file: Path, cwd: Path, env: Mapping[str, str]) -> str:
    """As the model and people read it: relative to the directory, else to the home directory, else absolute."""
    for base, prefix in ((cwd, ""), (user_home(env), "~/")):
        if file.is_relative_to(base):
            return prefix + os.fsdecode(file.relative_to(base))
    return os.fsdecode(file)


def _notices(found: list[Found]) -> tuple[str, ...]:
    notices = []
    for standing, told in (
        (Standing.UNTRUSTED, "not trusted, so it does not act"),
        (Standing.CHANGED, "changed since it was trusted, so it does not act"),
    ):
        if those := [each for each in found if each.standing is standing]:
            notices.append(f"stream rules: {_names(those)} ({told}); look at it, then run: loopsup rules trust")
    unreadable: dict[str | None, list[Found]] = {}
    for each in found:
        if each.standing is Standing.UNREADABLE:
            unreadable.setdefault(each.why, []).append(each)
    for why, those in unreadable.items():
        rules = "the stream rule" if len(those) == 1 else f"{len(those)} stream rules:"
        notices.append(f"{rules} {_names(those)} cannot be read: {why}")
    notices += [
        f"the stream rule {each.rule.path}: {problem}"
        for each in found
        if each.standing is Standing.ACTIVE
        for problem in each.problems
    ]
    return tuple(notices)


def _names(found: list[Found]) -> str:
    names = ", ".join(each.rule.path for each in found[:MAX_NAMES])
    return names if len(found) <= MAX_NAMES else f"{names} and {len(found) - MAX_NAMES} more"
