"""No record of a followed topic keeps the others from their table."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus import StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.grid import SECOND
from candlewright.wire.tick_columns import TickColumns
from core.poison import refused
from flink_replacement_spark.live.tables import FOLLOWED_TICKS
from flink_replacement_spark.live.tick_rows import records_of_rows
from flink_replacement_spark.tables.follower import Followed
from flink_replacement_spark.tables.published_bars import published_bars
from flink_replacement_spark.tables.revisions import FOLLOWED_REVISIONS
from flink_replacement_spark.tables.trigger_events import APPENDED_EVENTS
from iceberg import OHLC_REVISIONS, new_revisions
from tests.hostile import records_like

START = 1_700_000_040 * SECOND
_PRICES = dict.fromkeys(("open", "high", "low", "close", "volume"), 2.0)
BAR = cw.OHLCV(ticker="A/B.C", period_seconds=60, open_time=START, source="ticks", trade_count=3, **_PRICES)  # type: ignore[arg-type]
EVENT = ing.CEPTriggerEvent(
    trigger_id="t",
    timestamp=START,
    context={"event_id": "e"},
    schema=ing.ResultSchema(column_names=["n", "at"], column_types=["BIGINT", "TIMESTAMP(9)"]),
    rows=[
        ing.ResultRow(
            values=[
                ing.FieldValue(int_val=1).SerializeToString(),
                ing.FieldValue(timestamp_val=START).SerializeToString(),
            ]
        )
    ],
)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(records_like(BAR), min_size=1, max_size=6), min_size=2, max_size=4))
def test_no_bar_that_is_taken_keeps_a_later_one_from_the_revisions(commits: list[list[bytes]]) -> None:
    stored, offset = [OHLC_REVISIONS.arrow_schema.empty_table()], 0
    for values in commits:
        found = [
            StoredRecord(topic="t", partition=0, offset=offset + n, timestamp_ms=1, key=None, value=value, headers={})
            for n, value in enumerate(values)
        ]
        offset += len(found)
        bad = {record.offset for record, _ in refused(found, FOLLOWED_REVISIONS.digest)}
        bars = published_bars([record for record in found if record.offset not in bad])
        stored.append(new_revisions(bars, pa.concat_tables(stored)))


_ONE = np.ones(1)
_COLUMNS = TickColumns(
    ticker="A/B.C",
    first_sequence=1,
    timestamp=np.array([START]),
    price=_ONE,
    size=_ONE,
    side=_ONE.astype(np.uint8),
    trade_id=np.array([b"7"]),
    received_at=np.array([START]),
)
STREAM = next(records_of_rows([_COLUMNS], [], 0, perhaps_stored=False)).value


@pytest.mark.parametrize(("followed", "sound"), [(APPENDED_EVENTS.followed, EVENT), (FOLLOWED_REVISIONS, BAR)])
def test_the_sound_records_are_taken_and_no_other_is(followed: Followed, sound: cw.OHLCV) -> None:
    @settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
    @given(st.lists(records_like(sound), max_size=15))
    def check(values: list[bytes]) -> None:
        values = [sound.SerializeToString(), *values, sound.SerializeToString()]
        found = [
            StoredRecord(topic="t", partition=0, offset=offset, timestamp_ms=1, key=None, value=value, headers={})
            for offset, value in enumerate(values)
        ]
        bad = {record.offset for record, _ in refused(found, followed.digest)}
        assert not bad & {0, len(values) - 1}
        followed.digest([record for record in found if record.offset not in bad])

    check()


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.one_of(st.binary(max_size=80), st.just(STREAM)), st.sampled_from(["gap", ""])), max_size=8),
    st.integers(0, len(STREAM) - 1),
)
def test_no_record_of_stored_rows_keeps_the_others_from_their_tables(sent: list[tuple[bytes, str]], cut: int) -> None:
    values = [(STREAM, ""), (STREAM[:cut], ""), (STREAM[:cut] + b"\xff" + STREAM[cut + 1 :], ""), *sent, (STREAM, "")]
    found = [
        StoredRecord(topic="t", partition=0, offset=at, timestamp_ms=1, key=None, value=value, headers={"kind": kind})
        for at, (value, kind) in enumerate(values)
    ]
    bad = {record.offset for record, _ in refused(found, FOLLOWED_TICKS.digest)}
    assert not bad & {0, len(values) - 1}
    FOLLOWED_TICKS.digest([record for record in found if record.offset not in bad])
