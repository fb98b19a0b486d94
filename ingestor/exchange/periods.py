"""The periods that an exchange offers, from ccxt's table `timeframes`."""

from collections.abc import Mapping
from typing import Any

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_UNITS_OF_VALUES = (1, 60, 1_000)


def native_periods(timeframes: Mapping[str, Any] | None) -> dict[int, str]:
    """Seconds -> ccxt's name of the timeframe.

    Omits calendar months, whose length varies, and names whose value means another length (for one exchange's `2w`,
    ccxt requests 21600 minutes, which are 15 days).
    """
    periods: dict[int, str] = {}
    for name, value in (timeframes or {}).items():
        number, unit = name[:-1], name[-1:]
        if not number.isdigit() or unit not in _SECONDS:
            continue
        seconds = int(number) * _SECONDS[unit]
        if seconds and _agrees(value, seconds):
            periods.setdefault(seconds, name)
    return periods


def _agrees(value: Any, seconds: int) -> bool:
    text = str(value)
    if not text.isdigit():
        return True
    return any(int(text) * unit == seconds for unit in _UNITS_OF_VALUES) or int(text) == seconds * 1_000
