"""The agents people use, and how each is started: the one table of start commands.

A name whose agent is not driven end to end by a test is shown as untested. What an agent is known to do wrong
(figures that are not the turn's, a relaunch that loses its child) is a field here, not a branch in the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Profile:
    """One agent. `command` empty: the user gives the whole command line after `--`.

    `tokens`: the figures at the end of a prompt are those of the whole turn. `env` goes over the user's
    environment, `meta` into the request for a session.
    """

    name: str
    title: str
    command: tuple[str, ...] = ()
    install: str = ""
    tested: bool = False
    tokens: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        if not self.command:
            return "any agent that speaks the Agent Client Protocol; give its command line after --"
        label = "" if self.tested else "untested: "
        return f"{label}{self.title}, over the Agent Client Protocol ({' '.join(self.command)})"


ANY = Profile("acp", "the ACP agent", tested=True)

# Claude denies an MCP tool that nobody allowed, also a read-only one.
_CLAUDE_ALLOWS = {"claudeCode": {"options": {"allowedTools": ["mcp__loopsup__loop_control"]}}}

KNOWN: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile(
                "claude",
                "Claude Code",
                ("claude-agent-acp",),
                "npm install -g @agentclientprotocol/claude-agent-acp",
                meta=_CLAUDE_ALLOWS,
            ),
            Profile("codex", "Codex", ("codex-acp",), "npm install -g @agentclientprotocol/codex-acp"),
            Profile(
                "gemini",
                "Gemini CLI",
                ("gemini", "--acp"),
                "npm install -g @google/gemini-cli",
                tested=True,
                env={"GEMINI_CLI_NO_RELAUNCH": "true"},  # it would start itself again as a child of its own
            ),
            Profile("goose", "Goose", ("goose", "acp"), "see its own documentation"),
            Profile("kimi", "Kimi CLI", ("kimi", "acp"), "see its own documentation"),
            Profile(
                "opencode",
                "OpenCode",
                ("opencode", "acp"),
                "npm install -g opencode-ai",
                tested=True,
                tokens=False,  # its figures are those of the last model call of the turn
            ),
            Profile("qwen", "Qwen Code", ("qwen", "--acp"), "npm install -g @qwen-code/qwen-code"),
        )
    }
)
