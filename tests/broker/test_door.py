"""No bytes from a peer make the broker's door or its state raise anything but BadFrame."""

from itertools import count
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import door
from broker.commands import Dispatch, DispatchedRequest, Refuse
from broker.events import (
    JOB_ID_LENGTH,
    ClockTicked,
    HistoryEnded,
    JobCompleted,
    JobFailed,
    Kind,
    LeaseNote,
    RealtimeAccepted,
    SlotOffered,
    VenueLearned,
)
from broker.journal.batch import Gatherer
from broker.state import BrokerState
from bus.api import partition_of
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame
from core.settings import BrokerSettings
from tests.broker.accepted import MINUTE, START, accepted
from tests.rounds import rounds

END = START + 9 * MINUTE
PEER = b"peer"
PARTITIONS = 4
PARTITION = partition_of(b"A/B.TEST", PARTITIONS)

names = st.sampled_from(["job-0", "job-1", "r", "r#0", "r#99999999999999999999", "A/B.TEST", ""])
big = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1), st.sampled_from([START, START + MINUTE]))
numbers = st.floats(allow_nan=True, allow_infinity=True)
rows = st.builds(cw.OHLCV, open_time=big, open=numbers, high=numbers, low=numbers, close=numbers, volume=numbers)
ranges = st.builds(cw.TimeRange, start_time=big, end_time=big)
spans = st.builds(cw.Span, first_offset=big, last_offset=big)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(ing.WorkComplete, job_id=names, success=st.booleans(), error_message=st.text()),
    st.builds(ing.WorkHeartbeat, job_id=names),
    st.builds(ing.WorkReject, job_id=names, reason=st.text()),
    st.builds(cw.WorkProgress, job_id=names, done_candles=big),
    st.builds(
        cw.HistoryEnd,
        job_id=names,
        rows=big,
        expected=big,
        exchange_time=big,
        spans=st.lists(spans, max_size=2),
        holes=st.lists(ranges, max_size=2),
    ),
    st.builds(
        ing.DataResponse,
        request_id=names,
        ohlc_data=st.lists(st.one_of(st.binary(max_size=20), rows.map(cw.OHLCV.SerializeToString)), max_size=3),
    ),
    st.builds(
        cw.TickBatch,
        ticker=names,
        timestamp=st.lists(big, max_size=2),
        price=st.lists(numbers, max_size=2),
        size=st.lists(numbers, max_size=2),
        trade_id=st.lists(names, max_size=2),
    ),
    st.builds(cw.Snapshot, ticker=names, request_id=names),
    st.builds(ing.WorkerReady, exchanges=st.lists(names, max_size=3), job_type=st.sampled_from([0, 1, 2])),
)
bodies = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda row, rest: bytes((row.type_id,)) + rest, st.sampled_from(frames.FRAMES), st.binary(max_size=60)),
    messages.map(frames.encode_body),
)


def busy_state() -> BrokerState:
    """One peer has two running jobs: a historical and a realtime one."""
    numbers = count()
    state = BrokerState(
        BrokerSettings(),
        lambda: f"job-{next(numbers)}",
        0.0,
        wall_ns=START + 1_000 * MINUTE,
        history_partitions=PARTITIONS,
    )
    state.handle(VenueLearned("TEST", 1_000, 0))
    state.handle(accepted(minutes=9))
    state.handle(
        RealtimeAccepted(
            request_id="live", ticker="A/B.TEST", venue="TEST", client_id="", include_ohlc=False, ohlc_period_seconds=()
        )
    )
    for kind in (Kind.HISTORICAL, Kind.REALTIME):
        commands = state.handle(SlotOffered(PEER, ("TEST",), (kind,), 0.0))
        assert any(isinstance(command, Dispatch) for command in commands)
    return state


@settings(deadline=None, max_examples=rounds(400))
@given(st.lists(bodies, max_size=12))
def test_any_frames_at_all_leave_the_broker_running(sent: list[bytes]) -> None:
    state, gatherer = busy_state(), Gatherer()
    for moment, body in enumerate(sent):
        try:
            event = door.event_of(PEER, [frames.VERSION, body], float(moment), wall_ns=START)
        except BadFrame:
            continue
        gatherer.add(state.handle(event))
        gatherer.add(state.handle(ClockTicked(moment + 0.5, START + 2_000 * MINUTE)))
        gatherer.take_results()


job_ids = st.one_of(
    st.text("0123456789abcdef", min_size=JOB_ID_LENGTH, max_size=JOB_ID_LENGTH),
    st.text(min_size=JOB_ID_LENGTH - 1, max_size=JOB_ID_LENGTH + 1),
)


