"""The paths a tool call is about."""

from __future__ import annotations

import pytest

from loopsup.matching.paths import fits, paths_of, streamed_paths


@pytest.mark.parametrize(
    ("glob", "path", "fit"),
    [
        ("*.ts", "a.ts", True),
        ("*.ts", "/w/src/a.ts", True),
        ("*.ts", "a.tsx", False),
        ("src/*.ts", "/w/src/a.ts", True),
        ("src/*.ts", "src/deep/a.ts", False),
        ("src/**/*.ts", "src/deep/er/a.ts", True),
        ("src/**/*.ts", "src/a.ts", True),
        ("src/**", "src/a/b", True),
        ("./src/*.ts", "src/a.ts", True),
        ("*.{ts,tsx}", "a.tsx", True),
        ("*.{ts,tsx}", "a.js", False),
        ("file?.py", "file1.py", True),
        ("file?.py", "file/.py", False),
        ("[ab].c", "b.c", True),
        ("[!ab].c", "b.c", False),
        ("a.b", "axb", False),
        ("src\\*.ts", "src\\a.ts", True),
        ("a,b", "a,b", True),
        ("{odd", "{odd", True),
        ("odd}", "odd}", True),
        ("[odd", "[odd", True),
    ],
)
def test_a_glob_fits_a_path_or_its_end(glob: str, path: str, fit: bool) -> None:
    assert fits(glob, path) is fit


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"path": "a.ts", "content": "x"}, ("a.ts",)),
        ({"filePath": "a.ts"}, ("a.ts",)),
        ({"file_path": "a.ts", "edits": [{"path": "b.ts"}]}, ("a.ts", "b.ts")),
        ({"paths": ["a", "b", 1]}, ("a", "b")),
        ({"input": "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n*** End Patch"}, ("src/a.py",)),
        ("*** Add File: n.py\n+x", ("n.py",)),
        ({"command": "cat a.ts"}, ()),
        (None, ()),
        (7, ()),
    ],
)
def test_the_paths_of_a_call(arguments: object, paths: tuple[str, ...]) -> None:
    assert paths_of(arguments) == paths


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('{"path":"src/a.ts","content":"unfin', ("src/a.ts",)),
        ('{"file_path" : "a \\"b\\".ts", ', ('a "b".ts',)),
        ('{"path":"unfin', ()),
        ('{"path":"bad \\x escape","path":"b"', ("b",)),
        ("", ()),
    ],
)
def test_paths_in_arguments_that_are_still_streamed(text: str, paths: tuple[str, ...]) -> None:
    assert streamed_paths(text) == paths
