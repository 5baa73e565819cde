"""The user's own model provider (BYOK): Copilot's environment variables as the SDK's provider.

The headless server does not take them from its environment, and forgets the provider with the process: it is
given again with each session that is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopsup.errors import AgentUnableError

PREFIX = "COPILOT_PROVIDER_"
BASE_URL = f"{PREFIX}BASE_URL"
_TRUE = ("1", "true", "yes", "on")

# The SDK's key -> the variable's name after the prefix.
_TEXTS = {
    "type": "TYPE",
    "api_key": "API_KEY",
    "api_key_command": "API_KEY_COMMAND",
    "bearer_token": "BEARER_TOKEN",
    "wire_api": "WIRE_API",
    "transport": "TRANSPORT",
    "model_id": "MODEL_ID",
    "wire_model": "WIRE_MODEL",
}
_NUMBERS = {"max_prompt_tokens": "MAX_PROMPT_TOKENS", "max_output_tokens": "MAX_OUTPUT_TOKENS"}


def model(env: Mapping[str, str]) -> str | None:
    """The model named by the environment."""
    return env.get("COPILOT_MODEL") or env.get(f"{PREFIX}MODEL_ID") or None


def offline(env: Mapping[str, str]) -> str | None:
    """Why nothing can be asked in this environment; None if something can."""
    if env.get("COPILOT_OFFLINE", "").lower() in _TRUE and not env.get(BASE_URL):
        return (
            "COPILOT_OFFLINE is set and there is no model provider; "
            f"set {BASE_URL} (and COPILOT_MODEL), or unset COPILOT_OFFLINE"
        )
    return None


def provider(env: Mapping[str, str]) -> dict[str, Any] | None:
    """What `create_session` and `resume_session` take; None: GitHub's own models. AgentUnableError."""
    base_url = env.get(BASE_URL)
    if not base_url:
        return None
    out: dict[str, Any] = {"type": "openai", "base_url": base_url}
    out |= {key: env[PREFIX + name] for key, name in _TEXTS.items() if env.get(PREFIX + name)}
    out |= {key: _number(env, PREFIX + name) for key, name in _NUMBERS.items() if env.get(PREFIX + name)}
    if given := env.get(f"{PREFIX}AZURE_API_VERSION"):
        out["azure"] = {"api_version": given}
    if given := env.get(f"{PREFIX}HEADERS"):
        out["headers"] = _headers(given)
    return out


def _number(env: Mapping[str, str], name: str) -> int:
    if not env[name].isdecimal():
        raise AgentUnableError(f"{name} must be a whole number of tokens, not {env[name]!r}")
    return int(env[name])


def _headers(text: str) -> dict[str, str]:
    """`Name: Value` pairs, one a line; a literal `\\n` separates as well (Copilot's own rule)."""
    out = {}
    for line in text.replace("\\n", "\n").split("\n"):
        name, colon, value = line.partition(":")
        if colon and name.strip():
            out[name.strip()] = value.strip()
    return out
