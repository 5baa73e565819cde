"""What an agent of the session is started with: its environment, its permissions, the conversation it resumes."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

from loopsup.ports import Conversation, Launch, Permissions
from loopsup.shell import leftover
from loopsup.shell.supervisor import Supervisor
from loopsup.store.config import Config
from loopsup.store.envfile import load_env_file
from loopsup.store.identity import Identity
from loopsup.wire.control import AGENT_MARK, SOCKET_VARIABLE, TOKEN_VARIABLE


class Launching:
    """Makes the launch at each start of the agent."""

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        log: Callable[[str], None],
        invite: Callable[[str], None] | None,
    ) -> None:
        self._config = config
        self._env = env
        self._log = log
        self._invite = invite

    def __call__(self, supervisor: Supervisor) -> Launch:
        who = supervisor.identity
        return Launch(
            session_id=who.id,
            resume=_conversation(who),
            cwd=Path(who.cwd),
            command=who.command,
            args=who.args,
            env={**agent_environment(self._env, who.name, self._env_file(who.agent)), leftover.MARK: who.id},
            state_dir=supervisor.folder,
            run_dir=Path(who.socket).parent,
            permissions=supervisor.permissions,
            log=self._log,
            hold_tools=supervisor.host.rules.active,
            invite=self._invite,
        )

    def _env_file(self, agent: str) -> Mapping[str, str]:
        """Read at each start of the agent, so that a new key is taken up."""
        path = self._config.agent(agent).env_file
        return {} if path is None else load_env_file(Path(path))


def agent_environment(env: Mapping[str, str], session: str, extra: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment: the shell's, the env_file's, our marks, and `loopsup` first on its PATH."""
    out = {**env, **extra, AGENT_MARK: "1", "LOOPSUP_SESSION": session}
    for variable in (SOCKET_VARIABLE, TOKEN_VARIABLE):  # of an agent that runs loopsup itself
        out.pop(variable, None)
    scripts = Path(sysconfig.get_path("scripts"))
    if (scripts / "loopsup").exists():
        out["PATH"] = os.pathsep.join(part for part in (str(scripts), out.get("PATH", "")) if part)
    return out


def permissions(config: Config, allow_all: bool) -> Permissions:
    given = config.permissions
    return Permissions(given.mode, given.allow, given.deny, given.timeout, allow_all)


def _conversation(who: Identity) -> Conversation | None:
    if who.agent_session_id is None:
        return None
    file = None if who.agent_file is None else Path(who.agent_file)
    return Conversation(who.agent_session_id, file, Path(who.cwd))
