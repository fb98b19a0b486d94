# ruff: noqa: E501  (texts of SQL)
"""Sessions of exchanges compared with exchange-calendars itself, and windows aligned to them."""

import random
from datetime import UTC, datetime, timedelta

import exchange_calendars
import pandas as pd
import pyarrow as pa
import pytest

from candlewright_cep import Limits, TriggerRejected, evaluate
from candlewright_cep.functions.scalars import calendars
from tests.candlewright_cep.streams import assert_streams

pytestmark = pytest.mark.timeout(60)

#: One with unusual hours, one with a break at noon, one whose day begins the evening before, and one without end.
CALENDARS = ["XNYS", "XHKG", "CMES", "24/7"]


def _moments(name: str, count: int = 250) -> list[datetime]:
    """Over twenty years, and around openings, closings, breaks and clock changes."""
    chance = random.Random(name)
    found = [datetime(2004, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randrange(20 * 525_600)) for _ in range(count)]
    for day in ("2024-03-08", "2024-03-11", "2024-11-01", "2024-11-04", "2024-07-03", "2024-11-29", "2024-12-25"):
        start = datetime.fromisoformat(day).replace(tzinfo=UTC)
        found += [start + timedelta(minutes=15 * step, seconds=step % 3 - 1) for step in range(96)]
    return found


