"""Where the files that ship beside the code are: the ready attention hooks.

A wheel has them inside the package; an editable install and a checkout have them in `hooks/`.
"""

from __future__ import annotations

from pathlib import Path


def hooks() -> list[Path]:
    """Absolute paths of the ready attention hooks, sorted."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_hooks", package.parent / "hooks"):
        if folder.is_dir():
            return sorted(path for path in folder.iterdir() if path.is_file())
    return []
