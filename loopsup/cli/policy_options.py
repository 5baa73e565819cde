"""The options that make a policy; their way into values is `loopsup.wire.typed`."""

from __future__ import annotations

from typing import Annotated

import typer

from loopsup.wire.typed import Faults, as_policy, changes, quoted, with_defaults

__all__ = ["Faults", "as_policy", "changes", "quoted", "with_defaults"]

EveryOption = Annotated[
    str | None,
    typer.Option("--every", metavar="DUR|auto", help="The rhythm (required): 90s, 10m, 1h30m, 2d, or auto."),
]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="DUR", help="Wait this long before the first iteration.")
]
ForOption = Annotated[str | None, typer.Option("--for", metavar="DUR", help="The deadline, from now; default 24h.")]
MaxIterationsOption = Annotated[
    str | None, typer.Option("--max-iterations", metavar="N", help="The most iterations; default 50.")
]
MinDelayOption = Annotated[
    str | None, typer.Option("--min-delay", metavar="DUR", help="The shortest wait; default 1m.")
]
MaxDelayOption = Annotated[
    str | None, typer.Option("--max-delay", metavar="DUR", help="The longest wait; default 24h.")
]
MisfireOption = Annotated[
    str | None,
    typer.Option(
        "--misfire",
        metavar="once|skip|DUR",
        help="A missed wake is made up for once, skipped, or once if it is less late; default once.",
    ),
]

# Those of `update`: what is not given stays, so nothing here has a default.
NewEveryOption = Annotated[
    str | None, typer.Option("--every", metavar="DUR|auto", help="The rhythm: 90s, 10m, 1h30m, 2d, or auto.")
]
NewForOption = Annotated[
    str | None, typer.Option("--for", metavar="DUR", help="The deadline, counted from the loop's start.")
]
NewMaxIterationsOption = Annotated[
    str | None, typer.Option("--max-iterations", metavar="N", help="The most iterations, those done included.")
]
NewMinDelayOption = Annotated[str | None, typer.Option("--min-delay", metavar="DUR", help="The shortest wait.")]
NewMaxDelayOption = Annotated[str | None, typer.Option("--max-delay", metavar="DUR", help="The longest wait.")]
NewMisfireOption = Annotated[
    str | None, typer.Option("--misfire", metavar="once|skip|DUR", help="What becomes of a missed wake.")
]
