"""Turns a source's payloads into records of the bus."""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from bus import topics
from bus.api import Record
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import ConfigurationError, InvalidRequest
from core.settings_gateways import NumaflowSourceSettings
from gateways.records import MAX_AHEAD_NS, is_visible, record_of
from protobuf import source_superset_pb2 as source

FIELDS = ("ticker", "price", "size", "side", "ts", "trade_id")
_REQUIRED = ("ticker", "price", "size")
_SIDES = {
    "": "UNKNOWN",
    "unknown": "UNKNOWN",
    "buy": "BUY",
    "b": "BUY",
    "bid": "BUY",
    "sell": "SELL",
    "s": "SELL",
    "ask": "SELL",
}
#: `EXCHANGE:SYMBOL`, as in the keys of the platform's own source.
_VENUE_FIRST = re.compile(r"([A-Z][A-Z0-9_]*):([^:]+)")
_NS = 1_000_000_000
#: A number below each bound is in seconds, milliseconds, microseconds; else in nanoseconds. Valid from 1973 on.
_UNITS = ((Decimal(10) ** 11, _NS), (Decimal(10) ** 14, 10**6), (Decimal(10) ** 17, 10**3))
_TIME_LIMIT = 1 << 63
_MAX_REASON = 500

Result = source.ReadResponse.Result


class PayloadMapping:
    """`record` turns a result into a record; `dead_letter` does so for one that does not fit."""

    def __init__(self, name: str, settings: NumaflowSourceSettings, max_ahead_ns: int = MAX_AHEAD_NS) -> None:
        """Raises ConfigurationError, whose message names the setting."""
        self._max_ahead_ns = max_ahead_ns
        self._name = name
        self.topic = settings.topic
        self.dead_letters = settings.dead_letters or f"{name}_dead_letters"
        where = f"ingestor.numaflow.{name}"
        if not is_visible(self.topic) or self.topic == topics.NOTIFICATIONS:
            raise ConfigurationError(f"{where}.topic: {self.topic} is not a writable topic")
        if not is_visible(self.dead_letters) or self.dead_letters in _PLATFORM:
            raise ConfigurationError(f"{where}.dead_letters: {self.dead_letters} must be a topic of your own")
        unknown = sorted(set(settings.mapping) - set(FIELDS))
        if unknown:
            raise ConfigurationError(
                f"{where}.mapping: no such field: {', '.join(unknown)}; there are {', '.join(FIELDS)}"
            )
        if settings.mapping and self.topic != topics.TICKS:
            raise ConfigurationError(f"{where}.mapping: only the topic ticks supports a mapping")
        self._paths = {field: settings.mapping.get(field, field) for field in FIELDS} if settings.mapping else None

    def record(self, result: Result) -> Record:
        """Raises InvalidRequest, whose message says what does not fit."""
        if self._paths is not None:
            value = self._tick(result, self._paths).SerializeToString()
            return record_of(self.topic, value, max_ahead_ns=self._max_ahead_ns)
        headers = {**result.headers, "event_time_ns": str(_event_ns(result))}
        key = ":".join(result.keys).encode() if result.keys else None
        return record_of(self.topic, result.payload, key=key, headers=headers, max_ahead_ns=self._max_ahead_ns)

    def dead_letter(self, result: Result, reason: str) -> Record:
        """The payload unchanged, with its metadata and the reason in the headers."""
        headers = {
            **result.headers,
            "source": self._name,
            "reason": reason[:_MAX_REASON],
            "partition_id": str(result.offset.partition_id),
            "offset_hex": result.offset.offset.hex(),
            "event_time_ns": str(_event_ns(result)),
            "keys": json.dumps(list(result.keys)),
        }
        return Record(result.payload, key=self._name.encode(), headers=headers)

    def _tick(self, result: Result, paths: Mapping[str, str]) -> cw.Tick:
        try:
            # Exact numbers: a float cannot represent a time in nanoseconds.
            fields = json.loads(result.payload, parse_float=Decimal, parse_constant=_refuse)
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise InvalidRequest(f"the payload is not valid JSON: {error}") from error
        if not isinstance(fields, dict):
            raise InvalidRequest("the payload is not a JSON object")
        found: dict[str, Any] = {field: _find(fields, path, result) for field, path in paths.items()}
        for field in _REQUIRED:
            if found[field] is None:
                raise InvalidRequest(f"the {field} is missing: the payload has no {paths[field]}")
        offset, event_ns = result.offset, _event_ns(result)
        is_time = 0 < event_ns < _TIME_LIMIT
        if found["ts"] is None and not is_time:
            raise InvalidRequest(f"the ts is missing, and the event time {event_ns} is not a valid time")
        return cw.Tick(
            ticker=_ticker(found["ticker"]),
            # Derived from the offset, which is the same at each repetition.
            trade_id=_trade_id(found["trade_id"]) or f"{self._name}:{offset.partition_id}:{_text(offset.offset)}",
            timestamp=event_ns if found["ts"] is None else _nanoseconds(found["ts"]),
            price=_number("price", found["price"]),
            size=_number("size", found["size"]),
            side=_side(found["side"]),
            received_at=event_ns if is_time else 0,
        )


