"""`loopsup mcp`: the MCP server with the tool `loop_control`, for an agent's own configuration.

`loopsup.__main__` runs it without loading the command line; this is for `--help` and odd spellings.
"""

from __future__ import annotations


def mcp() -> int:
    """Serve the tool loop_control over MCP on standard input and output (for an agent, not for people)."""
    from loopsup.mcp_server import main

    return main()
