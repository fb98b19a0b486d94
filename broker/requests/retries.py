"""How long a piece waits before it is retried. The state bounds the number of retries, and deadlines the total time."""

from core.failures import Failure, FailureCode

_FIRST_SECONDS = 1.0
_MOST_SECONDS = 60.0
_LIMITED_FIRST_SECONDS = 5.0


def delay_after(failure: Failure, attempts: int, waits: int, *, moves_on: bool) -> float:
    """Seconds to wait after `attempts` counted and `waits` uncounted failures.

    `moves_on`: the piece goes to another ingestor, so waiting would not help.
    """
    if failure.code is FailureCode.RATE_LIMITED:
        return min(_MOST_SECONDS, _LIMITED_FIRST_SECONDS * 2.0 ** min(waits - 1, 8))
    if moves_on:
        return 0.0
    if failure.code is FailureCode.SHUTDOWN:
        # An ingestor that keeps failing must not cause a tight loop.
        return 0.0 if waits < 3 else _FIRST_SECONDS
    return min(_MOST_SECONDS, _FIRST_SECONDS * 2.0 ** min(attempts - 1, 8))
