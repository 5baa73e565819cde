"""A command the person typed inside the agent: the request any client would send, carried out the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopsup.errors import LoopsupError
from loopsup.ports import Answer
from loopsup.shell.handlers import Handlers
from loopsup.wire.slash import parse

if TYPE_CHECKING:
    from loopsup.shell.supervisor import Supervisor


async def carry_out(supervisor: Supervisor, line: str) -> Answer:
    """What became of it; raises nothing."""
    try:
        response = await Handlers(supervisor).handle(parse(line))
    except LoopsupError as error:
        return Answer(False, error.message, supervisor.status())
    if response.error is not None:
        return Answer(False, response.error.message, supervisor.status())
    warnings = (f"warning: {warning}" for warning in response.warnings)
    return Answer(True, "\n".join((response.message, *warnings)), response.status)
