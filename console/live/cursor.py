"""The position of a stream over several topics, as opaque text with which a new connection continues the stream."""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import orjson

from candlewright.wire.errors import InvalidRequest

__all__ = ["Cursor", "Delivered"]

_VERSION = 1
#: Finals may be published slightly out of order; within this time they are remembered individually.
_WINDOW_NS = 600 * 1_000_000_000
_MAX_REMEMBERED = 2_000


class Delivered:
    """The finals of an unnumbered topic that a reader has had: up to a time, and those near it by name."""

    def __init__(self, newest_ns: int = 0, names: Sequence[str] = ()) -> None:
        self.newest_ns = newest_ns
        #: Short hashes, oldest first.
        self.names = dict.fromkeys(names)

    def is_new(self, name: str, at_ns: int) -> bool:
        return at_ns > self.newest_ns - _WINDOW_NS and short(name) not in self.names

    def add(self, name: str, at_ns: int) -> None:
        self.newest_ns = max(self.newest_ns, at_ns)
        self.names[short(name)] = None
        if len(self.names) > _MAX_REMEMBERED:
            del self.names[next(iter(self.names))]


def short(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:12]


@dataclass(slots=True)
class Cursor:
    """`numbers`: the next number of each numbered topic; `finals`: for the other topics."""

    numbers: dict[str, int] = field(default_factory=dict)
    finals: dict[str, Delivered] = field(default_factory=dict)

    def text(self) -> str:
        topics = tuple(sorted(self.numbers))
        numbers = tuple(map(self.numbers.__getitem__, topics))
        if not self.finals:
            return _shared_text(topics, numbers)
        finals = [[each.newest_ns, [*each.names]] for _, each in sorted(self.finals.items())]
        return _text([_VERSION, _digest((*topics, *self.finals)), numbers, finals])

    @classmethod
    def parse(cls, text: str, numbered: Sequence[str], finals: Sequence[str]) -> "Cursor":
        """The cursor of a stream over the same topics; raises InvalidRequest."""
        try:
            if len(text) > 1 << 16:
                raise ValueError
            body = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
            version, digest, numbers, *rest = body
            own = rest[0] if rest else []
            is_known = version == _VERSION and len(numbers) == len(numbered) and len(own) == len(finals)
            if not is_known or not all(type(number) is int and 0 < number < 1 << 63 for number in numbers):
                raise ValueError
            delivered = [_delivered(newest, names) for newest, names in own]
        except (ValueError, TypeError, binascii.Error) as error:
            raise InvalidRequest("the cursor does not belong to a stream over these topics") from error
        if digest != _digest((*numbered, *finals)):
            raise InvalidRequest("the cursor belongs to a stream over other topics")
        return cls(dict(zip(sorted(numbered), numbers, strict=True)), dict(zip(sorted(finals), delivered, strict=True)))


def _delivered(newest_ns: object, names: object) -> Delivered:
    """Raises ValueError."""
    if not isinstance(newest_ns, int) or not 0 <= newest_ns < 1 << 63:
        raise ValueError
    if not isinstance(names, list) or len(names) > _MAX_REMEMBERED or not all(isinstance(each, str) for each in names):
        raise ValueError
    return Delivered(newest_ns, names)


@lru_cache(1_024)
def _shared_text(topics: tuple[str, ...], numbers: tuple[int, ...]) -> str:
    """Readers of the same topics get the same messages, and with them the same positions, at about the same time."""
    return _text([_VERSION, _digest(topics), numbers])


def _text(body: Sequence[object]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(body)).rstrip(b"=").decode()


@lru_cache(1_024)
def _digest(topics: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(sorted(topics)).encode()).hexdigest()[:12]


def positions(found: Mapping[str, int]) -> Cursor:
    return Cursor(dict(found))
