"""Is this policy possible? All of it is judged together, before any state is touched (D-02)."""

from __future__ import annotations

from dataclasses import dataclass

from loopsup.core.durations import MAX_MS, show
from loopsup.core.misfire import LATE_MS, Misfire, Within
from loopsup.core.model import Fixed, Policy

MAX_ITERATIONS = 1_000_000  # a million paid iterations is a typing mistake, not a plan


@dataclass(frozen=True, slots=True)
class Checked:
    """`faults`: each one sentence, all of them; with any, nothing may be started or changed."""

    faults: tuple[str, ...]
    warnings: tuple[str, ...]


def check(policy: Policy, after_ms: int | None = None) -> Checked:
    """Faults and warnings of `policy` with the first wake after `after_ms` (None: at once)."""
    return Checked(tuple(_faults(policy, after_ms)), tuple(_warnings(policy, after_ms)))


def _faults(policy: Policy, after_ms: int | None) -> list[str]:
    low, high = policy.min_delay_ms, policy.max_delay_ms
    faults = []
    if min(low, high, policy.for_ms) <= 0:
        faults.append("durations must be positive")
    if max(low, high, policy.for_ms) > MAX_MS:
        faults.append(f"durations must not be longer than {show(MAX_MS)}")
    if low > high:
        faults.append(f"--min-delay {show(low)} is longer than --max-delay {show(high)}")
    match policy.rhythm:
        case Fixed(every) if every < low:
            faults.append(
                f"--every {show(every)} is shorter than --min-delay {show(low)}; give a shorter --min-delay, too"
            )
        case Fixed(every) if every > high:
            faults.append(
                f"--every {show(every)} is longer than --max-delay {show(high)}; give a longer --max-delay, too"
            )
        case _:
            pass
    if not 1 <= policy.max_iterations <= MAX_ITERATIONS:
        faults.append(f"--max-iterations must be a whole number from 1 to {MAX_ITERATIONS}")
    faults += _misfire_faults(policy.misfire)
    if after_ms is not None and after_ms <= 0:
        faults.append("--after must be positive")
    if after_ms is not None and after_ms >= policy.for_ms:
        faults.append(f"--after {show(after_ms)} leaves no time before the deadline (--for {show(policy.for_ms)})")
    return faults


def _misfire_faults(misfire: Misfire) -> list[str]:
    match misfire:
        case Within(late) if late <= LATE_MS:
            return [f"--misfire {show(late)} is too short: what is up to {show(LATE_MS)} late is on time; say skip"]
        case Within(late) if late > MAX_MS:
            return [f"--misfire must not be longer than {show(MAX_MS)}"]
        case _:
            return []


def _warnings(policy: Policy, after_ms: int | None) -> list[str]:
    if after_ms is not None and 2 * after_ms >= policy.for_ms > after_ms:
        return [
            f"--after {show(after_ms)} uses up half or more of the time to the deadline (--for {show(policy.for_ms)})"
        ]
    return []
