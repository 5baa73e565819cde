"""What a session does with the rules on this machine at its start: find them, compile them, put them in force.

Whatever is wrong with them is told and fails nothing: a session without its rules says so.
"""

from __future__ import annotations

from pathlib import Path

from loopsup.core.rules import RuleSettings
from loopsup.errors import LoopsupError
from loopsup.shell.supervisor import Supervisor
from loopsup.store.config import load_config
from loopsup.store.rules import rule_settings, session_rules
from loopsup.wire import events as words


def load_rules(supervisor: Supervisor) -> None:
    """Before the agent's first start, which has to know whether its tools wait."""
    loaded = session_rules(Path(supervisor.identity.cwd))
    notices = list(loaded.notices)
    if loaded.rules:
        try:
            from loopsup.matching.matcher import Matcher  # with its engines; most sessions have no rules

            matcher = Matcher(loaded.rules)
        except (ImportError, LoopsupError) as error:
            notices.append(f"no stream rules are in force: {error}")
        else:
            notices += [f"the rule {name}: {trigger!r}: {why}" for name, trigger, why in matcher.problems]
            supervisor.book.load(matcher.rules, loaded.settings, matcher, _configured)
    for notice in notices:
        supervisor.publish(words.LOOP_NOTICE, {"message": notice})


def _configured() -> RuleSettings | None:
    """As the configuration has it by now; None: it cannot be read."""
    try:
        return rule_settings(load_config().ttsr)
    except LoopsupError:
        return None
