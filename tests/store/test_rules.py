"""Which rules a session starts with."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import loopsup.store.rules as module
from loopsup.core.rules import ContextMode, RepeatMode, Rule, RuleSettings
from loopsup.errors import StorageError
from loopsup.store.config import load_config
from loopsup.store.files import write_atomic
from loopsup.store.home import find_home
from loopsup.store.lock import creation_lock
from loopsup.store.rulefile import MAX_HEADER, Parsed, parse
from loopsup.store.rules import Found, Loaded, Standing, find_rules, name_in, session_rules
from loopsup.store.trust import NAME, trust, trusted


class Place:
    """A home directory with a project in it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = root / "home" / "work" / "project"
        self.project.mkdir(parents=True)
        self.env = {"HOME": str(self.home), "LOOPSUP_HOME": str(root / "state")}

    def write(self, where: str, text: str = "---\ntrigger: x\n---\nText.\n") -> Path:
        path = self.home / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def find(self, cwd: Path | None = None) -> list[Found]:
        return find_rules(cwd or self.project, self.env, load_config(self.env))

    def standings(self, cwd: Path | None = None) -> dict[str, str]:
        return {each.rule.path: each.standing.value for each in self.find(cwd)}

    def trust(self, project: Path | None = None) -> None:
        project = project or self.project
        files = {name_in(project, each.file): each.mark for each in self.find(project) if each.project == project}
        trust(find_home(self.env), os.fsdecode(project), files)

    def load(self) -> Loaded:
        return session_rules(self.project, self.env)


