"""env_file: KEY=VALUE lines; errors name the line and never its content."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopsup.errors import ConfigError, StorageError
from loopsup.store.envfile import load_env_file


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_bytes(
        b"# comment\n\nA=1\r\nexport B = two words \nC='it''s'\nD=\"#x\"\nE=\nF=a=b#c\n  A=3\nG=$HOME\nexport=x"
    )
    assert load_env_file(path) == {
        "A": "3",
        "B": "two words",
        "C": "it''s",
        "D": "#x",
        "E": "",
        "F": "a=b#c",
        "G": "$HOME",
        "export": "x",
    }


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"SECRET", "it is not KEY=VALUE"),
        (b"=SECRET", "it is not KEY=VALUE"),
        (b"1A=SECRET", "it is not KEY=VALUE"),
        (b"A B=SECRET", "it is not KEY=VALUE"),
        (b"A='SECRET", "the quote is not closed"),
        (b"A='", "the quote is not closed"),
        (b"A=SECRET\0", "it has a NUL character"),
        (b"A=\xffSECRET", "it is not UTF-8 text"),
    ],
)
def test_a_wrong_line_is_named_without_its_content(tmp_path: Path, line: bytes, error: str) -> None:
    path = tmp_path / "env"
    path.write_bytes(b"OK=1\n" + line + b"\n")
    with pytest.raises(ConfigError) as caught:
        load_env_file(path)
    assert str(caught.value) == f"the env_file {path}, line 2: {error}"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_env_file(tmp_path / "none")
    with pytest.raises(StorageError, match="Is a directory"):
        load_env_file(tmp_path)
