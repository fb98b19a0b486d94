"""The engine does what a plan states."""

import pyarrow as pa
import pytest

from candlewright_cep import ReleaseBuffer, TriggerRejected, TriggerStream
from tests.triggers.guide import texts
from triggers.texts.check import INPUTS, TriggerRules, compile_trigger
from triggers.texts.planned import TriggerPlan, measure, measure_join, planned

SECOND = 10**9
RULES = TriggerRules()
DEFINED = {"D": "price < PREV(price)", "U": "price > PREV(price)"}
AT_ONCE, LATER = "with the match's last row", "with the first row that cannot continue the match"
OPEN = "with the match's last row, unless a preferred way is still open; then once that has failed"


def pattern(text: str, rest: str = "") -> str:
    defined = ", ".join(f"{name} AS {condition}" for name, condition in DEFINED.items() if name in text.split(")")[0])
    return (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(ts_ns) AS at "
        f"{rest} PATTERN {text} DEFINE {defined}) AS m"
    )


def plan(sql: str, **parameters: str) -> TriggerPlan:
    return planned(compile_trigger(sql, parameters, RULES), RULES)


def test_the_plan_names_views_that_are_computed_once() -> None:
    views = {
        "Smooth": "SELECT ticker, ts, price, EMA(price, 9) OVER (PARTITION BY ticker ORDER BY ts) AS mean FROM ticks",
        "above": "SELECT * FROM Smooth WHERE price > mean",
    }

    def told(sql: str, **parameters: str) -> list[str]:
        compiled = compile_trigger(sql, parameters, RULES, views=views)
        return [step.text for step in planned(compiled, RULES, {"Smooth": 12}).steps if step.kind == "view"]

    once = "the steps so far run once for all triggers that read it"
    assert told("SELECT price FROM above WHERE price > 3") == [f"view Smooth: {once}, 12 now", f"view above: {once}"]
    assert told("SELECT price FROM above", lookback_seconds="60") == []
    assert told("SELECT price FROM ticks WHERE price > 3") == []


def trades(prices: list[float]) -> pa.Table:
    rows = [
        {"ticker": "A/B.C", "trade_id": str(n), "ts": n * SECOND, "ts_ns": n * SECOND, "price": price, "size": 1.0}
        for n, price in enumerate(prices)
    ]
    return pa.Table.from_pylist([row | {"side": "buy", "received_at": None} for row in rows], INPUTS["ticks"].schema)


