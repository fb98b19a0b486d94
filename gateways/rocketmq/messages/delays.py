"""How long a message waits: by its level, after a failure, and until a sender is asked about it again. Pure."""

from collections.abc import Sequence

#: Delays of delay_level 1, 2, ...
DELAY_LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)


def nack_delay(delays: Sequence[float], attempt: int) -> float:
    """Seconds until the delivery after `attempt` (from 1); the last delay applies to all later ones."""
    return delays[min(max(attempt, 1), len(delays)) - 1] if delays else 0.0


def check_delay(base_seconds: float, asked: int) -> float:
    """Seconds until a sender queried `asked` times is queried again: doubling, up to ten times the base."""
    return min(base_seconds * 2.0 ** min(asked, 4), base_seconds * 10)