@given(job_ids, st.booleans(), st.binary(max_size=2))
def test_the_fast_path_of_a_success_agrees_with_the_decoder(job_id: str, is_success: bool, tail: bytes) -> None:
    body = frames.encode_body(ing.WorkComplete(job_id=job_id, success=is_success)) + tail
    try:
        message = frames.decode_body(body)
    except BadFrame:
        with pytest.raises(BadFrame):
            door.event_of(PEER, [frames.VERSION, body], 1.0, wall_ns=START)
        return
    assert isinstance(message, ing.WorkComplete)
    event = door.event_of(PEER, [frames.VERSION, body], 1.0, wall_ns=START)
    if message.success:
        assert event == JobCompleted(PEER, message.job_id, 1.0)
    else:
        assert isinstance(event, JobFailed)
        assert event.job_id == message.job_id


def test_a_job_id_that_is_not_text_is_a_bad_frame() -> None:
    good = frames.encode_body(ing.WorkComplete(job_id="0" * JOB_ID_LENGTH, success=True))
    with pytest.raises(BadFrame):
        door.event_of(PEER, [frames.VERSION, good.replace(b"00", b"\xff\xfe")], 1.0, wall_ns=START)


@pytest.mark.parametrize(
    "stated",
    [
        {"rows": 10, "expected": 9},
        {"rows": 9, "expected": 10},
        {"rows": 8, "expected": 9, "holes": [cw.TimeRange(start_time=START, end_time=START + 11 * MINUTE)]},
        {"rows": 9, "expected": 9, "partition": 99},
        {"rows": 9, "expected": 9, "partition": 1},
        {"rows": 9, "expected": 9, "spans": [cw.Span(first_offset=0, last_offset=1 << 60)]},
        {"rows": 9, "expected": 9, "spans": [cw.Span(first_offset=0, last_offset=9)]},
        {"rows": 9, "expected": 9, "spans": [cw.Span(first_offset=n, last_offset=n) for n in (5, 4)]},
        {"rows": 9, "expected": 9, "spans": [cw.Span(first_offset=1 << 63, last_offset=1 << 63)]},
        {
            "rows": 8,
            "expected": 9,
            "holes": [cw.TimeRange(start_time=START + 9 * MINUTE, end_time=START + 10 * MINUTE)],
        },
    ],
)
def test_an_impossible_stated_result_is_not_accepted(stated: dict[str, Any]) -> None:
    state = busy_state()
    whole: dict[str, Any] = {"spans": [cw.Span(first_offset=0, last_offset=0)], "partition": PARTITION}
    end = cw.HistoryEnd(job_id="job-0", **whole | stated)
    event = door.event_of(PEER, frames.encode(end), 1.0, wall_ns=START)
    assert isinstance(event, HistoryEnded)
    (refusal,) = state.handle(event)
    assert isinstance(refusal, Refuse) and (refusal.connection, refusal.request_id) == (PEER, "r")
    state.handle(door.event_of(PEER, frames.encode(ing.WorkComplete(job_id="job-0", success=True)), 1.0, wall_ns=START))
    assert state.requests["r"].outstanding[0].attempts == 1
    assert "job-0" not in state.jobs


ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
dispatched = st.one_of(
    st.builds(
        DispatchedRequest,
        type=st.just(ing.DataRequest.HISTORICAL_OHLC),
        ticker=ids,
        client_id=ids,
        period_seconds=st.integers(1, 1 << 31),
    ),
    st.builds(
        DispatchedRequest,
        type=st.just(ing.DataRequest.REALTIME_TICKS),
        ticker=ids,
        client_id=ids,
        ohlc_period_seconds=st.sampled_from([(), (60,), (1, 86_400)]),
    ),
    st.builds(DispatchedRequest, type=st.just(ing.DataRequest.TICKER_SNAPSHOT), ticker=ids, client_id=ids),
)


@given(
    dispatched_id=ids,
    job_id=ids,
    asked=dispatched,
    part=st.tuples(big, big),
    limit=st.none() | st.integers(1, 1 << 31),
)
def test_a_dispatch_says_everything_about_its_job(
    dispatched_id: str, job_id: str, asked: DispatchedRequest, part: tuple[int, int], limit: int | None
) -> None:
    request = ing.DataRequest(
        request_id=dispatched_id,
        type=asked.type,
        ticker=asked.ticker,
        client_id=asked.client_id or None,
        job_id=job_id,
    )
    if asked.period_seconds:
        historical = request.historical
        historical.start_time, historical.end_time = part
        historical.period_seconds = asked.period_seconds
        if limit is not None:
            historical.limit = limit
    elif asked.type == ing.DataRequest.REALTIME_TICKS:
        request.realtime.include_ticks = True
        request.realtime.include_ohlc = bool(asked.ohlc_period_seconds)
        request.realtime.ohlc_period_seconds.extend(asked.ohlc_period_seconds)
    note = LeaseNote(request_id="r", attempts=0, dispatched_id=dispatched_id, part=part)
    body = door.dispatch_body(Dispatch(PEER, job_id, note, asked, limit))
    assert frames.decode([frames.VERSION, body], frames.BROKER_TO_INGESTOR) == request
