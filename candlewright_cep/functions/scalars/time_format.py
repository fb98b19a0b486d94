"""Formats times as text by Java patterns (yyyy-MM-dd HH:mm) and MySQL patterns (%Y-%m-%d %H:%i)."""

import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache

from candlewright_cep.times import UNITS

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EPOCH = dt.date(1970, 1, 1).toordinal()
_JAVA = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_MYSQL = re.compile(r"%(.)|[^%]+", re.DOTALL)


class Moment:
    """The parts of a time given in nanoseconds since the epoch."""

    __slots__ = ("date", "nanosecond", "second_of_day")

    def __init__(self, nanoseconds: int) -> None:
        days, rest = divmod(nanoseconds, UNITS["DAY"])
        self.date = dt.date.fromordinal(_EPOCH + days)
        self.second_of_day, self.nanosecond = divmod(rest, UNITS["SECOND"])

    @property
    def hour(self) -> int:
        return self.second_of_day // 3600

    @property
    def minute(self) -> int:
        return self.second_of_day // 60 % 60

    @property
    def second(self) -> int:
        return self.second_of_day % 60

    @property
    def month_name(self) -> str:
        return _MONTHS[self.date.month - 1]

    @property
    def day_name(self) -> str:
        return _DAYS[self.date.weekday()]

    @property
    def half(self) -> str:
        return "AM" if self.hour < 12 else "PM"

    @property
    def day_of_year(self) -> int:
        return self.date.timetuple().tm_yday


Piece = Callable[[Moment], str]

_NUMBERS: dict[str, Callable[[Moment], int]] = {
    "d": lambda moment: moment.date.day,
    "H": lambda moment: moment.hour,
    "h": lambda moment: (moment.hour + 11) % 12 + 1,
    "m": lambda moment: moment.minute,
    "s": lambda moment: moment.second,
    "D": lambda moment: moment.day_of_year,
    "M": lambda moment: moment.date.month,
}
_MYSQL_NUMBERS = {
    "d": ("d", 2), "e": ("d", 1), "H": ("H", 2), "k": ("H", 1), "h": ("h", 2), "I": ("h", 2), "l": ("h", 1),
    "i": ("m", 2), "s": ("s", 2), "S": ("s", 2), "m": ("M", 2), "c": ("M", 1), "j": ("D", 3),
}  # fmt: skip
_MYSQL_NAMES: dict[str, Piece] = {
    "Y": lambda moment: f"{moment.date.year:04d}",
    "y": lambda moment: f"{moment.date.year % 100:02d}",
    "f": lambda moment: f"{moment.nanosecond // 1000:06d}",
    "p": lambda moment: moment.half,
    "W": lambda moment: moment.day_name,
    "a": lambda moment: moment.day_name[:3],
    "M": lambda moment: moment.month_name,
    "b": lambda moment: moment.month_name[:3],
    "T": lambda moment: f"{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}",
}


def _literal(text: str) -> Piece:
    return lambda _moment: text


def _number(letter: str, width: int) -> Piece:
    read = _NUMBERS[letter]
    return lambda moment: f"{read(moment):0{width}d}"


def _java_piece(letter: str, width: int) -> Piece | None:
    if letter in "yu":
        return _MYSQL_NAMES["y"] if width == 2 else lambda moment: f"{moment.date.year:0{width}d}"
    if letter == "M" and width > 2:
        return (lambda moment: moment.month_name[:3]) if width == 3 else (lambda moment: moment.month_name)
    if letter == "E":
        return (lambda moment: moment.day_name[:3]) if width < 4 else (lambda moment: moment.day_name)
    if letter == "S":
        return lambda moment: f"{moment.nanosecond:09d}"[:width]
    if letter == "a":
        return lambda moment: moment.half
    return _number(letter, width) if letter in _NUMBERS else None


@lru_cache(maxsize=256)
def time_format(pattern: str) -> tuple[Piece, ...] | None:
    """The pieces that write a time, one for each part of the pattern; None for a pattern with unknown letters."""
    found: list[Piece | None] = []
    at = 0
    by_percent = "%" in pattern
    for token in (_MYSQL if by_percent else _JAVA).finditer(pattern):
        if token.start() != at:
            return None
        at = token.end()
        text = token.group()
        if by_percent:
            found.append(_mysql_piece(token.group(1)) if token.group(1) else _literal(text))
        elif text[0] == "'":
            found.append(_literal("'" if text == "''" else token.group(1).replace("''", "'")))
        else:
            found.append(_java_piece(text[0], len(text)) if token.group(2) else _literal(text))
    if at != len(pattern) or len(pattern) > 200:
        return None
    pieces = tuple(piece for piece in found if piece is not None)
    return pieces if len(pieces) == len(found) else None


def _mysql_piece(letter: str) -> Piece | None:
    if letter in _MYSQL_NUMBERS:
        return _number(*_MYSQL_NUMBERS[letter])
    return _literal("%") if letter == "%" else _MYSQL_NAMES.get(letter)


def formatted(nanoseconds: int, pattern: str) -> str:
    moment = Moment(nanoseconds)
    return "".join(piece(moment) for piece in time_format(pattern) or ())
