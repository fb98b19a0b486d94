"""Which records a client gets, and which ones again."""

from hypothesis import given
from hypothesis import strategies as st

from gateways.numaflow.partitions import RecordId, record_id, wire_offset
from gateways.numaflow.state import (
    BATCHES_OUTSTANDING,
    Fetch,
    FetchAgain,
    FetchExpired,
    FetchNew,
    FetchOwn,
    Found,
    GiveBack,
    GiveUp,
    ReadBegan,
    RecordsAcknowledged,
    RecordsFetched,
    RecordsGivenBack,
    RecordsRefused,
    RecordsWanted,
    Send,
    SessionOpened,
    SourceState,
)

ONE, TWO = RecordId(0, 1), RecordId(0, 2)


def fetched(state: SourceState, fetch: Fetch, found: list[Found], *, at: float) -> list[RecordId]:
    """The records that the client is sent of those that a fetch found."""
    [send] = state.handle(RecordsFetched(fetch, tuple(found), at))
    assert isinstance(send, Send)
    return list(send.records)


def wanted(state: SourceState, count: int, at: float) -> Fetch | None:
    """The next fetch of the read under way."""
    commands = state.handle(RecordsWanted(count, at))
    assert len(commands) <= 1
    return next((command for command in commands if isinstance(command, Fetch)), None)


def first_fetch(state: SourceState, count: int, at: float) -> Fetch | None:
    """The fetch with which a read begins now."""
    assert state.handle(ReadBegan(at)) == []
    return wanted(state, count, at)


def given_back(state: SourceState, records: list[RecordId], due_at: float) -> None:
    assert state.handle(RecordsGivenBack(tuple(records), due_at)) == []


def acknowledged_by(state: SourceState, records: list[RecordId]) -> None:
    assert state.handle(RecordsAcknowledged(tuple(records))) == []


def opened(at: float = 100.0) -> SourceState:
    state = SourceState(redeliver_seconds=60.0)
    state.handle(SessionOpened(at))
    own = first_fetch(state, 10, at)
    assert isinstance(own, FetchOwn)
    fetched(state, own, [], at=at)
    return state


def test_a_new_session_begins_with_earlier_records_of_the_replica() -> None:
    state = SourceState(redeliver_seconds=60.0)
    state.handle(SessionOpened(100.0))
    own = first_fetch(state, 5, 103.0)
    assert isinstance(own, FetchOwn)
    # All that was delivered before the handshake has been idle for longer than this.
    assert 2.9 < own.idle_seconds < 3.0
    assert fetched(state, own, [Found(ONE, 2)], at=103.0) == [ONE]
    again = wanted(state, 4, 103.0)
    assert isinstance(again, FetchOwn)
    fetched(state, again, [], at=103.0)
    assert wanted(state, 4, 103.0) == FetchNew(4)
    assert not isinstance(first_fetch(state, 4, 104.0), FetchOwn)


def test_new_records_are_fetched_once_a_read() -> None:
    state = opened()
    kinds = []
    state.handle(ReadBegan(101.0))
    while (fetch := wanted(state, 3, 101.0)) is not None:
        kinds.append(type(fetch))
        fetched(state, fetch, [], at=101.0)
    assert kinds == [FetchExpired, FetchNew]
    assert first_fetch(state, 0, 101.0) is None


def test_a_record_is_not_delivered_twice_in_a_session() -> None:
    state = opened()
    assert fetched(state, FetchNew(2), [Found(ONE, 1), Found(TWO, 1)], at=101.0) == [ONE, TWO]
    assert fetched(state, FetchExpired(60.0, 2), [Found(ONE, 2)], at=200.0) == []
    state.handle(SessionOpened(201.0))
    assert fetched(state, FetchOwn(0.0, 2), [Found(ONE, 3)], at=201.0) == [ONE]


def test_expired_records_are_looked_for_now_and_then_and_at_once_while_there_are_more() -> None:
    state = opened()
    assert first_fetch(state, 1, 101.0) == FetchExpired(60.0, 1)
    fetched(state, FetchExpired(60.0, 1), [Found(ONE, 2)], at=101.0)
    assert wanted(state, 1, 101.0) == FetchExpired(60.0, 1)
    fetched(state, FetchExpired(60.0, 1), [], at=101.0)
    assert first_fetch(state, 1, 101.5) == FetchNew(1)
    assert first_fetch(state, 1, 102.0) == FetchExpired(60.0, 1)


def test_room_is_bounded_by_unacknowledged_records() -> None:
    state = opened()
    for number in range(10):
        assert state.room(2) == min(2, max(0, 8 - number))
        fetched(state, FetchNew(1), [Found(RecordId(0, number), 1)], at=101.0)
    assert state.room(2) == 0
    acknowledged_by(state, [RecordId(0, number) for number in range(5)])
    assert state.room(2) == 2


