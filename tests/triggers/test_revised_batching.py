"""Corrected bars give the same events, each once, however their records are split into micro-batches."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from tests.rounds import rounds
from tests.triggers.trigger_records import OTHER, TICKER, bar, register
from triggers.partition import TriggerPartition
from triggers.running import shares
from triggers.texts.check import TriggerRules

pytestmark = pytest.mark.timeout(120)

_SETTINGS = settings(max_examples=rounds(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
_RULES = TriggerRules(idle_ns=SECOND)
_TICKERS = (TICKER, OTHER)


def _pattern(clauses: str, partition: str = "PARTITION BY ticker") -> str:
    return f"SELECT * FROM ohlc MATCH_RECOGNIZE ({partition} ORDER BY open_time {clauses}) AS m"


#: Those that end in "2" name both tickers, the others take all.
TEXTS = {
    "shape": _pattern("MEASURES COUNT(*) AS n, FIRST(open_time) AS t PATTERN (A B+) DEFINE B AS close > PREV(close)"),
    "within": _pattern(
        "MEASURES A.close AS p, B.close AS q ONE ROW PER MATCH WITH TIMEOUT ROWS "
        "PATTERN (A X*? B) WITHIN INTERVAL '3' MINUTE DEFINE A AS close > 3, B AS close < 2"
    ),
    "each": _pattern(
        "MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH WITH UNMATCHED ROWS "
        "PATTERN (A B | B A) DEFINE A AS close < 3, B AS close > 2"
    ),
    "over": (
        "SELECT open_time, close, SUM(close) OVER (PARTITION BY ticker ORDER BY open_time "
        "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS total FROM ohlc"
    ),
    "peers": "SELECT open_time, SUM(close) OVER (PARTITION BY ticker ORDER BY open_time) AS total FROM ohlc",
    "reach": (
        "SELECT open_time, SUM(close) OVER (PARTITION BY ticker ORDER BY open_time "
        "RANGE BETWEEN INTERVAL '2' MINUTE PRECEDING AND CURRENT ROW) AS total FROM ohlc"
    ),
    "lag": "SELECT close, LAG(close) OVER (PARTITION BY ticker ORDER BY open_time) AS before FROM ohlc",
    "window": (
        "SELECT ticker, window_start, COUNT(*) AS n, SUM(close) AS total "
        "FROM TABLE(TUMBLE(TABLE ohlc, DESCRIPTOR(open_time), INTERVAL '3' MINUTE)) "
        "GROUP BY ticker, window_start, window_end"
    ),
    "session": (
        "SELECT ticker, window_start, COUNT(*) AS n "
        "FROM TABLE(SESSION(TABLE ohlc PARTITION BY ticker, DESCRIPTOR(open_time), INTERVAL '2' MINUTE)) "
        "GROUP BY ticker, window_start, window_end"
    ),
    "together2": (
        "SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ohlc, DESCRIPTOR(open_time), INTERVAL '3' MINUTE)) "
        "GROUP BY window_start, window_end"
    ),
    "mixed2": _pattern("MEASURES A.ticker AS a, B.close AS b PATTERN (A B) DEFINE B AS close > A.close", ""),
    "spread2": (
        "SELECT a.open_time, a.close - b.close AS s FROM ohlc a JOIN ohlc b "
        "ON a.open_time = b.open_time AND a.ticker < b.ticker"
    ),
}

#: (ticker, minutes after its newest bar, or before it: a revision, or a first one that is late; close).
steps = st.lists(
    st.tuples(st.sampled_from(_TICKERS), st.sampled_from([-4, -2, -1, -1, 0, 0, 1, 1, 1, 2]), st.integers(1, 5)),
    max_size=24,
)


def _bars(walk: Sequence[tuple[str, int, int]]) -> list[bytes]:
    newest: dict[str, int] = {}
    revisions: dict[tuple[str, int], int] = {}
    found = []
    for ticker, step, close in walk:
        minute = max(0, newest.get(ticker, -1) + step)
        revision = revisions[ticker, minute] = revisions.get((ticker, minute), -1) + 1
        newest[ticker] = max(minute, newest.get(ticker, 0))
        found.append(bar(minute, close, revision=revision, ticker=ticker))
    return found


def _events(
    bars: Sequence[bytes], places: Sequence[int], *, rules: TriggerRules = _RULES
) -> dict[str, CEPTriggerEvent]:
    partition = TriggerPartition(rules)
    controls = [
        register(f"{name}/{revisions}", sql, *(_TICKERS if name[-1] == "2" else ()), period_seconds="60",
                 revisions=revisions)
        for name, sql in TEXTS.items()
        for revisions in ("true", "false")
    ]  # fmt: skip
    output = partition.process([], controls=controls, now_ns=1)
    assert {report.state for report in output.reports} == {"active"}, output.reports
    events: list[CEPTriggerEvent] = []
    for start, end in zip([0, *places], [*places, len(bars)], strict=True):
        output = partition.process([], bars=bars[start:end], now_ns=1)
        assert not output.reports
        events += output.events
        if places:
            partition = TriggerPartition.load(partition.save(), rules)
    events += partition.process([], now_ns=200 * SECOND).events
    while partition.is_behind:
        events += partition.process([], now_ns=200 * SECOND).events
    found = {event.context["event_id"]: event for event in events}
    assert len(found) == len(events)
    return found


@_SETTINGS
@given(steps, st.lists(st.integers(0, 24), max_size=6))
@example([(TICKER, 1, 2), (TICKER, 0, 3)], [1])
def test_any_cut_of_corrected_bars_gives_the_same_events(walk: list[tuple[str, int, int]], cuts: list[int]) -> None:
    bars = _bars(walk)
    every = _events(bars, range(1, len(bars)))
    assert _events(bars, []) == every
    assert _events(bars, sorted({cut for cut in cuts if cut <= len(bars)})) == every


@settings(_SETTINGS, max_examples=rounds(40))
@given(steps, st.lists(st.integers(0, 24), max_size=6))
def test_triggers_that_fall_behind_give_the_same_events(walk: list[tuple[str, int, int]], cuts: list[int]) -> None:
    bars = _bars(walk)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shares, "_ROW_NS", 0)
        patched.setattr(shares, "_SLOW_STEPS", 1)
        behind = _events(bars, sorted({cut for cut in cuts if cut <= len(bars)}), rules=replace(_RULES, share_ns=1))
    assert behind == _events(bars, [])
