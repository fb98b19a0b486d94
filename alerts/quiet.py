"""Hours of the day without alerts."""

from dataclasses import dataclass
from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

from core.settings_alerts import hours_of


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `start` to `end` (exclusive) by the clock of `zone`; past midnight if `end` is earlier."""

    start: time
    end: time
    zone: ZoneInfo

    @classmethod
    def of(cls, hours: str, zone: str) -> "QuietHours | None":
        return cls(*hours_of(hours), ZoneInfo(zone)) if hours else None

    def contains(self, at: float) -> bool:
        clock = datetime.fromtimestamp(at, UTC).astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= clock < self.end
        return clock >= self.start or clock < self.end
