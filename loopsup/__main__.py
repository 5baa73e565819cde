"""`python -m loopsup` and the console script."""

from __future__ import annotations


def main() -> int:
    from loopsup.cli.app import run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
