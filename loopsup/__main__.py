"""`python -m loopsup` and the console script."""

from __future__ import annotations

import sys


def main() -> int:
    if sys.argv[1:] == ["hook-run"]:  # our own detached helper: it needs no command line, so it loads none
        from loopsup.shell.hook_run import main as hook_run

        return hook_run()
    if sys.argv[1:] == ["mcp"]:  # agents do not wait long for it
        from loopsup.mcp_server import main as serve

        return serve()
    from loopsup.cli.app import run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