class Counted:
    """`parse`, and what it was asked to understand."""

    def __init__(self) -> None:
        self.stems: list[str] = []

    def __call__(self, text: str, stem: str, path: str) -> Parsed:
        self.stems.append(stem)
        return parse(text, stem, path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_files_there_is_nothing_and_nothing_is_made(place: Place, tmp_path: Path) -> None:
    assert place.load() == Loaded((), RuleSettings())
    assert not (tmp_path / "state").exists()


def test_the_folders_come_in_their_order_and_the_first_name_wins(place: Place) -> None:
    place.write("work/project/.loopsup/rules/a.md")
    place.write("work/project/.omp/rules/a.md")
    place.write("work/project/.omp/rules/b.mdc")
    place.write("work/project/.cursor/rules/c.mdc")
    place.write(".config/loopsup/rules/b.md")
    place.write(".config/loopsup/rules/d.md")
    place.write(".omp/agent/rules/d.md")
    place.trust()
    assert [(each.rule.path, each.standing.value, each.by) for each in place.find()] == [
        (".loopsup/rules/a.md", "active", None),
        (".omp/rules/a.md", "shadowed", ".loopsup/rules/a.md"),
        (".omp/rules/b.mdc", "active", None),
        (".cursor/rules/c.mdc", "active", None),
        ("~/.config/loopsup/rules/b.md", "shadowed", ".omp/rules/b.mdc"),
        ("~/.config/loopsup/rules/d.md", "active", None),
        ("~/.omp/agent/rules/d.md", "shadowed", "~/.config/loopsup/rules/d.md"),
    ]


def test_only_the_files_themselves_are_read_in_the_order_of_their_names(place: Place) -> None:
    for name in ("b.md", "a.md", "notes.txt", "deep/c.md"):
        place.write(f".config/loopsup/rules/{name}")
    assert list(place.standings()) == ["~/.config/loopsup/rules/a.md", "~/.config/loopsup/rules/b.md"]


def test_a_projects_rules_act_once_they_are_trusted(place: Place) -> None:
    place.write("work/project/.loopsup/rules/a.md")
    assert place.standings() == {".loopsup/rules/a.md": "untrusted"}
    loaded = place.load()
    assert loaded.rules == ()
    assert loaded.notices == (
        "stream rules: .loopsup/rules/a.md (not trusted, so it does not act); "
        "look at it, then run: loopsup rules trust",
    )
    place.trust()
    assert place.load() == Loaded((Rule("a", ".loopsup/rules/a.md", "Text.", ("x",)),), RuleSettings())


def test_a_file_changed_since_does_not_act_and_the_others_do(place: Place) -> None:
    place.write("work/project/.loopsup/rules/a.md")
    place.write("work/project/.loopsup/rules/b.md")
    place.trust()
    place.write("work/project/.loopsup/rules/a.md", "---\ntrigger: never\n---\nText.\n")
    place.write("work/project/.loopsup/rules/c.md")
    assert place.standings() == {
        ".loopsup/rules/a.md": "changed",
        ".loopsup/rules/b.md": "active",
        ".loopsup/rules/c.md": "untrusted",
    }
    place.write("work/project/.loopsup/rules/a.md")
    assert place.standings()[".loopsup/rules/a.md"] == "active"


def test_a_rule_that_does_not_act_shadows_nothing(place: Place) -> None:
    place.write("work/project/.loopsup/rules/a.md")
    place.write("work/project/.omp/rules/b.md", "---\ntrigger: x\nenabled: false\n---\n")
    place.write(".config/loopsup/rules/a.md")
    place.write(".config/loopsup/rules/b.md")
    assert place.standings() == {
        ".loopsup/rules/a.md": "untrusted",
        ".omp/rules/b.md": "disabled",
        "~/.config/loopsup/rules/a.md": "active",
        "~/.config/loopsup/rules/b.md": "active",
    }


def test_a_subdirectory_has_the_rules_of_its_repository(place: Place) -> None:
    place.write("work/project/.git/config", "")
    place.write("work/project/.loopsup/rules/a.md")
    place.write("work/.loopsup/rules/outside.md")
    place.trust()
    below = place.project / "deep" / "er"
    below.mkdir(parents=True)
    place.write("work/project/deep/er/.omp/rules/near.md")
    assert [(each.rule.path, each.standing.value) for each in place.find(below)] == [
        (".omp/rules/near.md", "untrusted"),
        ("~/work/project/.loopsup/rules/a.md", "active"),
    ]


def test_without_a_repository_only_the_directory_itself_counts(place: Place) -> None:
    place.write("work/.loopsup/rules/outside.md")
    assert place.find() == []


def test_a_session_in_the_home_directory_reads_no_folder_twice(place: Place) -> None:
    place.write(".agents/rules/a.md")
    assert place.standings(place.home) == {".agents/rules/a.md": "active"}  # the person's own, here as elsewhere
    assert place.standings() == {"~/.agents/rules/a.md": "active"}


def test_a_project_that_leads_into_the_persons_own_folder_does_not_switch_it_off(place: Place) -> None:
    place.write(".config/loopsup/rules/a.md")
    (place.project / ".loopsup").mkdir(parents=True)
    (place.project / ".loopsup" / "rules").symlink_to(place.home / ".config/loopsup/rules")
    assert place.standings() == {".loopsup/rules/a.md": "active"}


def test_folders_of_the_configuration_go_before_the_users_own(place: Place, tmp_path: Path) -> None:
    place.write(
        ".config/loopsup/config.toml",
        f'[ttsr]\nfolders = ["~/mine", "beside", "{tmp_path}/far"]\n'
        'context_mode = "keep"\nrepeat_mode = "after-gap"\nrepeat_gap = 4\n',
    )
    for where in ("mine/a.md", ".config/loopsup/beside/b.md", "../far/c.md", ".config/loopsup/rules/a.md"):
        place.write(where)
    assert place.standings() == {
        "~/mine/a.md": "active",
        "~/.config/loopsup/beside/b.md": "active",
        f"{tmp_path}/far/c.md": "active",
        "~/.config/loopsup/rules/a.md": "shadowed",
    }
    assert place.load().settings == RuleSettings(True, ContextMode.KEEP, RepeatMode.AFTER_GAP, 4)


def test_switched_off_in_the_configuration_nothing_is_read(place: Place) -> None:
    place.write(".config/loopsup/config.toml", "[ttsr]\nenabled = false\n")
    place.write(".config/loopsup/rules/a.md")
    assert place.load() == Loaded((), RuleSettings(enabled=False))


def test_the_environment_moves_the_users_folder(place: Place, tmp_path: Path) -> None:
    place.env["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    place.write("../xdg/loopsup/rules/a.md")
    assert place.standings() == {f"{tmp_path}/xdg/loopsup/rules/a.md": "active"}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.write_bytes(b"\xff\xfe"), "it is not UTF-8 text"),
        (lambda path: path.write_bytes(b"x" * 70_000), "it is larger than 65536 bytes"),
        (lambda path: (path.unlink(), path.mkdir()), "it is not a regular file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "it is not a regular file"),
        (lambda path: (path.unlink(), path.symlink_to("nowhere")), "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_and_harms_no_other(place: Place, spoil: object, why: str) -> None:
    path = place.write(".config/loopsup/rules/a.md")
    place.write(".config/loopsup/rules/b.md")
    assert callable(spoil)
    spoil(path)
    loaded = place.load()
    assert [rule.name for rule in loaded.rules] == ["b"]
    assert loaded.notices == (f"the stream rule ~/.config/loopsup/rules/a.md cannot be read: {why}",)


def test_a_header_that_would_take_long_to_read_is_not_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write(".config/loopsup/rules/a.md", f"---\ntrigger: x\n{'y: ' + 'z' * MAX_HEADER}\n---\nText.\n")
    place.write(".config/loopsup/rules/b.md", f"---\ntitle: no rule\n{'y: ' + 'z' * MAX_HEADER}\n---\nText.\n")
    place.write(".config/loopsup/rules/c.md")
    monkeypatch.setattr(module, "parse", parsed := Counted())
    loaded = place.load()
    assert ([rule.name for rule in loaded.rules], parsed.stems) == (["c"], ["b", "c"])
    assert loaded.notices == (
        "the stream rule ~/.config/loopsup/rules/a.md cannot be read: its header is longer than 8192 characters",
    )


def test_of_a_projects_headers_so_much_is_read_and_the_rest_is_told_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = f"---\ntrigger: x\ny: {'z' * 8000}\n---\n"
    for number in range(30):
        place.write(f"work/project/.omp/rules/{number:02}.md", long)
    place.write("work/project/.omp/rules/short.md")
    place.write(".config/loopsup/rules/mine.md")
    monkeypatch.setattr(module, "parse", parsed := Counted())
    loaded = place.load()
    assert parsed.stems == [f"{number:02}" for number in range(8)] + ["mine"]
    assert [rule.name for rule in loaded.rules] == ["mine"]  # the person's own is none of them
    assert [notice.count(".omp/rules/") for notice in loaded.notices] == [8, 10]
    assert loaded.notices[1].startswith("23 stream rules: .omp/rules/08.md, ")
    assert loaded.notices[1].endswith(
        "/17.md and 13 more cannot be read: the headers of a project may have 65536 characters, all together"
    )
    place.trust()
    assert len(place.load().rules) == 9


def test_of_a_projects_files_so_many_are_read_and_the_rest_is_told_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROJECT_FILES", 5)
    for folder in (".loopsup", ".omp", ".cursor"):
        for number in range(3):
            place.write(f"work/project/{folder}/rules/{number}.md")
    place.write(".config/loopsup/rules/mine.md")
    assert [(each.rule.path, each.standing.value) for each in place.find()] == [
        *((f".loopsup/rules/{number}.md", "untrusted") for number in range(3)),
        *((f".omp/rules/{number}.md", "untrusted") for number in range(2)),
        (".omp/rules", "unreadable"),
        (".cursor/rules", "unreadable"),
        ("~/.config/loopsup/rules/mine.md", "active"),
    ]
    assert place.load().notices[1] == (
        "2 stream rules: .omp/rules, .cursor/rules cannot be read: "
        "a project may have 5 rule files, and the others are left out"
    )


def test_of_the_persons_own_folder_so_many_are_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 1)
    for name in "ab":
        place.write(f".config/loopsup/rules/{name}.md")
    assert place.standings() == {"~/.config/loopsup/rules/a.md": "active", "~/.config/loopsup/rules": "unreadable"}


def test_what_a_rule_says_wrongly_is_told(place: Place) -> None:
    place.write(".config/loopsup/rules/a.md", "---\ntrigger: x\ngap: ten\n---\nText.\n")
    assert place.load().notices == ("the stream rule ~/.config/loopsup/rules/a.md: its gap 'ten' is no whole number",)


def test_a_broken_configuration_is_a_notice_and_no_rules(place: Place) -> None:
    place.write(".config/loopsup/config.toml", "[ttsr]\nenabled = 1\n")
    loaded = place.load()
    assert loaded.rules == ()
    assert loaded.notices[0].startswith("no stream rules are in force: ")


def test_trust_is_kept_for_each_project_and_can_be_taken_back(place: Place) -> None:
    home = find_home(place.env)
    trust(home, "/one", {"a.md": "1"})
    trust(home, "/two", {"b.md": "2"})
    assert trusted(home) == {"/one": {"a.md": "1"}, "/two": {"b.md": "2"}}
    assert (home.root / NAME).stat().st_mode & 0o777 == 0o600
    trust(home, "/one", {})
    assert trusted(home) == {"/two": {"b.md": "2"}}


def test_taking_back_what_was_never_given_makes_nothing(place: Place) -> None:
    home = find_home(place.env)
    trust(home, "/one", {})
    assert not home.root.exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"v":1}', '{"v":2,"folders":{}}', '{"v":1,"folders":{"a":1}}'])
def test_a_damaged_list_of_trusted_files_trusts_nothing(place: Place, content: str) -> None:
    home = find_home(place.env)
    home.ensure()
    (home.root / NAME).write_text(content)
    with pytest.raises(StorageError, match="damaged"):
        trusted(home)
    place.write(".config/loopsup/rules/a.md")
    assert place.load().rules == ()
    assert "damaged" in place.load().notices[0]


def test_the_standings_are_all_of_them() -> None:
    assert {standing.value for standing in Standing} == {
        "active",
        "shadowed",
        "untrusted",
        "changed",
        "disabled",
        "no trigger",
        "unreadable",
    }


def test_of_two_that_trust_at_once_neither_is_lost(place: Place) -> None:
    home = find_home(place.env)
    home.ensure()
    other = threading.Thread(target=trust, args=(home, "/two", {"b.md": "2"}))
    with creation_lock(home.sessions):
        other.start()
        other.join(0.05)
        write_atomic(home.root / NAME, b'{"v": 1, "folders": {"/one": {"a.md": "1"}}}')
    other.join(30)
    assert trusted(home) == {"/one": {"a.md": "1"}, "/two": {"b.md": "2"}}
