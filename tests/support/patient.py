"""An adapter of a test's own: a real agent whose tool calls wait half a minute for their check.

The product gives it a quarter of a second. A call that was not checked in time does not run either, but then the
response goes on, and on a busy machine a test of what a rule does would see that instead.
"""

from __future__ import annotations

import os

from tests.support.product import Product

MODULE = """
from loopsup_{agent}.adapter import {title}Adapter
from loopsup_{agent}.agent import {title}Agent

class Patient({title}Adapter):
    name = "patient-{agent}"

    def agent(self, launch, events):
        return {title}Agent(launch, events, hold_s=30.0)
"""


def patient(it: Product) -> None:
    """What is begun from now on is such an agent."""
    place = it.root / "plugins"
    meta = place / "loopsup_patient-1.0.dist-info"
    meta.mkdir(parents=True)
    (place / "loopsup_patient.py").write_text(MODULE.format(agent=it.agent, title=it.agent.title()))
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: loopsup-patient\nVersion: 1.0\n")
    it.agent = f"patient-{it.agent}"
    (meta / "entry_points.txt").write_text(f"[loopsup.adapters]\n{it.agent} = loopsup_patient:Patient\n")
    known = it.env.get("PYTHONPATH")
    it.env["PYTHONPATH"] = os.pathsep.join([str(place), known] if known else [str(place)])
