"""The options that make a policy: every fault told at once, nothing adjusted."""

from __future__ import annotations

from typing import Any

import pytest

from loopsup.cli.policy_options import Faults, as_policy, changes, with_defaults
from loopsup.core.model import Auto, Fixed, Policy
from loopsup.errors import UsageError

NOTHING: dict[str, Any] = {
    "every": None,
    "min_delay": None,
    "max_delay": None,
    "for_": None,
    "max_iterations": None,
}


def test_only_what_was_given_is_sent() -> None:
    faults = Faults()
    given = changes(faults, **{**NOTHING, "every": "1h30m", "max_iterations": "7"})
    assert (given, bool(faults)) == ({"rhythm": 5_400_000, "maxIterations": 7}, False)


def test_every_option_has_its_key() -> None:
    faults = Faults()
    given = changes(
        faults, every="auto", min_delay="1s", max_delay="2m", for_="2d", max_iterations="1", misfire="skip"
    )
    assert given == {
        "rhythm": "auto",
        "minDelayMs": 1000,
        "maxDelayMs": 120_000,
        "forMs": 172_800_000,
        "maxIterations": 1,
        "misfire": "skip",
    }


def test_the_defaults_are_those_of_the_product() -> None:
    wire = with_defaults({"rhythm": 600_000})
    assert as_policy(wire) == Policy(Fixed(600_000), 60_000, 86_400_000, 86_400_000, 50)
    assert as_policy({**wire, "rhythm": "auto"}).rhythm == Auto()


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "abc", "", "١", "1e3", " 1", "10000000000", "9" * 5000])
def test_a_count_is_a_whole_number_of_one_or_more(text: str) -> None:
    """Case 5."""
    faults = Faults()
    assert faults.count("--max-iterations", text) is None
    with pytest.raises(UsageError, match=r"^--max-iterations: .* is not a whole number"):
        faults.refuse()


@pytest.mark.parametrize("text", ["10", "10 m", "-5m", "0m", "1h60x", "١٠m", "1e3s", "9999999999d", "", "5m5m"])
def test_a_malformed_duration_names_its_option(text: str) -> None:
    """Case 9."""
    faults = Faults()
    assert changes(faults, **{**NOTHING, "for_": text}) == {}
    with pytest.raises(UsageError, match=r"^--for: "):
        faults.refuse()


def test_all_faults_are_told_at_once() -> None:
    """D-02."""
    faults = Faults()
    changes(faults, every="10", min_delay="x", max_delay="0s", for_="unlimited", max_iterations="0")
    with pytest.raises(UsageError) as caught:
        faults.refuse()
    for option in ("--every: ", "--min-delay: ", "--max-delay: ", "--for: ", "--max-iterations: "):
        assert option in caught.value.message
