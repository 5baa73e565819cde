"""Where state lives, and what is not trusted there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from loopsup.errors import StorageError, UsageError
from loopsup.store import home as homes
from loopsup.store.home import MAX_SOCKET_PATH, Home, check_private, find_home, private_dir

root_only = pytest.mark.skipif(
    os.geteuid() != 0, reason="chown to another user, which makes a folder of theirs, is allowed to root only"
)
NOBODY = 65534


@pytest.mark.parametrize(
    ("env", "root"),
    [
        ({"LOOPSUP_HOME": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"LOOPSUP_HOME": "", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/loopsup"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/c"}, "/c/.local/state/loopsup"),
        ({"HOME": "/c"}, "/c/.local/state/loopsup"),
    ],
)
def test_the_environment_names_the_home(env: dict[str, str], root: str) -> None:
    assert find_home(env) == Home(Path(root))


def test_a_relative_home_is_refused() -> None:
    with pytest.raises(UsageError, match="LOOPSUP_HOME is the relative path 'x'; give an absolute one"):
        find_home({"LOOPSUP_HOME": "x"})


def test_everything_is_made_private_whatever_the_umask(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "er" / "home")
    assert home.check() is False
    old = os.umask(0)
    try:
        home.ensure()
    finally:
        os.umask(old)
    home.ensure()
    assert home.check() is True
    made = (tmp_path / "deep", home.root, home.sessions, home.run)
    assert [oct(path.stat().st_mode & 0o777) for path in made] == ["0o700"] * 4


def test_a_readable_home_is_closed_and_a_writable_one_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")
    home.root.mkdir()
    home.root.chmod(0o755)
    home.ensure()
    assert home.root.stat().st_mode & 0o777 == 0o700
    for mode in (0o770, 0o707):
        home.root.chmod(mode)
        with pytest.raises(StorageError, match=f"other users may write in {home.root}; close it with: chmod 700"):
            home.ensure()
        with pytest.raises(StorageError, match="other users may write"):
            home.check()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("x")
    with pytest.raises(StorageError, match=r"cannot make the directory .*/h: File exists"):
        private_dir(tmp_path / "h")
    with pytest.raises(StorageError, match="is not a directory"):
        check_private(tmp_path / "h")


@root_only
def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")
    home.ensure()
    os.chown(home.sessions, NOBODY, NOBODY)
    with pytest.raises(StorageError, match="belongs to another user"):
        home.check()


@root_only
def test_a_foreign_symlink_is_refused_and_ones_own_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    Home(link / "h").ensure()
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(StorageError, match="is a symbolic link of another user"):
        Home(link / "h").ensure()


def test_sockets_have_short_private_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(Path(tempfile.mkdtemp(dir="/tmp")) / "h")  # pytest's own directories are long
    home.ensure()
    short_run = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(homes, "SHORT_RUN", str(short_run))
    near, other = home.new_socket(), home.new_socket()
    assert (near.parent, len(near.stem), near.suffix) == (home.run, 16, ".sock")
    assert near != other

    far = Home(tmp_path / ("x" * 90))
    far.ensure()
    short = far.new_socket()
    assert short.parent == short_run / f"loopsup-{os.geteuid()}"
    assert short.parent.stat().st_mode & 0o777 == 0o700
    assert len(os.fsencode(short)) <= MAX_SOCKET_PATH
    short.parent.chmod(0o777)
    with pytest.raises(StorageError, match="other users may write"):
        far.new_socket()
