"""Units of time, defaults and limits: numbers only, cheap to import."""

from __future__ import annotations

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

DEFAULT_FOR_MS = 24 * HOUR
DEFAULT_MAX_ITERATIONS = 50
DEFAULT_MIN_DELAY_MS = MINUTE
DEFAULT_MAX_DELAY_MS = 24 * HOUR

PROTOCOL_RETRY_CEILING = 5  # reminders a loop may ever send: 50 iterations cost at most 55 prompts
RETRY_DELAYS_MS = (1000, 2000, 4000, 8000, 16000)  # a start or hand-over that provably failed
BUSY_RECHECK_MS = 1000  # an agent that said "busy" is asked again after this, without spending a try
PARKING_FROM_MS = 10 * MINUTE  # an agent and its conversation are up again in seconds: below this it is not worth it
