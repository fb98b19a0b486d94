"""The manifest as a document: JSON in a canonical form, so that any changed byte is detected."""

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from candlewright.wire.errors import CandlewrightError

#: The largest manifest that is read.
MOST_BYTES = 256 * 2**20

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ManifestFault(CandlewrightError):
    """The manifest itself cannot be trusted, so nothing else is checked."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Hole(_Part):
    """Missing candles in [start, end), ns. `reason`: the venue has none (as a request found), or none is stored."""

    start: int
    end: int
    candles: int
    reason: Literal["venue", "not_stored"]


class Gap(_Part):
    """Trades that a live stream missed, and the reason."""

    from_trade_id: str | None
    to_trade_id: str | None
    start: int
    end: int
    missing: int | None
    reason: str | None


class Partition(_Part):
    """Rows of one month (candles) or day (trades), and the hash of their values."""

    name: str
    rows: int
    sha256: Digest


class FromTrades(_Part):
    """The comparison of candles with bars made from the data set's trades. `compared`, `differing`: numbers of candles;
    `opens`: the open times (ns) of the first differing ones.
    """

    compared: int
    differing: int
    opens: list[int]


class File(_Part):
    """One Parquet file. `period_seconds` 0 means trades; `first`, `last`: open times, or times of trades, in ns."""

    path: str
    bytes: int
    sha256: Digest
    ticker: str
    period_seconds: int
    rows: int
    first: int
    last: int
    sources: dict[str, int]
    incomplete: int
    partitions: list[Partition]
    holes: list[Hole]
    gaps: list[Gap]
    from_trades: FromTrades | None

    @property
    def is_trades(self) -> bool:
        return self.period_seconds == 0


class Body(_Part):
    """The signed part of a manifest. `origin`: whether the data comes from exchanges or from the sandbox."""

    format: Literal["candlewright-manifest/1"]
    made_at: int
    version: str
    origin: str
    root: Digest
    files: list[File]

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
