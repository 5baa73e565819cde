"""The stream rules in force in a directory: read from their files, made ready to be looked for, and what to tell.

Nothing here raises: a session does without a rule that cannot be used, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loopsup.core.rules import Rule, RuleSettings
from loopsup.errors import LoopsupError
from loopsup.matching.matcher import Matcher
from loopsup.store.config import load_config
from loopsup.store.rules import Loaded, rule_settings, session_rules


@dataclass(frozen=True, slots=True)
class InForce:
    """`rules` are those `matcher` looks for. `notices`: a sentence each, for people."""

    rules: tuple[Rule, ...]
    settings: RuleSettings
    matcher: Matcher
    notices: tuple[str, ...] = ()


def rules_in_force(cwd: Path, env: Mapping[str, str] = os.environ) -> InForce:
    """What a session that starts in `cwd` has."""
    loaded = session_rules(cwd, env)
    try:
        matcher = Matcher(loaded.rules)
    except LoopsupError as error:  # the engines are not installed
        loaded = Loaded((), loaded.settings, (f"no stream rules are in force: {error.message}",))
        matcher = Matcher(())
    wrong = tuple(
        f"the stream rule {name}: the trigger {trigger!r} is left out: {why}"
        for name, trigger, why in matcher.problems
    )
    return InForce(matcher.rules, loaded.settings, matcher, loaded.notices + wrong)


def settings_now(env: Mapping[str, str] = os.environ) -> RuleSettings | None:
    """`[ttsr]` as it is configured at this moment; None where it cannot be read: then nothing changes."""
    try:
        return rule_settings(load_config(env).ttsr)
    except LoopsupError:
        return None
