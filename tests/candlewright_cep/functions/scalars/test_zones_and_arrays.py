"""AT TIME ZONE compared with zoneinfo, arrays with Python, and quantifiers whose numbers are parameters."""

import random
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from candlewright_cep import ReleaseBuffer, StreamInput, TriggerRejected, TriggerStream, compile_stream, evaluate
from tests.rounds import seeds

#: With daylight saving in both hemispheres, by half an hour, with a change of the standard time, and without any.
ZONES = ["America/New_York", "Europe/London", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "America/St_Johns"]


def _instants(zone: str) -> list[datetime]:
    """Over many years, and every quarter of an hour around the changes of two of them."""
    chance = random.Random(zone)
    found = [
        datetime(1971, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(80 * 365 * 86_400)) for _ in range(300)
    ]
    for year in (2011, 2024):
        day = datetime(year, 1, 1, tzinfo=UTC)
        while day.year == year:
            if (
                day.astimezone(ZoneInfo(zone)).utcoffset()
                != (day + timedelta(days=1)).astimezone(ZoneInfo(zone)).utcoffset()
            ):
                found += [day + timedelta(minutes=15 * step, seconds=step % 3 - 1) for step in range(100)]
            day += timedelta(days=1)
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_the_wall_clock_of_an_instant(zone: str) -> None:
    given = _instants(zone)
    table = pa.table({"ts": pa.array(given, pa.timestamp("ns", "UTC"))})
    sql = f"SELECT ts AT TIME ZONE '{zone}' AS clock, EXTRACT(HOUR FROM ts AT TIME ZONE :zone) AS hour FROM ticks"
    found = evaluate(sql, table, {"zone": zone.lower()})
    expected = [moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for moment in given]
    assert found.schema.field("clock").type == pa.timestamp("ns")
    assert [moment.to_pydatetime() for moment in found.column("clock").to_pylist()] == expected
    assert found.column("hour").to_pylist() == [moment.hour for moment in expected]


@pytest.mark.parametrize("zone", ZONES)
def test_the_instant_of_a_wall_clock(zone: str) -> None:
    """An ambiguous time is the later instant; a skipped time uses the offset from before the change."""
    clocks = [moment.replace(tzinfo=None) for moment in _instants(zone)]
    clocks += [moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for moment in _instants(zone)]
    table = pa.table({"clock": pa.array(clocks, pa.timestamp("us"))})
    found = evaluate(f"SELECT clock AT TIME ZONE '{zone}' AS ts FROM ticks", table).column("ts").to_pylist()

    def expected(clock: datetime) -> datetime:
        first, second = (clock.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1))
        exists = first.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == clock
        return max(first, second) if exists else first

    assert [moment.astimezone(UTC) for moment in found] == [expected(clock) for clock in clocks]


def test_days_of_a_place_group_rows() -> None:
    times = [datetime(2024, 3, 9, 20, tzinfo=UTC) + timedelta(hours=hour) for hour in range(60)]
    table = pa.table({"ts": pa.array(times, pa.timestamp("ns", "UTC"))})
    sql = (
        "SELECT CAST(ts AT TIME ZONE 'America/New_York' AS DATE) AS day, COUNT(*) AS n FROM ticks GROUP BY 1 ORDER BY 1"
    )
    counts = [row["n"] for row in evaluate(sql, table).to_pylist()]
    assert counts == [9, 23, 24, 4]  # the night of the change has 23 hours


def test_null_times_stay_null() -> None:
    table = pa.table({"ts": pa.array([None, 0], pa.timestamp("ns", "UTC"))})
    found = evaluate("SELECT ts AT TIME ZONE 'Asia/Tokyo' AS t FROM ticks", table).column("t").to_pylist()
    assert [moment and moment.to_pydatetime() for moment in found] == [None, datetime(1970, 1, 1, 9)]


TRADES = pa.table(
    {
        "ticker": ["A"] * 4 + ["B"] * 2,
        "ts": pa.array(range(6)).cast(pa.timestamp("ns", "UTC")),
        "price": pa.array([3.0, 2.0, None, 1.5, None, None]),
        "side": ["buy", None, "sell", "buy", None, None],
    }
)


def test_arrays_have_a_text_a_size_and_places() -> None:
    sql = """
        SELECT ticker, ARRAY_JOIN(ARRAY_AGG(price), ', ') AS text, ARRAY_JOIN(ARRAY_AGG(side), '|', '-') AS sides,
               CARDINALITY(ARRAY_AGG(price)) AS size, ARRAY_AGG(price)[2] AS second, ARRAY_AGG(price)[3] AS missing,
               ARRAY_AGG(side)[9] AS outside, ELEMENT_AT(ARRAY_AGG(price), -1) AS last, ARRAY_AGG(price)[0] AS none
        FROM ticks GROUP BY ticker ORDER BY ticker"""
    empty = {"second": None, "missing": None, "outside": None, "last": None, "none": None}
    assert evaluate(sql, TRADES).to_pylist() == [
        {"ticker": "A", "text": "3.0, 2.0, 1.5", "sides": "buy|-|sell|buy", "size": 4}
        | empty
        | {"second": 2.0, "last": 1.5},
        {"ticker": "B", "text": "", "sides": "-|-", "size": 2} | empty,
    ]