@pytest.mark.parametrize(
    ("text", "fires"),
    [
        ("(S D)", AT_ONCE),
        ("(S D{3})", AT_ONCE),
        ("(S X*? D U)", AT_ONCE),
        ("(S D+ U+)", LATER),
        ("(S D U?)", f"{LATER}, or with the last row of its longest form"),
        ("(S D+ U)", OPEN),
        ("(S D U D | S D)", OPEN),
        ("(S D U+ $)", "when its partition ends"),
    ],
)
def test_the_plan_states_when_the_stream_emits_a_match(text: str, fires: str) -> None:
    compiled = compile_trigger(pattern(text), {}, TriggerRules(idle_ns=1))
    (step,) = planned(compiled, RULES).steps
    assert step.fires == fires
    rows = trades([10, 9, 10, 11, 10, 9, 8, 7, 8, 9, 8, 9, 10, 9])
    stream, buffer, delays = TriggerStream(query=compiled.query), ReleaseBuffer("ts_ns", "ticker"), list[int]()
    for number in range(rows.num_rows):
        released = buffer.push(rows.slice(number, 1)).rows
        found = stream.feed(released, buffer.clock).table
        delays += [number - at // SECOND for at in found["at"].to_pylist()]
    if fires == AT_ONCE:
        assert delays and set(delays) == {0}
    elif fires == LATER:
        assert delays and min(delays) > 0
    else:
        assert bool(delays) != text.endswith("$)")


def test_bounds_of_a_pattern_are_named() -> None:
    (step,) = plan(pattern("(S D{2,4} U)")).steps
    assert step.bound.startswith("6 rows a match; 1,000,000 rows a ticker")
    assert "and 1 row before them" in step.keeps and "of each ticker" in step.keeps
    (step,) = plan(pattern("(S D+) WITHIN INTERVAL '5' MINUTE")).steps
    assert step.bound.startswith("WITHIN 5m; ") and "rows a match" not in step.bound
    assert step.fires == f"{LATER} or when WITHIN has passed"
    (step,) = plan(pattern("(S D+) WITHIN INTERVAL '5' SECOND FROM PREVIOUS ROW")).steps
    assert step.bound.startswith("WITHIN 5s from the previous row; ")
    assert step.fires == f"{LATER} or when WITHIN has passed"
    (step,) = plan(pattern("(S D) WITHIN INTERVAL '5' SECOND", rest="ONE ROW PER MATCH WITH TIMEOUT ROWS")).steps
    assert step.fires.endswith("what is not finished comes when WITHIN has passed")


def test_each_kind_of_text_has_its_steps() -> None:
    assert plan("price > 3").fires == ("Each row decides alone, on arrival, however old it is.",)
    assert plan("close > 3", period_seconds="300").reads == ("ohlc: bars of 5m",)
    by_time = "PARTITION BY ticker ORDER BY ts"
    mean = f"AVG(price) OVER ({by_time} ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
    moving = plan(f"SELECT {mean} AS mean, RSI(price, 14) OVER ({by_time}) AS strength FROM ticks")
    assert any("10 rows for each ticker" in step.keeps for step in moving.steps)
    assert any("the last 14 rows" in step.keeps for step in moving.steps)
    spread = plan("SELECT a.ts, b.price FROM ticks a JOIN ticks b ON b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts")
    assert spread.together == "the rows of all its tickers together"
    assert any(step.kind == "interval join" for step in spread.steps)
    cooled = plan("price > 3", cooldown_seconds="60")
    assert any("none follows for 1m" in each for each in cooled.fires)


def test_every_example_of_the_guide_has_a_plan() -> None:
    count = 0
    for text in texts():
        try:
            compiled = compile_trigger(text.sql, text.parameters, TriggerRules(idle_ns=1))
        except TriggerRejected:
            continue
        found = planned(compiled, RULES)
        assert found.reads and found.fires
        count += 1
    assert count > 30


def test_a_measurement_counts_rows_events_and_partitions() -> None:
    compiled = compile_trigger(pattern("(S D)"), {}, RULES)
    rows = trades([10.0, 9.0] * 1_500)
    found = measure(compiled.query, rows, ["A/B.C"])
    assert (found.rows, found.events, found.partitions) == (3_000, 1_500, 1)
    assert found.span_seconds == 2_999 and found.rows_per_second == pytest.approx(3_000 / 2_999)
    assert found.state_bytes > 0 and found.cpu_seconds > 0 and found.core_share > 0


LAST_BAR = (
    "SELECT t.ts, t.price, o.close FROM ticks t ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.close_time "
    "WHERE t.price > o.close"
)


def test_a_join_is_measured_over_rows_of_all_its_inputs_in_the_order_they_came() -> None:
    compiled = compile_trigger(LAST_BAR, {"period_seconds": "60"}, RULES)
    rows = trades([float(n % 7) for n in range(3_000)])
    bars = pa.Table.from_pylist(
        [
            {"ticker": "A/B.C", "period_seconds": 60, "open_time": n * 60 * SECOND, "close": 3.0, "complete": True}
            for n in range(50)
        ],
        INPUTS["ohlc"].schema,
    )
    found = measure_join(compiled.query, {("ticks", 0): rows, ("ohlc", 60): bars}, ["A/B.C"])
    # Those of the first minute come before the first bar has closed; the last ones are still to be decided.
    fired = sum(n % 7 > 3 for n in range(60, 3_000))
    assert (found.rows, found.span_seconds) == (3_050, 3_000)
    assert fired - 60 <= found.events <= fired
    assert found.state_bytes > 0 and found.cpu_seconds > 0


def test_percentiles_of_all_rows_are_kept_as_sketches() -> None:
    columns = (
        "AVG(price) OVER w AS a, APPROX_PERCENTILE(price, 0.1) OVER w AS b, APPROX_PERCENTILE(price, 0.9) OVER w AS c"
    )
    (step, *_) = plan(f"SELECT {columns} FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts)").steps
    assert step.keeps == "1 running total and sketches of 1 column for each ticker"
    assert step.bound == "one of each function; 26 kB for each sketch"


def test_a_pattern_in_a_window_waits_for_its_frame() -> None:
    (step,) = plan(
        "SELECT ts, n OVER w AS n FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts MEASURES COUNT(*) AS n "
        "ROWS BETWEEN CURRENT ROW AND 9 FOLLOWING PATTERN (S D+) DEFINE D AS price < PREV(price))"
    ).steps
    assert (step.kind, step.text) == ("pattern", "row pattern of S D in a frame of 10 rows")
    assert (step.keeps, step.fires) == ("the last 10 rows for each ticker", "once the rows of its frame have come")


def test_the_plan_of_a_join_with_events_states_what_its_rows_wait_for() -> None:
    found = plan("SELECT t.ts FROM ticks t ASOF JOIN trigger_events e ON t.ticker = e.ticker AND t.ts >= e.fired_at")
    assert found.reads == ("ticks: trades", "trigger_events: events of triggers")
    assert any(said.startswith("The watermark of events is where") for said in found.fires)
