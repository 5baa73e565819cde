"""How each program's screen is read, and the table of the programs people use.

A pattern is searched for in each row of the screen. What a profile leaves open is judged by silence: a
terminal interface at its prompt writes nothing, one that works moves a spinner. A name whose program is not driven
end to end by a test is shown as untested.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

QUIET_S = 2.0  # the longest gap seen between two moves of a spinner is 0.4 s; idle interfaces write nothing at all
SETTLE_S = 0.7  # where a pattern has the say: between the prompt's first sight and the end of the drawing
# Words that only a question shows: of the common prompt libraries, and of the programs below.
MENU = (
    r"\[y/n\]|\(y/n\)|\(yes/no\)|\[yes/no\]|use arrow keys|press enter to (?:continue|confirm)"
    r"|enter to (?:select|confirm)|esc to (?:cancel|reject)|do you trust the|confirm folder trust|^\W*[❯›]\s*1[.)]\s"
)
# Rows of a numbered list in which one of the first is a yes and a later one a no; prose has longer rows.
NUMBERED = (
    r"(?m)^\W*1[.)]\s+(?:yes|allow|approve|accept|proceed|continue)\b.{0,60}\n"
    r"(?:\W*[2-8][.)]\s.{0,60}\n){0,4}\W*[2-9][.)]\s+(?:no|deny|reject|cancel|abort|exit)\b.{0,60}$"
)


@dataclass(frozen=True, slots=True)
class Profile:
    """One program. `command` empty: the user gives the whole command line after `--`.

    `ready`: at its prompt. `empty`: its input line with nothing typed. `busy`: it works. `menu`: it asks a person
    something. `new`, `again`: arguments for a new and for a resumed conversation; `{id}` is its id. `interrupt`: the
    keys that end a response. `mcp`: the arguments that give it our server, whose configuration is the file `{file}`;
    None: the model decides in its shell. `log`: whose own log tells of its work ("copilot").
    """

    name: str
    title: str
    command: tuple[str, ...] = ()
    install: str = ""
    tested: bool = False
    ready: str | None = None
    empty: str | None = None
    busy: str | None = None
    menu: str = MENU
    quiet_s: float = QUIET_S
    new: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    interrupt: bytes = b"\x1b"
    mcp: tuple[str, ...] | None = None
    log: str | None = None

    @property
    def summary(self) -> str:
        if not self.command:
            return "any program with a terminal interface; give its command line after --"
        label = "" if self.tested else "untested: "
        return f"{label}{self.title} in its own terminal interface ({' '.join(self.command)})"

    @property
    def resumes(self) -> bool:
        return bool(self.again)


def pattern(text: str) -> re.Pattern[str]:
    """As all of them are read. re.error."""
    return re.compile(text, re.IGNORECASE)


ANY = Profile("pty", "the program", tested=True)

KNOWN: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile(
                "claude-tui",
                "Claude Code",
                ("claude",),
                "npm install -g @anthropic-ai/claude-code",
                ready=r"^\W*[❯>](?:\s|$)",
                busy=r"esc to interrupt",
                new=("--session-id", "{id}"),
                again=("--resume", "{id}"),
            ),
            Profile(
                "codex-tui",
                "Codex",
                ("codex",),
                "npm install -g @openai/codex",
                ready=r"^\s*›",
                busy=r"esc to interrupt",
            ),
            Profile(
                "copilot-tui",
                "the GitHub Copilot CLI",
                ("copilot",),
                "npm install -g @github/copilot",
                tested=True,
                ready=r"^\s*❯",
                empty=r"^\s*❯\s*$",
                busy=r"^\s*[○◎●◉]\s+(?:Working|Thinking)",
                new=("--session-id", "{id}"),
                again=("--session-id", "{id}"),
                interrupt=b"\x03",
                mcp=("--additional-mcp-config", "@{file}", "--allow-tool", "loopsup"),
                log="copilot",
            ),
            Profile(
                "opencode-tui",
                "OpenCode",
                ("opencode",),
                "npm install -g opencode-ai",
                busy=r"esc (?:again to )?interrupt",
                again=("--continue",),
                interrupt=b"\x1b\x1b",
            ),
        )
    }
)
