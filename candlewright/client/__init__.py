"""The Python client: `connect()` and its asyncio twin `aconnect()`.

import candlewright as cw

with cw.connect() as c:
    t = c.history("BTC/USDT.BINANCE", period="1m", start="2024-01-01", end="2024-01-02")
    print(t.to_pandas())
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from candlewright.client.aio import AsyncClient
from candlewright.client.connection import Connection
from candlewright.client.errors import (
    GapError,
    InvalidRequest,
    InvalidTrigger,
    PlatformRefused,
    PlatformUnreachable,
    RequestFailed,
    RequestNotFound,
    RequestTimedOut,
    RowsUnavailable,
    TickerNotFound,
    TriggerNotFound,
    TriggerSuspended,
    ViewNotFound,
)
from candlewright.client.history.histories import Histories, TickersFailed
from candlewright.client.history.history import Candles, History
from candlewright.client.history.rows import Rows
from candlewright.client.history.spark_connect import SparkRows
from candlewright.client.history.stored import Stored
from candlewright.client.live.items import Bar, Tick
from candlewright.client.live.realtime import AsyncRealtime, Realtime
from candlewright.client.live.streams import AsyncStream, Stream
from candlewright.client.notebook.bar import ProgressBar
from candlewright.client.records import (
    Market,
    Notification,
    Outcome,
    RegisteredView,
    RequestState,
    Snapshot,
    Submission,
    TriggerInfo,
    Venue,
    ViewInfo,
)
from candlewright.client.sync import Client
from candlewright.client.triggers.trigger_events import Events, TriggerEvent
from candlewright.client.triggers.triggers import AsyncTrigger, Trigger
from candlewright.extensions import extension
from candlewright.settings import ClientConfig, load_client_config

__all__ = [
    "AsyncClient",
    "AsyncRealtime",
    "AsyncStream",
    "AsyncTrigger",
    "Bar",
    "Candles",
    "Client",
    "Events",
    "GapError",
    "Histories",
    "History",
    "InvalidRequest",
    "InvalidTrigger",
    "Market",
    "Notification",
    "Outcome",
    "PlatformRefused",
    "PlatformUnreachable",
    "ProgressBar",
    "Realtime",
    "RegisteredView",
    "RequestFailed",
    "RequestNotFound",
    "RequestState",
    "RequestTimedOut",
    "RowsUnavailable",
    "Snapshot",
    "Stored",
    "Stream",
    "Submission",
    "Tick",
    "TickerNotFound",
    "TickersFailed",
    "Trigger",
    "TriggerEvent",
    "TriggerInfo",
    "TriggerNotFound",
    "TriggerSuspended",
    "Venue",
    "ViewInfo",
    "ViewNotFound",
    "aconnect",
    "connect",
]


def connect(
    requests: str | Sequence[tuple[str, str]] | None = None,
    notifications: str | None = None,
    timeout: float = 10.0,
    *,
    client_id: str | None = None,
    data_dir: str | PathLike[str] | None = None,
    spark: str | None = None,
    settings: ClientConfig | None = None,
    rows: Rows | None = None,
    key: str | PathLike[str] | None = None,
) -> Client:
    """A blocking client; use it in a `with` statement.

    `requests`, `notifications`: the relay's addresses (`tcp://host:port`). For several relays, `requests` is a list of
    such pairs: the client uses one of them, and switches when that one is down or has lost the bus. `timeout`: seconds
    to wait for one answer, resends included. `client_id`: a fresh one by default; finals of its requests are kept for
    it. Rows come through Spark Connect if `spark` is given (`sc://host:port`; needs the extra `spark-connect`), from
    the tables in `data_dir` if they exist and the platform is installed, else from the relay. `key`: the file of
    `candlewright keys new`, if the platform has keys on; ids that the client makes then begin with its name. Missing
    arguments come from the settings (environment, `candlewright.toml`, defaults).
    """
    made = _connection(
        requests,
        notifications,
        timeout,
        client_id=client_id,
        data_dir=data_dir,
        spark=spark,
        settings=settings,
        rows=rows,
        key=key,
    )
    return Client(made)


def aconnect(
    requests: str | Sequence[tuple[str, str]] | None = None,
    notifications: str | None = None,
    timeout: float = 10.0,
    *,
    client_id: str | None = None,
    data_dir: str | PathLike[str] | None = None,
    spark: str | None = None,
    settings: ClientConfig | None = None,
    rows: Rows | None = None,
    key: str | PathLike[str] | None = None,
) -> AsyncClient:
    """The asyncio twin of `connect()`: `async with cw.aconnect() as c`, or `c = await cw.aconnect()`."""
    made = _connection(
        requests,
        notifications,
        timeout,
        client_id=client_id,
        data_dir=data_dir,
        spark=spark,
        settings=settings,
        rows=rows,
        key=key,
    )
    return AsyncClient(made)


def _connection(
    requests: str | Sequence[tuple[str, str]] | None,
    notifications: str | None,
    timeout: float,
    *,
    client_id: str | None,
    data_dir: str | PathLike[str] | None,
    spark: str | None,
    settings: ClientConfig | None,
    rows: Rows | None,
    key: str | PathLike[str] | None,
) -> Connection:
    if settings is None:
        overrides: dict[str, object] = {}
        if data_dir is not None:
            overrides["data_dir"] = data_dir
        if spark is not None:
            overrides["spark"] = {"connect_bind": spark.removeprefix("sc://")}
        settings = load_config(overrides=overrides)
    if rows is None and spark is not None:
        rows = SparkRows(settings.spark)
    return Connection(
        settings,
        requests=requests,
        notifications=notifications,
        timeout=timeout,
        client_id=client_id,
        rows=rows,
        key=key,
    )


def load_config(file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> ClientConfig:
    """The settings of a client; if the platform is installed, all settings, so that each mistyped key is an error."""
    load = extension("settings") or load_client_config
    config: ClientConfig = load(file, overrides)
    return config