PATTERN = """
    SELECT * FROM ticks MATCH_RECOGNIZE (
      PARTITION BY ticker ORDER BY ts
      MEASURES ARRAY_JOIN(ARRAY_AGG(D.price), '>') AS fall, ARRAY_JOIN(ARRAY_AGG(CLASSIFIER()), '') AS path,
               CARDINALITY(ARRAY_AGG(U.price)) AS rises, ARRAY_AGG(price)[:place] AS second
      PATTERN (S D{:least,} U{1,:most}) DEFINE D AS price < PREV(price), U AS price > PREV(price)
    ) AS m"""


def _walk(seed: int) -> pa.Table:
    chance = random.Random(seed)
    prices = [float(chance.randrange(6)) for _ in range(200)]
    times = pa.array(range(200)).cast(pa.timestamp("ns", "UTC"))
    return pa.table({"ticker": [chance.choice("AB") for _ in prices], "ts": times, "price": prices})


@pytest.mark.parametrize("seed", seeds(3))
def test_arrays_and_quantifiers_by_parameter_in_patterns(seed: int) -> None:
    table, parameters = _walk(seed), {"least": "2", "most": "3", "place": "2"}
    literal = PATTERN.replace(":least", "2").replace(":most", "3").replace(":place", "2")
    found = evaluate(PATTERN, table, parameters).to_pylist()
    assert found == evaluate(literal, table).to_pylist()
    assert len(found) > 3
    for row in found:
        falls, rises = row["path"].count("D"), row["path"].count("U")
        assert row["path"] == "S" + "D" * falls + "U" * rises
        assert 2 <= falls == row["fall"].count(">") + 1
        assert 1 <= rises == row["rises"] <= 3
        assert row["second"] == float(row["fall"].split(">")[0])
    query = compile_stream(PATTERN, {"ticks": StreamInput(table.schema, ("ts",))}, parameters)
    stream, buffer = TriggerStream(query=query), ReleaseBuffer("ts", "ticker")
    streamed: list[dict[str, object]] = []
    for start in range(0, 200, 9):
        streamed += stream.feed(buffer.push(table.slice(start, 9)).rows, buffer.clock).table.to_pylist()
        state = stream.snapshot()
        stream = TriggerStream(query=query)
        stream.restore(state)
    streamed += stream.feed(buffer.close({"A", "B"}), buffer.clock).table.to_pylist()
    assert sorted(streamed, key=repr) == sorted(found, key=repr)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT ts AT TIME ZONE 'America/New_Yorc' FROM ticks", r"1:24: unknown time zone .* mean 'America/New_York'"),
        ("SELECT ts AT TIME ZONE '../../etc/passwd' FROM ticks", "unknown time zone"),
        ("SELECT ts AT TIME ZONE ticker FROM ticks", "1:24: a time zone must be a text"),
        ("SELECT price AT TIME ZONE 'UTC' FROM ticks", "AT TIME ZONE cannot be applied to double"),
        ("SELECT ARRAY_JOIN(price, ',') FROM ticks", r"ARRAY_JOIN has no form for \(double, string\)"),
        ("SELECT price[1] FROM ticks", "ELEMENT_AT has no form"),
        (PATTERN.replace(":least", ":absent"), r"6:\d+: no value for the parameter :absent"),
        (PATTERN.replace(":least", ":word"), "expected a whole number, found 'three'"),
        (PATTERN.replace(":least", ":far"), "allows at most 1000 repetitions"),
    ],
)
def test_impossible_calls_are_refused(sql: str, message: str) -> None:
    parameters = {"least": "2", "most": "3", "place": "1", "word": "three", "far": "100000"}
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, TRADES, parameters)


def test_a_text_past_the_limit_is_null() -> None:
    table = pa.table({"word": ["x" * 4_000] * 3})
    sql = "SELECT ARRAY_JOIN(ARRAY_AGG(word), '') AS text, CARDINALITY(ARRAY_AGG(word)) AS size FROM ticks"
    assert evaluate(sql, table).to_pylist() == [{"text": None, "size": 3}]


# -- windows of a place's days ----------------------------------------------------------------------------------------

DAYS = """
    SELECT ticker, window_start, window_end, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '{hours}' HOUR, '{zone}'))
    GROUP BY ticker, window_start, window_end"""
#: Zones in which midnight itself occurs twice or not at all when the clocks change.
AT_MIDNIGHT = ["America/Havana", "America/Asuncion", "Asia/Beirut"]


