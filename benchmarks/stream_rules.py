"""What watching a stream costs: MB per second of processor time, at 0, 10 and 100 rules, for answers of 1 kB to 1 MB.

The cost of a character must not grow with the length of the answer: the numbers of a row should be alike, or grow.
"""

from __future__ import annotations

import random
import time
import timeit
from collections.abc import Iterator

from loopsup.core.rules import TEXT, Rule
from loopsup.matching.matcher import Matcher

SIZES = (1_000, 10_000, 100_000, 1_000_000)
RULES = (0, 10, 100)
PIECE = 12  # characters; models send one to four words at a time
RUNS = 3
WORDS = (
    "the",
    "parser",
    "reads",
    "a line",
    "and returns",
    "if (x) {",
    "return foo(bar);",
    "}",
    "git commit",
    "tests",
)


def answer(size: int) -> list[str]:
    """Something between prose and code, in pieces, the same each time."""
    source = random.Random(1)
    text = "".join(source.choice(WORDS) + source.choice("   \n") for _ in range(size))
    return [text[at : at + PIECE] for at in range(0, size, PIECE)]


def some_rules(number: int) -> Iterator[Rule]:
    """Patterns like those people write; none is found in the answer."""
    shapes = (
        r"\.unwrap{}\(",
        r"(?i)never{}\s+(?:do|use)\b",
        r"\bgit\b[^\n]*\bpush{}\b[^\n]*--force",
        r"(?m)^rm{} -rf",
        r"(api[_-]?key|secret){}\s*[:=]\s*['\"][A-Za-z0-9+/=_-]{{16,}}",
    )
    for index in range(number):
        name = f"rule{index}"
        yield Rule(name, name, "Text.", (shapes[index % len(shapes)].format(index),))


def best_mb_s(rules: int, size: int) -> float:
    pieces = answer(size)
    matcher = Matcher(list(some_rules(rules)))

    def watch() -> None:
        matcher.turn()
        for piece in pieces:
            if not matcher.idle and matcher.delta(TEXT, piece):
                raise AssertionError("a rule was found")

    watch()
    number = max(1, 100_000 // size)
    seconds = min(timeit.repeat(watch, timer=time.process_time, number=number, repeat=RUNS)) / number
    return size / seconds / 1_000_000


def main() -> None:
    print(
        f"stream rules, MB/s (CPU), pieces of {PIECE} characters".ljust(46)
        + "".join(f"{size:>12,}" for size in SIZES)
    )
    for rules in RULES:
        figures = "".join(f"{best_mb_s(rules, size):>12.2f}" for size in SIZES)
        print(f"  {rules} rules".ljust(46) + figures)


if __name__ == "__main__":
    main()
