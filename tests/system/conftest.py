"""One running platform for all system tests: real processes, embedded Redis, Spark, a sandbox exchange as BINANCE."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import candlewright as cw
from candlewright.settings import PREFIX
from candlewright_platform.supervisor.ports import free_port
from candlewright_platform.supervisor.private import PrivatePlatform
from sandbox import SandboxThread
from tests.klines import klines

#: Starting Spark on a busy machine, with its jars to fetch, is the slowest thing that a test waits for.
START_SECONDS = 600.0
MINUTE_MS = 60_000
SECOND = 1_000_000_000


@dataclass
class System:
    """The platform, its exchange, and what `up` said on stderr."""

    platform: PrivatePlatform
    exchange: SandboxThread
    told: list[str] = field(default_factory=list)

    def connect(self, **options: object) -> cw.Client:
        return cw.connect(settings=self.platform.settings, timeout=20.0, **options)  # type: ignore[arg-type]

    def aconnect(self) -> cw.AsyncClient:
        return cw.aconnect(settings=self.platform.settings, timeout=20.0)

    @property
    def environment(self) -> dict[str, str]:
        """Leads another process's `connect()` to this platform."""
        settings = self.platform.settings
        found = {
            "DATA_DIR": str(settings.data_dir),
            "RELAY__REQUESTS_BIND": settings.relay.requests_bind,
            "RELAY__NOTIFICATIONS_BIND": settings.relay.notifications_bind,
            "CONSOLE__BIND": settings.console.bind,
        }
        return {f"{PREFIX}{name}": value for name, value in found.items()}

    def klines(self, symbol: str, start_ms: int, end_ms: int, *, interval: str = "1m") -> list[list[object]]:
        return klines(self.exchange.url, symbol, start_ms=start_ms, end_ms=end_ms, interval=interval)


@pytest.fixture(scope="package")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with SandboxThread(seed=11, rate_limit=False) as exchange:
        told: list[str] = []
        folder = tmp_path_factory.mktemp("platform")
        numaflow = tmp_path_factory.mktemp("numaflow")
        platform = PrivatePlatform(
            folder,
            ("--exchange-url", f"BINANCE={exchange.url}", "--ingestors", "2"),
            {
                "INGESTOR__VENUES": '["BINANCE"]',
                "INGESTOR__RATE_LIMIT": "false",
                "BROKER__LEASE_SECONDS": "5",
                # A busy machine answers late, and calls made then would be counted.
                "BROKER__PROOF_SECONDS": "60",
                "GATEWAYS__KAPACITOR__UDF": json.dumps({"sums": _sums(folder)}),
                "GATEWAYS__KAFKA_PIXY__ENABLED": "true",
                "GATEWAYS__KAFKA_PIXY__BIND": f"127.0.0.1:{free_port()}",
                "GATEWAYS__NUMAFLOW__ENABLED": "true",
                "GATEWAYS__NUMAFLOW__SOCKET": str(numaflow / "own.sock"),
                "GATEWAYS__NUMAFLOW__SERVER_INFO": str(numaflow / "own" / "sourcer-server-info"),
                "GATEWAYS__NUMAFLOW__TOPIC": "ohlc",
                # Read by the test that starts it.
                "INGESTOR__NUMAFLOW__FOREIGN__SOCKET": str(numaflow / "other.sock"),
                "INGESTOR__NUMAFLOW__FOREIGN__SERVER_INFO": str(numaflow / "sourcer-server-info"),
                "INGESTOR__NUMAFLOW__FOREIGN__TOPIC": "ticks",
                "INGESTOR__NUMAFLOW__FOREIGN__MAPPING": (
                    '{"ticker": "s", "price": "p", "size": "q", "ts": "t", "trade_id": "n"}'
                ),
            },
            hear=told.append,
        )
        try:
            platform.start(START_SECONDS)
            yield System(platform, exchange, told)
        finally:
            code = platform.stop()
        assert code == 0, told


@pytest.fixture
def client(system: System) -> Iterator[cw.Client]:
    with system.connect() as c:
        yield c


def _sums(folder: Path) -> dict[str, object]:
    """An external function, for triggers: sums the field x by group. Its processes have `folder` among their
    arguments.
    """
    root = Path(__file__).resolve().parents[2]
    script = root / "tests" / "triggers" / "udf" / "function.py"
    arguments = [str(script), "", str(folder)]
    return {"prog": sys.executable, "args": arguments, "env": {"PYTHONPATH": str(root)}, "timeout_seconds": 30}


Rows = list[tuple[object, ...]]


@pytest.fixture(scope="package")
def exchange_rows(system: System) -> Callable[[str, int, int], Rows]:
    """(open time in ms, open, high, low, close, volume, quote volume, trades) as the exchange has them."""

    def read(symbol: str, start_ms: int, end_ms: int) -> Rows:
        return [
            (row[0], *(float(str(cell)) for cell in row[1:6]), float(str(row[7])), row[8])
            for row in system.klines(symbol, start_ms, end_ms)
        ]

    return read


@pytest.fixture(scope="package")
def data_dir(system: System) -> Path:
    return system.platform.data_dir


@pytest.fixture
def input_file(tmp_path: Path) -> Path:
    """Parquet: trades of three tickers over some twenty minutes, as the benchmarks of bars and patterns take them."""
    random = np.random.default_rng(3)
    rows = 30_000
    time_ms = 1_704_067_200_000 + np.cumsum(random.integers(1, 72, rows))
    ticks = {
        "ts_ns": time_ms * 1_000_000,
        "symbol": np.array(["A/USDT.SIM", "B/USDT.SIM", "C/USDT.SIM"])[random.integers(0, 3, rows)],
        "price": np.round(100 + np.cumsum(random.integers(-5, 6, rows)) / 100, 2),
        "size": np.round(random.exponential(2.0, rows) + 0.001, 3),
        "side": np.array(["buy", "sell"])[random.integers(0, 2, rows)],
    }
    file = tmp_path / "ticks.parquet"
    pq.write_table(pa.table(ticks), file)
    return file
