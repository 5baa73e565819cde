"""What may be started and what an update may make of it (L-24..L-28, D-01, D-02)."""

from __future__ import annotations

import itertools

import pytest

from loopsup.core.limits import DAY, HOUR, MINUTE
from loopsup.core.model import Policy
from loopsup.core.policy import check
from tests.support.script import ms, policy_of

FINE = {
    "defaults": policy_of(),
    "at the minimum": policy_of("1m"),
    "at the maximum": policy_of("24h"),
    "auto": policy_of("auto"),
    "one value range": policy_of("5m", min_delay="5m", max_delay="5m"),
    "every beyond the horizon": policy_of("10m", for_="5m"),
    "one iteration": policy_of(max_iterations=1),
}
FAULTY = {
    "under the minimum": (policy_of("59s"), 1),
    "over the maximum": (policy_of("24h1s"), 1),
    "min above max, auto": (policy_of("auto", min_delay="2h", max_delay="1h"), 1),
    "no iterations": (policy_of(max_iterations=0), 1),
    "negative iterations": (policy_of(max_iterations=-1), 1),
    "no horizon": (policy_of(for_=0), 1),
    "negative horizon": (policy_of(for_=-1), 1),
    "two faults": (policy_of("59s", max_iterations=0), 2),
    "three faults": (policy_of("59s", max_iterations=0, for_=0), 3),
}


@pytest.mark.parametrize("policy", FINE.values(), ids=FINE.keys())
def test_fine(policy: Policy) -> None:
    checked = check(policy, None)
    assert (checked.faults, checked.warnings) == ((), ())


@pytest.mark.parametrize(("policy", "count"), FAULTY.values(), ids=FAULTY.keys())
def test_every_fault_is_listed(policy: Policy, count: int) -> None:
    faults = check(policy, None).faults
    assert len(faults) == count
    assert all(faults)
    assert len(set(faults)) == count


@pytest.mark.parametrize(
    ("after", "faults", "warnings"),
    [
        ("1s", 0, 0),
        ("30s", 0, 0),
        (12 * HOUR - 1, 0, 0),
        ("12h", 0, 1),
        ("13h", 0, 1),
        (24 * HOUR - 1, 0, 1),
        ("24h", 1, 0),
        ("25h", 1, 0),
        (0, 1, 0),
        (-1, 1, 0),
    ],
)
def test_the_first_wait(after: str | int, faults: int, warnings: int) -> None:
    checked = check(policy_of(), ms(after))
    assert (len(checked.faults), len(checked.warnings)) == (faults, warnings)


def test_the_first_wait_is_not_bound_by_the_range() -> None:
    assert check(policy_of("10m", max_delay="1h", for_="30d"), 3 * DAY).faults == ()


def test_only_the_ordered_range_around_every_is_fine() -> None:
    values = (MINUTE, 10 * MINUTE, HOUR)
    for every, low, high in itertools.product(values, repeat=3):
        policy = policy_of(f"{every // 1000}s", min_delay=low, max_delay=high)
        assert (check(policy, None).faults == ()) is (low <= every <= high)
