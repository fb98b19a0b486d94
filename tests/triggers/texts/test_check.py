import pyarrow as pa
import pytest

from bus.api import partition_of
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from candlewright_cep import TriggerRejected
from core.settings import TriggersSettings
from iceberg import tables
from tests.triggers.trigger_records import OTHER, TICKER, V_SHAPE
from triggers.texts.check import INPUTS, CheckedTrigger, TriggerOptions, TriggerRules, check_trigger

pytestmark = pytest.mark.timeout(30)

_SPREAD = "SELECT a.price - b.price AS s FROM ticks a JOIN ticks b ON a.ts = b.ts"


def _request(sql: str, *tickers: str, **parameters: str) -> CEPTriggerRequest:
    return CEPTriggerRequest(trigger_id="t", sql_pattern=sql, tickers=tickers, parameters=parameters)


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("price > 70000 AND size >= :min_size", {"min_size": "2"}),
        ("close > open * 1.02", {"period_seconds": "60"}),
        ("SELECT * FROM ohlc WHERE volume > ${limit}", {"limit": "5"}),
        ("SELECT trade_id, side, received_at FROM ticks WHERE side = 'buy'", {}),
        (V_SHAPE.replace("ORDER BY ts", "ORDER BY ts_ns"), {"cooldown_seconds": "0.5", "deadman_seconds": "30"}),
    ],
)
def test_texts_over_the_real_columns_are_taken(sql: str, parameters: dict[str, str]) -> None:
    assert check_trigger(_request(sql, **parameters)) == CheckedTrigger((), is_joint=False)


def test_the_inputs_have_the_columns_of_the_tables() -> None:
    for name, source in INPUTS.items():
        (table,) = (table for table in tables.TABLES if table.name == name)
        assert source.schema.names == [field.name for field in table.schema.fields]


def test_a_pattern_without_bound_is_taken_with_a_warning() -> None:
    sql = "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts PATTERN (A B* C) DEFINE C AS price < 0)"
    assert check_trigger(_request(sql)).warnings


@pytest.mark.parametrize(
    ("sql", "parameters", "said"),
    [
        ("prise > 1", {}, "INVALID_SQL 1:1"),
        ("close > 1", {}, "INVALID_SQL"),
        ("price > 1", {"period_seconds": "60"}, "INVALID_SQL"),
        ("price > :limit", {}, "limit"),
        ("SELECT * FROM gaps", {}, "INVALID_SQL"),
        ("price > 1" + " OR price > 1" * 10_000, {}, "INVALID_SQL"),
        ("close > 1", {"period_seconds": "1.5"}, "whole number"),
        ("close > 1", {"period_seconds": "nan"}, "number of seconds"),
        ("price > 1", {"cooldown_seconds": "-1"}, "number of seconds"),
        ("price > 1", {"deadman_seconds": "soon"}, "number of seconds"),
        ("price > 1", {"revisions": "maybe"}, "revisions"),
        ("price > 1", {"lookback_seconds": "60"}, "needs named tickers"),
        ("price > 1", {"lookback_seconds": "0"}, "number of seconds"),
    ],
)
def test_a_text_that_cannot_run_is_refused_with_position_and_reason(
    sql: str, parameters: dict[str, str], said: str
) -> None:
    with pytest.raises(TriggerRejected, match=said):
        check_trigger(_request(sql, **parameters))


def test_a_join_on_time_may_be_written_with_a_comma() -> None:
    sql = "SELECT a.price - b.price AS s FROM ticks a, ticks b WHERE a.ticker = 'x' AND b.ticker = 'y' AND a.ts = b.ts"
    check_trigger(_request(sql, "x", "y"))
    with pytest.raises(TriggerRejected, match="on equal event times"):
        check_trigger(_request(sql.replace("a.ts = b.ts", "a.ts < b.ts"), "x", "y"))


def test_an_end_anchor_needs_partitions_that_close() -> None:
    sql = "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts PATTERN (A $) DEFINE A AS price > 1)"
    with pytest.raises(TriggerRejected, match=r"\$"):
        check_trigger(_request(sql))
    assert check_trigger(_request(sql), TriggerRules(idle_ns=1)).warnings == ()


