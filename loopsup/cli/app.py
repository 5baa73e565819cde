"""The command line: finds the verb, runs it, and turns every outcome into output and an exit code, once.

Rules: only the module of the verb that was typed is imported (all of them for `--help`). `start` has
its argument list cut at the first `--` before the option parser sees it; the rest is handed to the verb.
An error is one sentence on standard error, or one JSON object on standard output where `--json` was
given. Nothing here knows what a verb does.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from loopsup.cli import streams
from loopsup.cli.common import TAIL, ReaderGoneError, Verb, out, out_json
from loopsup.errors import EXIT_DONE, EXIT_INTERRUPTED, AgentUnableError, LoopsupError, StorageError, UsageError
from loopsup.wire.control import error_object

PROG = "loopsup"
MIN_HELP = 20  # columns; narrower than this nothing can be read
MAX_SHOWN = 60  # characters of an objective that are repeated in a hint

# verb -> module of loopsup.cli with a function of that module's name; the order is that of `--help`: the loop, taking
# part in it, what happened, the session, time without a supervisor, this machine, and last what is for programs.
VERBS: Mapping[str, str] = MappingProxyType(
    {
        "start": "start",
        "status": "status",
        "pause": "pause",
        "resume": "resume",
        "stop": "stop",
        "update": "update",
        "abort": "abort",
        "wait": "wait",
        "attach": "attach",
        "say": "say",
        "answer": "answer",
        "logs": "logs",
        "history": "history",
        "close": "close",
        "heartbeat": "heartbeat",
        "reload": "reload",
        "enable": "enable",
        "disable": "disable",
        "tick": "tick",
        "install-timer": "install_timer",
        "ls": "ls",
        "top": "top",
        "report": "report",
        "forget": "forget",
        "agents": "agents",
        "doctor": "doctor",
        "rules": "rules",
        "hooks": "hooks",
        "config": "config",
        "control": "control",
        "mcp": "mcp",
        "supervise": "supervise",
        "host": "host",
        "reopen": "reopen",
    }
)
# How loopsup and a unit start a supervisor, and what an extension inside an agent asks; not for people.
HIDDEN = frozenset({"supervise", "host", "reopen"})


# The line of a verb in `loopsup --help`, where the first sentence of its own help does not fit into 80 columns.
SHORT: Mapping[str, str] = MappingProxyType(
    {
        "start": "Keep an agent on an objective until it is reached.",
        "pause": "Pause the loop; the agent may finish first.",
        "stop": "End the loop for good; the agent may finish first.",
        "update": "Change the rhythm or the limits of the loop.",
        "abort": "End what the agent is doing now; the loop pauses.",
        "wait": "Block until the loop ends or needs a person.",
        "attach": "Follow the conversation live; leaving changes nothing.",
        "answer": "Answer the agent's pending question.",
        "close": "End the session and its agent; the loop is kept.",
        "heartbeat": "Let the session report on a cadence how it stands.",
        "reload": "Restart the supervisor after an upgrade.",
        "tick": "Fire what is due in all loops with `--driver tick`.",
        "install-timer": "Have `loopsup tick` run regularly.",
        "agents": "Show the agents loopsup can drive.",
        "rules": "Show, check, try out and trust stream rules.",
        "control": "For the agent: report the decision of its iteration.",
        "mcp": "For agents: serve the tool loop_control over MCP.",
    }
)


class Verbs(TyperGroup):
    """The verbs in the order of `VERBS`, not of the alphabet."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in VERBS if name in self.commands]