@pytest.mark.parametrize("name", CALENDARS)
def test_sessions_are_those_of_the_package(name: str) -> None:
    given = _moments(name)
    table = pa.table({"ts": pa.array([*given, None], pa.timestamp("ns", "UTC"))})
    sql = (
        f"SELECT IS_OPEN(ts, '{name}') AS o, SESSION_OF(ts, :c) AS d, SESSION_OPEN(ts, :c) AS a, SESSION_CLOSE(ts, :c) AS z, "
        "MINUTE_OF_SESSION(ts, :c) AS m FROM ticks"
    )
    found = evaluate(sql, table, {"c": name.lower()}).to_pylist()
    assert list(found.pop().values()) == [None] * 5
    schedule = exchange_calendars.get_calendar(name, start="1990-01-01").schedule
    starts = schedule["open"]
    for moment, row in zip(given, found, strict=True):
        at = pd.Timestamp(moment)
        place = int(starts.searchsorted(at, side="right")) - 1
        session = schedule.iloc[place]
        if not at < session["close"]:
            assert row == {"o": False, "d": None, "a": None, "z": None, "m": None}
            continue
        in_break = bool(pd.notna(session["break_start"]) and session["break_start"] <= at < session["break_end"])
        assert row["o"] is not in_break
        assert (row["d"], row["a"], row["z"]) == (schedule.index[place].date(), session["open"], session["close"])
        assert row["m"] == int((at - session["open"]).total_seconds() // 60)
    assert {row["o"] for row in found} == ({True} if name == "24/7" else {True, False})


@pytest.mark.parametrize("day", ["2024-03-08", "2024-03-11", "2024-11-01", "2024-11-04"])
def test_new_york_opens_at_half_past_nine_before_and_after_the_clocks_change(day: str) -> None:
    sql = "SELECT CAST(SESSION_OPEN(ts, 'XNYS') AT TIME ZONE 'America/New_York' AS VARCHAR) AS t FROM ticks"
    noon = datetime.fromisoformat(f"{day} 17:00").replace(tzinfo=UTC)
    found = evaluate(sql, pa.table({"ts": pa.array([noon], pa.timestamp("s", "UTC"))})).column("t").to_pylist()
    assert found == [f"{day} 09:30:00"]


def _trades() -> pa.Table:
    chance = random.Random(3)
    start = datetime(2024, 11, 26, tzinfo=UTC)
    times = sorted(start + timedelta(seconds=second) for second in chance.sample(range(7 * 86_400), 600))
    return pa.table(
        {
            "ticker": [chance.choice("AB") for _ in times],
            "ts": pa.array(times, pa.timestamp("ns", "UTC")),
            "price": [float(chance.randrange(50)) for _ in times],
        }
    )


def test_windows_begin_with_the_session_and_end_with_it() -> None:
    """Thanksgiving week: closed on Thursday, open until one o'clock on Friday."""
    sql = (
        "SELECT ticker, window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '2' HOUR, 'XNYS')) "
        "GROUP BY ticker, window_start, window_end"
    )
    table = _trades()
    found = assert_streams(sql, table, 3)
    known = exchange_calendars.get_calendar("XNYS", start="2024-11-01", end="2024-12-31").schedule
    sessions = list(known.loc["2024-11-25":"2024-12-04"].itertuples())
    expected: dict[tuple[str, pd.Timestamp, pd.Timestamp], int] = {}
    for row in table.to_pylist():
        at = pd.Timestamp(row["ts"])
        for session in sessions:
            if session.open <= at < session.close:
                begin = session.open + (at - session.open) // pd.Timedelta("2h") * pd.Timedelta("2h")
                key = (row["ticker"], begin, min(begin + pd.Timedelta("2h"), session.close))
                expected[key] = expected.get(key, 0) + 1
    assert {(row["ticker"], row["window_start"], row["window_end"]): row["n"] for row in found} == expected
    assert {(key[2] - key[1]) for key in expected} == {pd.Timedelta("2h"), pd.Timedelta("30min"), pd.Timedelta("90min")}


def test_other_forms_of_the_window_know_sessions_too() -> None:
    for sql in (
        "SELECT ticker, TUMBLE_START(ts, INTERVAL '1' DAY, 'XNYS') AS begin_ts, MAX(price) AS high FROM ticks "
        "GROUP BY ticker, TUMBLE(ts, INTERVAL '1' DAY, 'XNYS')",
        "SELECT * FROM (SELECT * FROM ticks WHERE IS_OPEN(ts, 'XNYS')) MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts "
        "MEASURES LAST(ts) AS at PATTERN (A B) DEFINE A AS MINUTE_OF_SESSION(ts, 'XNYS') < 60, B AS price > PREV(price)) AS m",
    ):
        assert assert_streams(sql, _trades(), 4)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT IS_OPEN(ts) FROM ticks", "takes a time and a calendar"),
        ("SELECT IS_OPEN(ts, 'XNYX') FROM ticks", "unknown calendar 'XNYX' \\(did you mean"),
        ("SELECT IS_OPEN(ts, ticker) FROM ticks", "a calendar must be a text"),
        ("SELECT SESSION_OF(price, 'XNYS') FROM ticks", "has no form for"),
        ("SELECT SESSION_OF(ts, '" + "x" * 1_000 + "') FROM ticks", "unknown calendar"),
        ("SELECT COUNT(*) FROM ticks GROUP BY TUMBLE(ts, INTERVAL '1' HOUR, 'XNYZ')", "unknown calendar"),
        ("SELECT COUNT(*) FROM ticks GROUP BY TUMBLE(ts, INTERVAL '1' HOUR, INTERVAL '5' MINUTE, 'XNYS')", "begin with the session"),
        ("SELECT COUNT(*) FROM ticks GROUP BY HOP(ts, INTERVAL '1' HOUR, INTERVAL '2' HOUR, 'XNYS')", "no calendar"),
    ],
)  # fmt: skip
def test_invalid_sessions_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _trades().slice(0, 5))


def test_the_calendars_of_a_text_have_a_bound() -> None:
    """Each takes up to four seconds to load; NYSE is another name of XNYS."""
    limits, few = Limits(calendars=2), ["XNYS", "NYSE", "XHKG"]
    shown = [f"IS_OPEN(ts, '{name}') AS c{place}" for place, name in enumerate([*few, "24/7"])]
    assert evaluate(f"SELECT {', '.join(shown[:3])} FROM ticks", _trades().slice(0, 5), limits=limits).num_rows == 5
    with pytest.raises(TriggerRejected, match="1:101: the text names more than 2 calendars"):
        evaluate(f"SELECT {', '.join(shown)} FROM ticks", _trades().slice(0, 5), limits=limits)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise calendars.MissingPackage

    monkeypatch.setattr(calendars, "_package", absent)
    with pytest.raises(TriggerRejected, match=r"not installed \(pip install 'candlewright-cep\[calendars\]'\)"):
        evaluate("IS_OPEN(ts, 'XNYS')", _trades().slice(0, 5))
