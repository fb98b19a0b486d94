"""Reads a data folder as LEAN does, by the rules of its documentation and without the writer's code.

`Data/crypto/readme.md` of QuantConnect's LEAN names the files and their columns. The rest is what its reader does:
it derives the path from the symbol, reads the only entry of the zip file, adds milliseconds to the file's day, and
collects the digits of a number in 64 bits.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zipfile import ZipFile

Bar = tuple[datetime, Decimal, Decimal, Decimal, Decimal, Decimal]


def read_days(folder: Path, market: str, symbol: str, *, resolution: str, days: list[date]) -> Iterator[Bar]:
    """Resolutions `second` and `minute`: a file each day."""
    for day in days:
        name = f"{day:%Y%m%d}"
        file = folder / "crypto" / market / resolution / symbol / f"{name}_trade.zip"
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        for time, *values in _rows(file, f"{name}_{symbol}_{resolution}_trade.csv"):
            assert time.isdigit()
            assert int(time) < 86_400_000
            yield midnight + timedelta(milliseconds=int(time)), *_decimals(values)


def read_all(folder: Path, market: str, symbol: str, *, resolution: str) -> Iterator[Bar]:
    """Resolutions `hour` and `daily`: all bars in one file."""
    for time, *values in _rows(folder / "crypto" / market / resolution / f"{symbol}_trade.zip", f"{symbol}.csv"):
        yield datetime.strptime(time, "%Y%m%d %H:%M").replace(tzinfo=UTC), *_decimals(values)


def _rows(file: Path, entry: str) -> list[list[str]]:
    with ZipFile(file) as archive:
        assert archive.namelist() == [entry]
        text = archive.read(entry).decode("ascii")
    assert '"' not in text
    return [line.split(",") for line in text.splitlines()]


def _decimals(values: list[str]) -> tuple[Decimal, Decimal, Decimal, Decimal, Decimal]:
    opened, high, low, close, volume = map(read_decimal, values)
    return opened, high, low, close, volume


def read_decimal(text: str) -> Decimal:
    """Every character but the point counts as a digit, and an overflow of the sum goes unnoticed."""
    digits = places = 0
    has_point = False
    for each in text.removeprefix("-"):
        if each == ".":
            has_point, places = True, 0
        else:
            digits = (digits * 10 + ord(each) - ord("0")) % 2**64
            places += 1
    places = places if has_point else 0
    if places > 28:
        raise ValueError(f"a decimal has at most 28 places: {text}")
    return Decimal(digits).scaleb(-places).copy_sign(Decimal("-1" if text.startswith("-") else 1))