def run(argv: Sequence[str] | None = None, platform: str = sys.platform) -> int:
    """Run one command line; returns the exit code. Never raises."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not streams.all_open():
        return streams.refuse()
    streams.written_whole()
    tolerate_any_text()
    as_json = wants_json(args)
    try:
        if platform == "win32":
            raise AgentUnableError("loopsup needs Linux or macOS; on Windows run it inside WSL")
        code = invoke(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (BrokenPipeError, ReaderGoneError):
        return silence_stdout()
    except LoopsupError as error:
        return report(error, as_json)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except Exception as error:  # a defect of ours: told in one sentence, the rest in a file
        if isinstance(error, OSError) and streams.refused_output(error):
            return report(StorageError(f"cannot write to standard output: {error.strerror}"), as_json=False)
        if os.environ.get("LOOPSUP_DEBUG") == "1":
            import traceback

            traceback.print_exc()
        from loopsup.cli import crash

        return report(LoopsupError(crash.record(error)), as_json)
    return code


def invoke(args: list[str]) -> int:
    """Run the verb; errors of the option parser become UsageError."""
    from typer.exceptions import TyperException

    if not args:
        raise UsageError(f"no command given; see `{PROG} --help`")
    if args[0] == "help":
        args = [*args[1:2], "--help"]
    args, tail = split_tail(args)
    verb = verb_of(args)
    command = typer.main.get_command(build(verb))
    try:
        code = command.main(args, prog_name=PROG, standalone_mode=False, obj={TAIL: tail})
    except TyperException as error:
        raise UsageError(usage_sentence(error, verb, args)) from error
    return code if isinstance(code, int) else EXIT_DONE


def split_tail(args: list[str]) -> tuple[list[str], list[str] | None]:
    """For `start`: what stands before the first `--`, and what stands after it (None: there is no `--`)."""
    if verb_of(args) != "start" or "--" not in args:
        return args, None
    at = args.index("--")
    return args[:at], args[at + 1 :]


def verb_of(args: Sequence[str]) -> str | None:
    """The first word, if it is a verb."""
    return args[0] if args and args[0] in VERBS else None


def build(verb: str | None) -> typer.Typer:
    """The application with that verb (None: with all of them)."""
    app = typer.Typer(
        cls=Verbs,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"], "terminal_width": help_width()},
        help="Keep a coding-agent CLI on one objective until it is reached, has failed, is blocked or out of budget.",
    )
    app.callback()(before_any_verb)
    for name in VERBS if verb is None else (verb,):
        module = importlib.import_module(f"loopsup.cli.{VERBS[name]}")
        epilog = getattr(module, "EPILOG", None)
        made = app.command(name, cls=Verb, hidden=name in HIDDEN, epilog=epilog, short_help=SHORT.get(name))
        made(getattr(module, VERBS[name]))
    return app


def help_width() -> int:
    """The terminal's columns, or $COLUMNS; 80 where there is neither."""
    return max(MIN_HELP, shutil.get_terminal_size((80, 24)).columns)


def show_version(asked: bool) -> None:
    if asked:
        from loopsup import __version__

        out(f"{PROG} {__version__}")
        raise typer.Exit(EXIT_DONE)


def before_any_verb(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """Options that stand before any verb."""


def usage_sentence(error: Exception, verb: str | None, args: Sequence[str] = ()) -> str:
    """The parser's message as one sentence of ours, with the way on."""
    if hint := _way_on(verb, args):
        return hint
    format_message = getattr(error, "format_message", error.__str__)
    text = " ".join(str(format_message()).split()).rstrip(".,").replace(". Choose from:", "; choose from:")
    if text.startswith("Got unexpected extra argument"):
        words = text.partition("(s) (")[2].removesuffix(")")
        text = f"'{words}' is one argument too many; the session is named with --session NAME"
    text = text[:1].lower() + text[1:]
    if verb == "start" and text.startswith("no such option"):
        text += " (an objective that starts with - stands after --)"
    return f"{text}; see `{PROG} {verb} --help`" if verb else f"{text}; see `{PROG} --help`"


def _way_on(verb: str | None, args: Sequence[str]) -> str | None:
    """What was meant, where that is plain."""
    if verb == "start":
        dashed = [arg for arg in args if arg.startswith("-") and any(char.isspace() for char in arg)]
        if dashed and "=" not in dashed[0].split()[0]:
            shown = dashed[0] if len(dashed[0]) <= MAX_SHOWN else f"{dashed[0][:MAX_SHOWN]}…"
            return f'an objective that starts with - stands after --: {PROG} start [OPTIONS] -- "{shown}"'
    if verb is None and args and args[0].startswith("-"):
        for word in args:
            if word in VERBS and word not in HIDDEN:
                return f"options stand after the command: {PROG} {word} {args[0]}; see `{PROG} {word} --help`"
    return None


def report(error: LoopsupError, as_json: bool) -> int:
    """Tell the error; its exit code."""
    from loopsup.cli import render

    try:
        if as_json:
            out_json({"version": 1, "error": error_object(error)})
        else:
            sys.stderr.write(render.sentences(f"{PROG}: {render.safe(error.message)}", sys.stderr) + "\n")
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError:  # a full disk behind standard error, or behind standard output with --json
        streams.discard(sys.stdout)
    return error.exit


def wants_json(args: Sequence[str]) -> bool:
    """`--json` among the options (what stands after `--` is not an option)."""
    return "--json" in (args[: args.index("--")] if "--" in args else args)


def tolerate_any_text() -> None:
    """Text from agents and file names may not fit the terminal's encoding: shown escaped, never an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def silence_stdout() -> int:
    """The reader of our output left (`| head`): end quietly, also in the interpreter's own flush."""
    streams.discard(sys.stdout)
    return EXIT_DONE
