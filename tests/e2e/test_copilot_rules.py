"""Stream rules on the real Copilot CLI through the product: what it can do of them, and says so."""

from __future__ import annotations

import pytest

from tests.support.copilot_env import shell
from tests.support.copilot_product import CopilotProduct, product
from tests.support.model_server import Reply, decision
from tests.support.patient import patient

pytestmark = [pytest.mark.copilot, pytest.mark.slow]

REMINDER = '<system-interrupt reason="rule_violation" rule="{}" path="'


def rule(it: CopilotProduct, name: str, trigger: str, *header: str) -> None:
    """A rule of the person's own."""
    folder = it.config.parent / "rules"
    folder.mkdir(exist_ok=True)
    lines = ["---", f"name: {name}", f"ttsr_trigger: '{trigger}'", *header, "---", f"Never {name}."]
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")


def roles(it: CopilotProduct, number: int) -> list[str]:
    return [message["role"] for message in it.requests[number]["messages"] if message["role"] != "system"]


def test_a_trigger_split_over_pieces_of_the_text() -> None:
    """The partial text is gone, as Copilot does it; the reminder is a user's message, and that is told."""
    script = [Reply("I will force-push now.", chunk=3, hang="stream"), Reply("Gently.", [decision("complete")])]
    with product(script) as it:
        rule(it, "no-force", "force-push")
        it.begin()
        loop = it.wait(expect=0)
        assert (loop["iterationCount"], loop["protocolRetryCount"], loop["llmCalls"]) == (1, 0, 2)
        assert it.balanced()
        envelope, reminder = it.heard(1)
        assert envelope == it.heard(0)[0]
        assert reminder.startswith(REMINDER.format("no-force"))
        assert roles(it, 1) == ["user", "user"]
        assert it.data("ttsr_injection") == [{"rules": ["no-force"], "partial": "left to the agent"}]
        assert [data["reason"] for data in it.data("abort")] == ["ttsr"]
        assert it.data("session.error") == []
        told = [data["message"] for data in it.data("loop.notice")]
        assert [text for text in told if "what was cut off goes or stays as the agent does it" in text]


def test_a_trigger_in_the_arguments_of_a_tool_that_then_never_runs() -> None:
    script = [
        Reply("I tidy up.", [shell("touch evil && rm -rf build")]),
        Reply("Done.", [decision("complete")]),
    ]
    with product(script) as it:
        patient(it)
        rule(it, "no-rm", "rm -rf", "scope: tool:bash")
        it.begin("--allow-all")
        it.wait(expect=0)
        assert not (it.project / "evil").exists()
        assert it.heard(1)[-1].startswith(REMINDER.format("no-rm"))
        assert [data["rules"] for data in it.data("ttsr_injection")] == [["no-rm"]]
