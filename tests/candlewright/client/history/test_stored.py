"""Stored rows without a request: no platform runs here, and nothing listens at its addresses."""

import asyncio
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as hyp
from typer.testing import CliRunner

import candlewright as cw
from candlewright.cli.app import app
from candlewright.client.history.stored import Stored
from candlewright.client.records import Range
from candlewright.wire.errors import InvalidRequest
from candlewright_platform.supervisor.ports import free_port
from core.settings import Settings
from iceberg import COVERAGE, OHLC, OHLC_REVISIONS, append, create_tables, load_table, open_catalog
from tests.iceberg.rows import MINUTE, TICKER, candles, minutes_of
from tests.iceberg.test_revisions import published

END = 10 * MINUTE


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Minutes 1, 2 and 5 are stored; the venue has no candle at 3; 2 was corrected at 20 ms, 5 came at 30 ms."""
    relay = {name: f"tcp://127.0.0.1:{free_port()}" for name in ("requests_bind", "notifications_bind")}
    settings = Settings.model_validate({"data_dir": tmp_path_factory.mktemp("lake"), "relay": relay})
    catalog = open_catalog(settings)
    create_tables(catalog)
    append(load_table(catalog, OHLC), candles([1, 2, 5]), {})
    rows = [published([1, 2], 10), published([2], 20, 2.0, revision=1), published([5], 30)]
    append(load_table(catalog, OHLC_REVISIONS), pa.concat_tables(rows), {})
    hole = {"start": 3 * MINUTE // 1_000, "end": 4 * MINUTE // 1_000}
    wrong = {"start": 0, "end": END // 1_000}
    covered = [
        {"request_id": name, "ticker": TICKER, "period_seconds": 60, "status": status, "holes": [where]}
        for name, status, where in (("r", "OK", hole), ("failed", "ERROR", wrong))
    ]
    append(load_table(catalog, COVERAGE), pa.Table.from_pylist(covered, schema=COVERAGE.arrow_schema), {})
    return settings


def ranges(found: object) -> list[tuple[float, float]]:
    return [(start / MINUTE, end / MINUTE) for start, end in found]  # type: ignore[attr-defined]


def test_load_reads_stored_rows_and_distinguishes_holes_from_unstored_ranges(settings: Settings) -> None:
    with cw.connect(settings=settings) as c:
        got = c.load(TICKER, "1m", 0, END)
    assert minutes_of(got.to_arrow()) == [1, 2, 5]
    assert got.to_arrow().column_names == OHLC.arrow_schema.names
    assert ranges(got.holes) == [(3, 4)]
    assert ranges(got.unknown) == [(0, 1), (4, 5), (6, 10)]


def test_the_async_twin_does_the_same(settings: Settings) -> None:
    async def read() -> tuple[Stored, Stored]:
        async with cw.aconnect(settings=settings) as c:
            known = await c.history(TICKER, start=0, end=END, as_of=20_100_000)
            return await c.load(TICKER, 60, 0, END), known

    stored, known = asyncio.run(read())
    assert minutes_of(stored.to_arrow()) == [1, 2, 5]
    assert minutes_of(known.to_arrow()) == [1, 2]


@pytest.mark.parametrize(
    ("at_ms", "closes", "unknown"),
    [(5, [], [(0, 10)]), (15, [1.0, 1.0], [(0, 1), (3, 10)]), (25, [1.0, 2.0], [(0, 1), (3, 10)])],
)
def test_history_as_of_a_time_reports_unknown_ranges_and_no_holes(
    settings: Settings, at_ms: int, closes: list[float], unknown: list[tuple[int, int]]
) -> None:
    with cw.connect(settings=settings) as c:
        got = c.history(TICKER, "1m", start=0, end=END, as_of=at_ms * 1_000_000)
    assert got.to_arrow()["close"].to_pylist() == closes
    assert (got.holes, ranges(got.unknown)) == ((), unknown)


def test_history_as_of_a_time_ends_there_unless_an_end_is_given(settings: Settings) -> None:
    with cw.connect(settings=settings) as c:
        got = c.history(TICKER, start=0, as_of=25_000_000)
        assert minutes_of(got.to_arrow()) == minutes_of(
            c.history(TICKER, start=0, end=25_000_000, as_of=25_000_000).to_arrow()
        )
        with pytest.raises(InvalidRequest, match="a request_id names one range: give its end too"):
            c.history(TICKER, start=0, request_id="r")


def test_a_limit_that_was_reached_leaves_nothing_unknown_after_it(settings: Settings) -> None:
    with cw.connect(settings=settings) as c:
        got = c.load(TICKER, 60, MINUTE, END, limit=2)
        assert (minutes_of(got.to_arrow()), got.unknown, got.holes) == ([1, 2], (), ())
        assert ranges(c.load(TICKER, 60, MINUTE, END, limit=9).unknown) == [(4, 5), (6, 10)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ticker": "BTCUSDT"},
        {"start": END},
        {"limit": 0},
        {"refresh": True},
        {"as_of": "yesterday"},
        {"as_of": 2**62},
    ],
)
def test_ranges_that_can_have_no_rows_are_refused(settings: Settings, wrong: dict[str, object]) -> None:
    asked = {"ticker": TICKER, "start": 0, "end": END, "as_of": 1, **wrong}
    with cw.connect(settings=settings) as c, pytest.raises(InvalidRequest):
        c.history(**asked)  # type: ignore[call-overload]


@given(hyp.sets(hyp.integers(0, 20)), hyp.sets(hyp.integers(0, 20)), hyp.integers(0, 10), hyp.integers(11, 20))
def test_each_minute_is_stored_or_a_hole_or_unknown(known: set[int], empty: set[int], start: int, end: int) -> None:
    wanted = Range(TICKER, 60, start * MINUTE + 1, end * MINUTE + 1)
    asked = set(range(start + 1, end + 1))
    found = Stored.of(
        candles(sorted(known & asked)), wanted, [(minute * MINUTE, (minute + 1) * MINUTE) for minute in empty]
    )

    def minutes(spans: object) -> set[int]:
        return {m for first, last in ranges(spans) for m in range(round(first), round(last))}

    assert minutes(found.holes) == (asked - known) & empty
    assert minutes(found.unknown) == asked - known - empty
    assert all(a[1] < b[0] for a, b in zip(found.unknown, found.unknown[1:], strict=False))


# ---- the command line
def run(settings: Settings, command: str, *more: str) -> tuple[int, str, str]:
    arguments = [command, TICKER, "--start", "1970-01-01T00:00", "--end", "1970-01-01T00:10", *more]
    result = CliRunner().invoke(app, [*arguments, "--data-dir", str(settings.data_dir)])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_load_needs_no_platform(settings: Settings, tmp_path: Path) -> None:
    code, out, err = run(settings, "load", "--output", "csv")
    assert (code, len(out.splitlines())) == (0, 4)
    assert "not stored: from 1970-01-01T00:04:00Z until 1970-01-01T00:05:00Z" in err
    code, out, err = run(settings, "load")
    assert "3 candles" in out
    assert "no candles at the venue from 1970-01-01T00:03:00Z" in err
    file = tmp_path / "rows.parquet"
    assert run(settings, "load", "--output", "parquet", "--file", str(file))[0] == 0
    assert file.stat().st_size


def test_the_command_history_as_of_names_unknown_ranges(settings: Settings) -> None:
    code, out, err = run(settings, "history", "--as-of", "1970-01-01T00:00:00.025", "--output", "json")
    assert (code, [json.loads(line)["close"] for line in out.splitlines()]) == (0, [1.0, 2.0])
    assert "not known at 1970-01-01T00:00:00.025Z: from 1970-01-01T00:03:00Z" in err
    assert run(settings, "history", "--as-of", "tomorrow")[0] == 2
    assert run(settings, "history", "--as-of", "1970-01-01", "--refresh")[0] == 2
