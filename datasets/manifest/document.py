"""The manifest as a document: JSON in a canonical form, so that any changed byte is detected."""

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import LATEST_NS

#: The largest manifest: over 200,000 partitions.
MOST_BYTES = 32 * 2**20
#: The most candles that are listed as different from their trades.
MOST_OPENS = 1_000
_MOST_PERIOD = 1 << 31

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Nanoseconds = Annotated[int, Field(ge=0, le=LATEST_NS)]
#: Long enough for whatever the tables hold.
Text = Annotated[str, Field(max_length=4_096)]


class ManifestFault(CandlewrightError):
    """The manifest itself cannot be trusted, so nothing else is checked."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Hole(_Part):
    """Missing candles in [start, end), ns. `reason`: the venue has none (as a request found), or none is stored."""

    start: Nanoseconds
    end: Nanoseconds
    candles: Count
    reason: Literal["venue", "not_stored"]


class Gap(_Part):
    """Trades that a live stream missed, and the reason."""

    from_trade_id: Text | None
    to_trade_id: Text | None
    start: Nanoseconds
    end: Nanoseconds
    missing: Count | None
    reason: Text | None


class Partition(_Part):
    """Rows of one month (candles) or day (trades), and the hash of their values."""

    name: Text
    rows: Count
    sha256: Digest


class FromTrades(_Part):
    """The comparison of candles with bars made from the data set's trades. `compared`, `differing`: numbers of candles;
    `opens`: the open times (ns) of the first differing ones.
    """

    compared: Count
    differing: Count
    opens: Annotated[list[Nanoseconds], Field(max_length=MOST_OPENS), FailFast()]


class File(_Part):
    """One Parquet file. `period_seconds` 0 means trades; `first`, `last`: open times, or times of trades, in ns."""

    path: Text
    bytes: Count
    sha256: Digest
    ticker: Text
    period_seconds: Annotated[int, Field(ge=0, lt=_MOST_PERIOD)]
    rows: Count
    first: Nanoseconds
    last: Nanoseconds
    sources: Annotated[dict[Text, Count], Field(max_length=100)]
    incomplete: Count
    partitions: Annotated[list[Partition], FailFast()]
    holes: Annotated[list[Hole], FailFast()]
    gaps: Annotated[list[Gap], FailFast()]
    from_trades: FromTrades | None

    @property
    def is_trades(self) -> bool:
        return self.period_seconds == 0


class Body(_Part):
    """The signed part of a manifest. `origin`: whether the data comes from exchanges or from the sandbox."""

    format: Literal["candlewright-manifest/1"]
    made_at: Nanoseconds
    version: Text
    origin: Text
    root: Digest
    files: Annotated[list[File], FailFast()]

    def encoded(self) -> bytes:
        return _encoded(self)


class Manifest(_Part):
    body: Body
    key: Digest
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]

    def encoded(self) -> bytes:
        return _encoded(self)


def decoded(content: bytes) -> Manifest:
    """Parse a manifest. Raises ManifestFault unless the bytes are exactly those that `encoded` writes."""
    try:
        found = Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ManifestFault(f"this is not a valid manifest: {place + ': ' if place else ''}{first['msg']}") from None
    if found.encoded() != content:
        raise ManifestFault("the manifest's text was changed: it is not in the form in which manifests are written")
    return found


def _encoded(part: BaseModel) -> bytes:
    text = json.dumps(part.model_dump(mode="json"), ensure_ascii=False, indent=1, sort_keys=True)
    return text.encode() + b"\n"
