"""Translates ccxt's exceptions to the platform's, and those to the failure codes of the broker."""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime

import aiohttp

from candlewright.wire.errors import (
    BadReply,
    BusError,
    CandlewrightError,
    DepthExceeded,
    ExchangeError,
    NotOffered,
    RateLimited,
    Unavailable,
    UnknownTicker,
)
from core.failures import Failure, FailureCode
from ingestor.exchange.ccxt_classes import errors as ccxt
from ingestor.venues.limits import Limits

#: Pauses (s) if an exchange says "stop" without saying for how long.
DEFAULT_PAUSE_SECONDS = 5.0
BAN_PAUSE_SECONDS = 120.0

_BANNED_UNTIL = re.compile(r"banned until (\d{13})")
_UNKNOWN_SYMBOL = re.compile(
    r"unknown asset pair|invalid symbol|symbol invalid|not supported symbols|product_?id|invalid product"
    r"|instrument id.{0,40}exist|symbol.{0,20}(not exist|not found|is invalid)",
    re.IGNORECASE,
)


class UnknownFailure(Unavailable):
    """The exchange refused with an error that ccxt does not know; a few retries are worthwhile."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The status and headers (names in lower case) of one HTTP reply."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


def translate(error: Exception, limits: Limits, reply: Reply | None) -> Exception:
    """The platform's error for an exception of ccxt. `reply`: the HTTP reply that caused it, if any."""
    text = _brief(error)
    status = reply.status if reply is not None else 0
    if isinstance(error, CandlewrightError):
        return error
    if isinstance(error, ccxt.ExchangeClosedByUser):
        return ExchangeError(text)
    if _is_rate_limit(error, limits, status):
        return RateLimited(text, retry_at(text, limits, reply))
    if isinstance(error, ccxt.BadSymbol) or (isinstance(error, ccxt.ExchangeError) and _UNKNOWN_SYMBOL.search(text)):
        return UnknownTicker(text)
    if status in (403, 404, 451):
        return ExchangeError(text)
    if isinstance(error, ccxt.NotSupported):
        return NotOffered(text)
    if isinstance(error, (ccxt.BadResponse, ccxt.NullResponse)) or isinstance(
        error.__cause__, aiohttp.ClientPayloadError
    ):
        return BadReply(text)
    if isinstance(error, ccxt.OperationFailed):
        return UnknownFailure(text) if status in (400, 409) else Unavailable(text)
    if type(error) is ccxt.ExchangeError:
        return UnknownFailure(text)
    if isinstance(error, ccxt.BaseError):
        return ExchangeError(text)
    if isinstance(error, (aiohttp.ClientError, asyncio.TimeoutError, OSError)):
        return Unavailable(text)
    return BadReply(f"a reply that cannot be read: {text}")


def _is_rate_limit(error: Exception, limits: Limits, status: int) -> bool:
    if status in (418, 429) or status in limits.pauses:
        return True
    return isinstance(error, (ccxt.RateLimitExceeded, ccxt.DDoSProtection)) and status < 500


def retry_at(text: str, limits: Limits, reply: Reply | None) -> float:
    """The wall-clock time (s) from which the exchange may be called again: as it stated, else a cautious estimate."""
    stated = stated_end(text, reply)
    if stated is not None:
        return stated
    status = reply.status if reply is not None else 0
    default = BAN_PAUSE_SECONDS if status == 418 else DEFAULT_PAUSE_SECONDS
    return time.time() + limits.pauses.get(status, default)


def stated_end(text: str, reply: Reply | None) -> float | None:
    """The end (wall-clock s) of a pause that the exchange stated: the later of Retry-After and "banned until"."""
    ends = []
    banned = _BANNED_UNTIL.search(text)
    if banned:
        ends.append(int(banned[1]) / 1_000)
    header = reply.headers.get("retry-after", "").strip() if reply is not None else ""
    if header.isdigit():
        ends.append(time.time() + int(header))
    elif header:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return max(ends, default=None)
        ends.append((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return max(ends, default=None)


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


_CODES: tuple[tuple[type[Exception], FailureCode], ...] = (
    (RateLimited, FailureCode.RATE_LIMITED),
    (BadReply, FailureCode.BAD_REPLY),
    (UnknownTicker, FailureCode.UNKNOWN_TICKER),
    (NotOffered, FailureCode.NOT_OFFERED),
    (DepthExceeded, FailureCode.DEPTH),
    (UnknownFailure, FailureCode.UNKNOWN),
    (Unavailable, FailureCode.UNAVAILABLE),
    (ExchangeError, FailureCode.REFUSED),
    (BusError, FailureCode.BUS),
)


def failure_of(error: Exception) -> Failure:
    """The failure that WorkComplete reports for a job that ended with `error`."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Failure(code, str(error))
    return Failure(FailureCode.UNKNOWN, f"{type(error).__name__}: {_brief(error)}")