def test_a_refused_record_is_delivered_again_after_its_delay() -> None:
    state = opened()
    fetched(state, FetchNew(2), [Found(ONE, 1), Found(TWO, 1)], at=101.0)
    refused = RecordsRefused((TWO, TWO, RecordId(7, 7)), 0)
    assert state.handle(refused) == [GiveBack((Found(TWO, 1),))]
    given_back(state, [TWO, RecordId(7, 7)], 102.5)
    assert state.outstanding == 1
    assert state.due_at == 102.5
    assert not isinstance(first_fetch(state, 5, 102.4), FetchAgain)
    # Never early, however it is found.
    assert fetched(state, FetchExpired(60.0, 2), [Found(TWO, 2)], at=102.4) == []
    again = first_fetch(state, 5, 102.5)
    assert again == FetchAgain((Found(TWO, 2),))
    assert fetched(state, again, [Found(TWO, 2)], at=102.5) == [TWO]
    assert not isinstance(wanted(state, 5, 103.0), FetchAgain)


def test_a_refused_record_that_is_acknowledged_does_not_come_again() -> None:
    state = opened()
    fetched(state, FetchNew(1), [Found(ONE, 1)], at=101.0)
    given_back(state, [ONE], 101.0)
    acknowledged_by(state, [ONE])
    assert first_fetch(state, 5, 102.0) == FetchAgain(())


def test_a_record_that_came_again_often_enough_is_given_up() -> None:
    state = opened()
    fetched(state, FetchNew(1), [Found(ONE, 1)], at=101.0)
    for deliveries in (1, 2):
        assert state.handle(RecordsRefused((ONE,), 2)) == [GiveBack((Found(ONE, deliveries),))]
        given_back(state, [ONE], 101.0)
        again = first_fetch(state, 1, 101.0)
        assert again == FetchAgain((Found(ONE, deliveries + 1),))
        fetched(state, again, [Found(ONE, deliveries + 1)], at=101.0)
    assert state.handle(RecordsRefused((ONE,), 2)) == [GiveUp((ONE,))]


def test_a_record_that_is_found_before_its_delay_is_over_comes_when_it_is() -> None:
    state = opened()
    early = [Found(ONE, 4, wait_seconds=2.0), Found(TWO, 2)]
    assert fetched(state, FetchExpired(60.0, 2), early, at=101.0) == [TWO]
    assert state.outstanding == 1
    assert state.due_at == 103.0
    assert first_fetch(state, 5, 103.0) == FetchAgain((Found(ONE, 4),))


def test_a_record_acknowledged_while_it_is_given_back_stays_acknowledged() -> None:
    state = opened()
    fetched(state, FetchNew(1), [Found(ONE, 1)], at=101.0)
    assert state.handle(RecordsRefused((ONE,), 0)) == [GiveBack((Found(ONE, 1),))]
    acknowledged_by(state, [ONE])
    given_back(state, [ONE], 101.0)
    assert state.due_at is None


@given(st.integers(0, 65_535), st.integers(0, 2**62))
def test_offsets_come_back_from_the_wire(partition_id: int, offset: int) -> None:
    record = RecordId(partition_id, offset)
    assert record_id(wire_offset(record)) == record


@given(st.binary(max_size=20))
def test_other_bytes_are_either_no_offset_or_exactly_one(wire: bytes) -> None:
    found = record_id(wire)
    assert found is None or record_id(wire_offset(found)) == found


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(1, 6)),
            st.tuples(st.just("ack"), st.integers(0, 30)),
            st.tuples(st.just("nack"), st.integers(0, 30)),
            st.tuples(st.just("open"), st.just(0)),
        ),
        max_size=60,
    )
)
def test_no_record_is_forgotten_and_never_more_than_requested_come(steps: list[tuple[str, int]]) -> None:
    """Compared with a group of thirty records: each is with the client, refused, acknowledged, still new, or to be
    found.
    """
    state = opened()
    new = [RecordId(0, n) for n in range(30)]
    given: set[RecordId] = set()
    acknowledged: set[RecordId] = set()
    backlog: list[RecordId] = []
    held: set[RecordId] = set()
    at = 101.0
    for what, number in steps:
        at += 1.0
        if what == "open":
            state.handle(SessionOpened(at))
            backlog, held = sorted(given - acknowledged), set()
        elif what == "read":
            room = state.room(number)
            got: list[RecordId] = []
            state.handle(ReadBegan(at))
            while (fetch := wanted(state, room - len(got), at)) is not None:
                found: list[Found] = []
                if isinstance(fetch, FetchOwn):
                    found = [Found(each, 2) for each in backlog[: fetch.count] if each not in acknowledged]
                    backlog = backlog[fetch.count :]
                elif isinstance(fetch, FetchAgain):
                    found = list(fetch.records)
                elif isinstance(fetch, FetchNew):
                    found = [Found(new.pop(0), 1) for _ in range(min(fetch.count, len(new)))]
                got += fetched(state, fetch, found, at=at)
                given.update(each.record for each in found)
            assert len(got) <= number
            assert not held & set(got)
            held.update(got)
            assert state.outstanding <= BATCHES_OUTSTANDING * 6
        else:
            record = RecordId(0, number)
            if what == "ack" and record in given:
                acknowledged_by(state, [record])
                acknowledged.add(record)
                held.discard(record)
            elif what == "nack" and record in held:
                given_back(state, [record], at)
                held.discard(record)
    # A client that reconnects and continues to read gets everything that was not acknowledged.
    state.handle(SessionOpened(at))
    own = first_fetch(state, 100, at)
    assert isinstance(own, FetchOwn)
    rest = [Found(each, 2) for each in sorted(given - acknowledged)]
    assert fetched(state, own, rest, at=at) == [each.record for each in rest]