def test_rows_of_several_bus_partitions_together_make_a_trigger_joint() -> None:
    count = next(n for n in range(2, 50) if partition_of(TICKER.encode(), n) != partition_of(OTHER.encode(), n))

    def joint(sql: str, *tickers: str, partitions: int = count) -> bool:
        return check_trigger(_request(sql, *tickers), TriggerRules(partitions=partitions)).is_joint

    assert joint(_SPREAD, TICKER, OTHER)
    assert joint(_SPREAD)
    assert not joint(_SPREAD, TICKER)
    assert not joint(_SPREAD, TICKER, OTHER, partitions=1)
    assert not joint(V_SHAPE, TICKER, OTHER)
    assert not joint(V_SHAPE)


def test_ids_tickers_and_numbers_of_triggers_have_bounds() -> None:
    good = _request("price > 1")
    for request, others in (
        (CEPTriggerRequest(sql_pattern="price > 1"), 0),
        (CEPTriggerRequest(trigger_id="x" * 201, sql_pattern="price > 1"), 0),
        (_request("price > 1", ""), 0),
        (_request("price > 1", *map(str, range(10_001))), 0),
        (_request("price > 1", **{f"p{i}": "1" for i in range(101)}), 0),
        (good, 3),
    ):
        with pytest.raises(InvalidRequest):
            check_trigger(request, TriggerRules(max_triggers=3), others)
    assert check_trigger(good, TriggerRules(max_triggers=3), 2).warnings == ()


def test_a_look_back_of_a_text_over_one_row_alone_is_a_warning() -> None:
    assert "one row alone" in check_trigger(_request("price > 1", "x", lookback_seconds="60")).warnings[0]
    sql = "SELECT LAG(price) OVER (PARTITION BY ticker ORDER BY ts) AS before FROM ticks"
    assert check_trigger(_request(sql, "x", lookback_seconds="60")).warnings == ()


def test_options_are_read_with_their_units() -> None:
    given = {"period_seconds": "60", "revisions": "TRUE", "cooldown_seconds": "0.5", "deadman_seconds": "30"}
    assert TriggerOptions.of(given) == TriggerOptions(60, True, 500_000_000, 30_000_000_000)
    assert TriggerOptions.of({"lookback_seconds": "90"}) == TriggerOptions(lookback_ns=90_000_000_000)
    assert TriggerOptions.of({}) == TriggerOptions()


def test_times_have_nanoseconds() -> None:
    assert INPUTS["ticks"].schema.field("ts").type == pa.timestamp("ns", "UTC")


def test_settings_become_rules_in_nanoseconds() -> None:
    chosen = TriggersSettings(
        watermark_delay_seconds=0.5, idle_seconds=2, max_rows_per_key=7, max_triggers=9, max_partitions=5
    )
    assert TriggerRules.of(chosen, 4) == TriggerRules(
        watermark_delay_ns=500_000_000,
        idle_ns=2_000_000_000,
        retained_rows=7,
        max_triggers=9,
        partitions=4,
        kept_partitions=5,
    )


@pytest.mark.parametrize("sql", ["close > open", "volume > 5", "SELECT open FROM ticks"])
def test_columns_of_bars_in_a_text_over_trades_get_the_way_to_bars(sql: str) -> None:
    with pytest.raises(TriggerRejected) as refused:
        check_trigger(_request(sql))
    assert "period_seconds" in refused.value.hint
    assert check_trigger(_request("close > open", period_seconds="60")).warnings == ()


@pytest.mark.parametrize(
    ("tickers", "count"),
    [((), 1), ((TICKER, OTHER), 1), ((TICKER,), 0), ((TICKER, "BTC/USDT.KRAKEN"), 0)],
)
def test_a_pattern_over_several_tickers_gets_no_warning_if_they_are_of_one_market(
    tickers: tuple[str, ...], count: int
) -> None:
    sql = "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A B) DEFINE B AS price < PREV(price)) AS m"
    said = check_trigger(_request(sql, *tickers)).warnings
    assert len([warning for warning in said if "as one series" in warning]) == count


def test_a_parameter_that_nothing_uses_is_a_warning() -> None:
    said = check_trigger(_request("price > :limit", limit="1", cooldown_second="5", x="1")).warnings
    assert said == (
        "nothing uses the parameter cooldown_second; did you mean 'cooldown_seconds'?",
        "nothing uses the parameter x",
    )
    assert check_trigger(_request("price > ${limit}", limit="1", cooldown_seconds="5")).warnings == ()
