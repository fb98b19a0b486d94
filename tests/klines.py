"""The candles that an exchange itself returns."""

import json
import urllib.parse
import urllib.request
from typing import Any


def klines(url: str, symbol: str, *, start_ms: int, end_ms: int, interval: str = "1m") -> list[list[Any]]:
    """The rows of [start, end), page by page, from BINANCE's REST interface at `url`."""
    rows: list[list[Any]] = []
    while start_ms < end_ms:
        query = urllib.parse.urlencode(
            {"symbol": symbol, "interval": interval, "startTime": start_ms, "endTime": end_ms - 1, "limit": 1000}
        )
        with urllib.request.urlopen(f"{url}/api/v3/klines?{query}", timeout=30) as answer:
            page = json.load(answer)
        if not page:
            break
        rows += page
        start_ms = page[-1][6] + 1
    return rows