_PLATFORM = (topics.TICKS, topics.OHLC, topics.TRIGGER_EVENTS, topics.NOTIFICATIONS)


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not a finite number")


def _find(fields: Mapping[str, Any], path: str, result: Result) -> Any:
    """`=text` is the text itself, `$key` the record's first key; anything else is a field name, with dots if nested."""
    if path.startswith("="):
        return path[1:]
    if path == "$key":
        return result.keys[0] if result.keys else None
    if path in fields:
        return fields[path]
    found: Any = fields
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _ticker(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"the ticker {value!r} is not a string")
    match = _VENUE_FIRST.fullmatch(value)
    return f"{match[2]}.{match[1]}" if match else value


def _trade_id(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InvalidRequest(f"the trade_id {value!r} is neither a string nor an integer")


def _decimal(field: str, value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise InvalidRequest(f"the {field} {value!r} is not a number")
    try:
        number = Decimal(value)
    except InvalidOperation as error:
        raise InvalidRequest(f"the {field} {value!r} is not a number") from error
    if not number.is_finite():
        raise InvalidRequest(f"the {field} {value!r} is not a number")
    return number


def _number(field: str, value: Any) -> float:
    number = float(_decimal(field, value))
    if not math.isfinite(number):
        raise InvalidRequest(f"the {field} {value!r} is too large")
    return number


def _side(value: Any) -> str:
    side = _SIDES.get(value.lower() if isinstance(value, str) else "" if value is None else "?")
    if side is None:
        raise InvalidRequest(f"the side {value!r} is neither buy nor sell")
    return side


def _nanoseconds(value: Any) -> int:
    if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
        return _of_iso(value)
    number = _decimal("ts", value)
    if not 0 < number < _TIME_LIMIT:
        raise InvalidRequest(f"the ts {value!r} is not a valid time")
    scale = next((scale for limit, scale in _UNITS if number < limit), 1)
    return int((number * scale).to_integral_value())


def _event_ns(result: Result) -> int:
    """Accepts any value: a source without an event time may send the year 1, or an invalid time."""
    return int(result.event_time.seconds) * _NS + int(result.event_time.nanos)


def _of_iso(text: str) -> int:
    """Without a zone, the time is UTC. Digits beyond microseconds are kept."""
    fraction = re.search(r"\.(\d+)", text)
    whole = text[: fraction.start()] + text[fraction.end() :] if fraction else text
    try:
        at = datetime.fromisoformat(whole)
    except ValueError as error:
        raise InvalidRequest(f"the ts {text!r} is not a valid time") from error
    seconds = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    digits = fraction[1][:9].ljust(9, "0") if fraction else "0"
    if seconds <= 0:
        raise InvalidRequest(f"the ts {text!r} is not a valid time")
    return seconds * _NS + int(digits)


def _text(offset: bytes) -> str:
    try:
        text = offset.decode()
    except UnicodeDecodeError:
        return offset.hex()
    return text if text.isprintable() else offset.hex()
