"""Stream rules on the real Pi through the product: what the model is asked, and what never ran."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.model_server import Body, Reply, bash, decision
from tests.support.patient import patient
from tests.support.pi_product import PiProduct, product

pytestmark = [pytest.mark.pi, pytest.mark.slow]


def rule(pi: PiProduct, name: str, trigger: str, *header: str) -> None:
    """A rule of the person's own, in force without further ado."""
    folder = pi.config.parent / "rules"
    folder.mkdir(exist_ok=True)
    lines = ["---", f"name: {name}", f"ttsr_trigger: '{trigger}'", *header, "---", f"Never {name}."]
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")


def conversation(body: Body) -> list[tuple[str, str]]:
    """A request without the system message: the envelope by its first line, the reminder by its rule."""
    out = []
    for message in body["messages"]:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        if message["role"] != "system":
            out.append((message["role"], text.split("\n")[0]))
    return out


REMINDER = '<system-interrupt reason="rule_violation" rule="{}" path="'


def rules_of(pi: PiProduct, kind: str) -> list[Any]:
    return [data["rules"] for data in pi.data(kind)]


@pytest.mark.parametrize("keep", [False, True])
def test_a_trigger_split_over_pieces_of_the_text(keep: bool) -> None:
    """Cases 119 and 125: request bodies compared."""
    script = [Reply("I will force-push now.", chunk=3, hang="stream"), Reply("Gently.", [decision("complete")])]
    with product(script) as pi:
        rule(pi, "no-force", "force-push", *(["context: keep"] if keep else []))
        pi.begin()
        loop = pi.wait(expect=0)
        assert (loop["iterationCount"], loop["protocolRetryCount"], loop["promptsSent"]) == (1, 0, 1)
        assert loop["llmCalls"] == 2
        assert len(pi.requests) == 2
        assert pi.balanced()
        first, second = map(conversation, pi.requests)
        assert second[: len(first)] == first
        *partial, reminder = second[len(first) :]
        assert reminder[0] == "user"
        assert reminder[1].startswith(REMINDER.format("no-force"))
        assert [role for role, _ in partial] == (["assistant"] if keep else [])
        assert all("I will force-push" in text for _, text in partial)
        assert [[one["name"] for one in names] for names in rules_of(pi, "ttsr_triggered")] == [["no-force"]]
        assert pi.data("ttsr_injection") == [{"rules": ["no-force"], "partial": "kept" if keep else "discarded"}]
        assert [data["reason"] for data in pi.data("abort")] == ["ttsr"]
        assert pi.data("session.error") == []
        assert [one["event"]["rules"] for one in pi.journal() if one["event"]["type"] == "ttsr_injection"] == [
            ["no-force"]
        ]
        shown = pi.act("logs").out
        assert "stopped by the rule no-force" in shown
        assert "error" not in shown
        assert "interrupted for no-force" in pi.act("history").out


def test_a_trigger_in_the_arguments_of_a_tool_that_then_never_runs() -> None:
    script = [
        Reply("I tidy up.", [bash("touch evil && rm -rf build")]),
        Reply("Another way.", [bash("touch good")]),
        Reply("Done.", [decision("complete")]),
    ]
    with product(script) as pi:
        patient(pi)
        rule(pi, "no-rm", "rm -rf", "scope: tool:bash")
        pi.begin()
        pi.wait(expect=0)
        assert not (pi.project / "evil").exists()
        assert (pi.project / "good").exists()
        assert [role for role, _ in conversation(pi.requests[1])] == ["user", "user"]
        assert conversation(pi.requests[1])[1][1].startswith(REMINDER.format("no-rm"))
        assert pi.data("ttsr_injection") == [{"rules": ["no-rm"], "partial": "discarded"}]


def test_a_match_in_the_decision_takes_it_back() -> None:
    """Case 135, X-02."""
    script = [
        Reply("So.", [decision("complete", "I disabled the test")]),
        Reply("So.", [decision("complete", "I mended the test")]),
    ]
    with product(script) as pi:
        rule(pi, "no-disabling", "disabled the test")
        pi.begin()
        loop = pi.wait(expect=0)
        assert loop["lastDecision"]["summary"] == "I mended the test"
        assert (loop["protocolRetryCount"], loop["iterationCount"], loop["llmCalls"]) == (0, 1, 2)


def test_a_rule_acts_once_also_after_a_kill_and_a_reopen() -> None:
    """T-30, D-25: close and resume, then kill -9 of the supervisor and resume."""
    bad = Reply("I will force-push now.", [decision("block", "stuck")])
    script = [Reply("force-push", hang="stream"), Reply("No.", [decision("block", "stuck")]), bad, bad]
    with product(script) as pi:
        rule(pi, "no-force", "force-push")
        pi.begin()
        pi.until(state="paused", pauseReason="blocked")
        pi.act("close")
        pi.act("resume")
        pi.until(state="paused", pauseReason="blocked", iterationCount=2)
        pi.kill(pi.supervisor())
        pi.act("resume")
        pi.until(state="paused", pauseReason="blocked", iterationCount=3)
        assert len(pi.requests) == 4
        assert len(pi.data("ttsr_triggered")) == 1


def test_an_abort_by_the_person_inside_the_window_is_not_tried_again_and_loses_no_rule() -> None:
    """D-21. Pi is kept from settling until the person's abort has come, so that it lies inside."""
    script = [
        Reply("force-push", hang="stream"),
        Reply("force-push", hang="stream"),
        Reply("No.", [decision("complete")]),
    ]
    with product(script) as pi:
        gate = pi.root / "gate"
        is_open = f"require('node:fs').existsSync({json.dumps(str(gate))})"
        wait = f"while (!{is_open}) await new Promise((go) => setTimeout(go, 20));"
        pi.pi_world.extension("slow", f"pi.on('turn_end', async () => {{ {wait} }});")
        rule(pi, "no-force", "force-push")
        pi.begin()
        pi.wait_for(lambda: pi.data("ttsr_triggered"), "the match")
        pi.ask("abort")
        gate.touch()
        pi.until(state="paused", pauseReason="interrupted")
        assert (len(pi.requests), pi.data("ttsr_injection")) == (1, [])
        pi.ask("resume")
        pi.until(state="completed")
        assert [text[:20] for _, text in conversation(pi.requests[1])].count("<system-interrupt re") == 0
        assert conversation(pi.requests[2])[-1][1].startswith(REMINDER.format("no-force"))
        assert [data["rules"] for data in pi.data("ttsr_injection")] == [["no-force"]]
