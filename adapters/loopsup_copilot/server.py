"""One Copilot server process: brought up through the SDK, watched, and ended with its whole tree."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import threading
from typing import Any

from loopsup.ports import AgentUnableError, Launch
from loopsup.process import DRAIN_GRACE_S, Tree, describe_exit
from loopsup_copilot import sdk
from loopsup_copilot.diagnostics import Diagnostics

MARK = "LOOPSUP_COPILOT"  # in the environment of all it runs: its shells have sessions of their own
LAST_WORDS_S = 1.0  # stderr arrives within milliseconds of the exit


class Server:
    """`client` is the SDK's. `exited` is set when the process has ended."""

    def __init__(self, launch: Launch, diagnostics: Diagnostics) -> None:
        self._launch = launch
        self._diagnostics = diagnostics
        self._token = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._tree: Tree | None = None
        self.client: Any = None
        self.exited = asyncio.Event()

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self, path: str) -> None:
        """Spawn and shake hands. AgentUnableError in its own words."""
        await asyncio.to_thread(sdk.load)
        env = {**self._launch.env, MARK: self._token}
        self.client = sdk.client(path, str(self._launch.cwd), env)
        starting = asyncio.ensure_future(self.client.start())
        try:
            while self._process is None and not starting.done():
                await asyncio.sleep(0)  # the SDK spawns it in its first step
                self._watch(sdk.process(self.client))
            await starting
        except OSError as error:
            raise AgentUnableError(f"copilot could not be started ({path}): {error.strerror or error}") from error
        except Exception as error:
            raise AgentUnableError(await self._words(path, error)) from error
        finally:
            if not starting.done():
                starting.cancel()

    async def _words(self, path: str, error: Exception) -> str:
        """Why it did not come up: its last words, or the SDK's."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.exited.wait(), LAST_WORDS_S)
        what = f"copilot did not come up ({path})"
        if self._process is not None and self._process.returncode is not None:
            what = f"copilot ended at its start ({path}): {describe_exit(self._process.returncode)}"
            return self._diagnostics.explain(what)
        return self._diagnostics.explain(f"{what}: {error}")

    def _watch(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None:
            return
        self._process = process
        mark = (MARK, self._token)
        self._tree = Tree(process.pid, lambda: process.returncode, self.exited, mark=mark)
        loop = asyncio.get_running_loop()

        def wait() -> None:
            process.wait()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(self.exited.set)

        threading.Thread(target=wait, name="copilot-exit", daemon=True).start()

    async def until_exit(self) -> str:
        """How it ended, for people; what it wrote before has been heard by then, and nothing of it is left."""
        await self.exited.wait()
        assert self._process is not None
        if self._tree is not None:
            await self._tree.sweep()  # killed, it leaves its shells behind
        await asyncio.to_thread(sdk.join_reader, self.client, DRAIN_GRACE_S)
        await asyncio.sleep(0)  # what the reader passed on is in front of us in the loop's queue
        return describe_exit(self._process.returncode)

    async def close(self) -> None:
        """Ask, TERM, KILL; no survivor."""
        if self._tree is not None:
            await self._tree.end(self._ask)
        if self.client is not None:
            with contextlib.suppress(Exception):  # its threads and its state; the process is gone
                await self.client.force_stop()
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()  # the SDK leaves that to the garbage collector

    async def _ask(self) -> None:
        """The SDK saves the session and lets the server end by itself."""
        with contextlib.suppress(Exception):  # the ladder goes on
            await self.client.stop()