def _around_the_changes(zone: str, year: int = 2023) -> list[datetime]:
    """Each hour of the weeks in which the clocks change."""
    found: list[datetime] = []
    day = datetime(year, 1, 1, tzinfo=UTC)
    while day.year == year:
        if (
            day.astimezone(ZoneInfo(zone)).utcoffset()
            != (day + timedelta(days=1)).astimezone(ZoneInfo(zone)).utcoffset()
        ):
            found += [day + timedelta(hours=hour, minutes=30) for hour in range(-72, 96)]
        day += timedelta(days=1)
    return found or [datetime(year, 3, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(60)]


@cache
def _day_begins(day: datetime, hours: int, zone: str) -> datetime:
    """The first instant at which a place's wall clock shows this hour of the day, or a later one."""
    clock = (day + timedelta(hours=hours)).replace(tzinfo=None)
    moment = clock.replace(tzinfo=UTC) - timedelta(hours=26)
    while moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) < clock:
        moment += timedelta(minutes=30)
    return moment


@pytest.mark.parametrize("hours", [0, 17])
@pytest.mark.parametrize("zone", [*ZONES, *AT_MIDNIGHT])
def test_days_of_a_place_are_windows(zone: str, hours: int) -> None:
    times = _around_the_changes(zone)
    tickers = [random.Random(row).choice("AB") for row in range(len(times))]
    table = pa.table({"ticker": tickers, "ts": pa.array(times, pa.timestamp("ns", "UTC"))})
    sql = DAYS.format(zone=zone, hours=hours)
    expected: dict[tuple[str, datetime, datetime], int] = {}
    for ticker, moment in zip(tickers, times, strict=True):
        local = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) - timedelta(hours=hours)
        day = datetime(local.year, local.month, local.day)
        key = (ticker, _day_begins(day, hours, zone), _day_begins(day + timedelta(days=1), hours, zone))
        expected[key] = expected.get(key, 0) + 1
    rows = evaluate(sql, table).to_pylist()
    found = {
        (row["ticker"], row["window_start"].to_pydatetime(), row["window_end"].to_pydatetime()): row["n"]
        for row in rows
    }
    assert found == expected
    _assert_streams(sql, table)
    mean = (
        "SELECT ticker, window_start, AVG(n) OVER (PARTITION BY ticker ORDER BY window_start ROWS 2 PRECEDING) AS m, "
        f"RANK() OVER (PARTITION BY window_end ORDER BY n) AS r FROM ({sql})"
    )
    _assert_streams(mean, table)


def _assert_streams(sql: str, table: pa.Table) -> None:
    """Restarted after each batch, with rows that are late by hours and held for a day."""
    query = compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",))})
    order = sorted(range(table.num_rows), key=lambda row: row + random.Random(row).uniform(0, 5))
    arriving = table.take(pa.array(order))
    stream, buffer = TriggerStream(query=query), ReleaseBuffer("ts", "ticker", 24 * 3600 * 10**9)
    buffer.advance({"A": -1, "B": -1})
    found: list[dict[str, object]] = []
    for start in range(0, table.num_rows, 23):
        found += stream.feed(buffer.push(arriving.slice(start, 23)).rows, buffer.clock).table.to_pylist()
        state = stream.snapshot()
        stream = TriggerStream(query=query)
        stream.restore(state)
    assert buffer.late_rows == 0
    found += stream.feed(buffer.close({"A", "B"}), buffer.clock).table.to_pylist()
    assert sorted(found, key=repr) == sorted(evaluate(sql, table).to_pylist(), key=repr)


def test_the_window_in_group_by_takes_a_zone_too() -> None:
    times = pa.array(_around_the_changes("America/New_York"), pa.timestamp("ns", "UTC"))
    table = pa.table({"ticker": ["A"] * len(times), "ts": times})
    window = "TUMBLE(ts, INTERVAL '1' DAY, INTERVAL '0' HOUR, {})"
    sql = (
        "SELECT ticker, TUMBLE_START(ts, INTERVAL '1' DAY, INTERVAL '0' HOUR, :zone) AS window_start, "
        f"TUMBLE_END(ts, INTERVAL '1' DAY, INTERVAL '0' HOUR, 'America/New_York') AS window_end, COUNT(*) AS n "
        f"FROM ticks GROUP BY ticker, {window.format(':zone')}"
    )
    found = evaluate(sql, table, {"zone": "america/new_york"})
    assert found.to_pylist() == evaluate(DAYS.format(zone="America/New_York", hours=0), table).to_pylist()


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("TUMBLE(ts, INTERVAL '1' HOUR, 'America/New_York')", "windows in a time zone have whole days"),
        ("HOP(ts, INTERVAL '1' DAY, INTERVAL '2' DAY, 'America/New_York')", "HOP takes no time zone"),
        ("TUMBLE(ts, INTERVAL '1' DAY, 'Mars')", "unknown time zone 'Mars'"),
    ],
)
def test_windows_that_a_place_does_not_have_are_refused(window: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(f"SELECT COUNT(*) AS n FROM ticks GROUP BY {window}", TRADES)
