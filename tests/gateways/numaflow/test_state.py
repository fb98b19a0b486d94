"""Which records a client gets, and which again."""

from hypothesis import given
from hypothesis import strategies as st

from gateways.numaflow.partitions import RecordId, record_id, wire_offset
from gateways.numaflow.state import (
    BATCHES_OUTSTANDING,
    FetchAgain,
    FetchExpired,
    FetchNew,
    FetchOwn,
    Found,
    SourceState,
)

ONE, TWO = RecordId(0, 1), RecordId(0, 2)


def opened(at: float = 100.0) -> SourceState:
    state = SourceState(redeliver_seconds=60.0)
    state.session_opened(at)
    own = state.fetch(FetchOwn, 10, at)
    assert own is not None
    state.fetched(own, [], at)
    return state


def test_a_new_session_begins_with_what_the_replica_was_given_before_it() -> None:
    state = SourceState(redeliver_seconds=60.0)
    state.session_opened(100.0)
    assert state.fetches(103.0) == [FetchOwn, FetchNew]
    own = state.fetch(FetchOwn, 5, 103.0)
    assert isinstance(own, FetchOwn)
    # All that was delivered before the handshake has been idle for longer than this.
    assert 2.9 < own.idle_seconds < 3.0
    assert state.fetched(own, [Found(ONE, 2)], 103.0) == [ONE]
    assert FetchOwn in state.fetches(103.0)
    state.fetched(own, [], 103.0)
    assert FetchOwn not in state.fetches(104.0)


def test_what_the_client_has_is_not_given_twice_in_a_session() -> None:
    state = opened()
    assert state.fetched(FetchNew(2), [Found(ONE, 1), Found(TWO, 1)], 101.0) == [ONE, TWO]
    assert state.fetched(FetchExpired(60.0, 2), [Found(ONE, 2)], 200.0) == []
    state.session_opened(201.0)
    assert state.fetched(FetchOwn(0.0, 2), [Found(ONE, 3)], 201.0) == [ONE]


def test_expired_records_are_looked_for_now_and_then_and_at_once_while_there_are_more() -> None:
    state = opened()
    assert FetchExpired in state.fetches(101.0)
    state.fetched(FetchExpired(60.0, 1), [Found(ONE, 2)], 101.0)
    assert state.fetch(FetchExpired, 1, 101.0) == FetchExpired(60.0, 1)
    state.fetched(FetchExpired(60.0, 1), [], 101.0)
    assert FetchExpired not in state.fetches(101.5)
    assert FetchExpired in state.fetches(102.0)


def test_room_is_bounded_by_what_waits_for_acknowledgement() -> None:
    state = opened()
    for number in range(10):
        assert state.room(2) == min(2, max(0, 8 - number))
        state.fetched(FetchNew(1), [Found(RecordId(0, number), 1)], 101.0)
    assert state.room(2) == 0
    state.acknowledged([RecordId(0, number) for number in range(5)])
    assert state.room(2) == 2


def test_a_refused_record_comes_again_after_its_delay() -> None:
    state = opened()
    state.fetched(FetchNew(2), [Found(ONE, 1), Found(TWO, 1)], 101.0)
    assert state.judged([TWO, TWO, RecordId(7, 7)], 0) == ([Found(TWO, 1)], [])
    state.refused([TWO, RecordId(7, 7)], 102.5)
    assert state.outstanding == 1
    assert state.due_at == 102.5
    assert state.fetch(FetchAgain, 5, 102.4) is None
    # Not before its time, whatever else finds it.
    assert state.fetched(FetchExpired(60.0, 2), [Found(TWO, 2)], 102.4) == []
    again = state.fetch(FetchAgain, 5, 102.5)
    assert again == FetchAgain((Found(TWO, 2),))
    assert state.fetched(again, again.records, 102.5) == [TWO]
    assert state.fetch(FetchAgain, 5, 103.0) is None


def test_a_refused_record_that_is_acknowledged_does_not_come_again() -> None:
    state = opened()
    state.fetched(FetchNew(1), [Found(ONE, 1)], 101.0)
    state.refused([ONE], 101.0)
    state.acknowledged([ONE])
    assert state.fetch(FetchAgain, 5, 102.0) == FetchAgain(())


def test_a_record_that_came_again_often_enough_is_given_up() -> None:
    state = opened()
    state.fetched(FetchNew(1), [Found(ONE, 1)], 101.0)
    for deliveries in (1, 2):
        assert state.judged([ONE], 2) == ([Found(ONE, deliveries)], [])
        state.refused([ONE], 101.0)
        again = state.fetch(FetchAgain, 1, 101.0)
        assert again == FetchAgain((Found(ONE, deliveries + 1),))
        state.fetched(again, again.records, 101.0)
    assert state.judged([ONE], 2) == ([], [ONE])


def test_a_record_that_is_found_before_its_delay_is_over_comes_when_it_is() -> None:
    state = opened()
    assert state.fetched(FetchExpired(60.0, 2), [Found(ONE, 4, wait_seconds=2.0), Found(TWO, 2)], 101.0) == [TWO]
    assert state.outstanding == 1
    assert state.due_at == 103.0
    assert state.fetch(FetchAgain, 5, 103.0) == FetchAgain((Found(ONE, 4),))


def test_what_is_acknowledged_while_it_is_given_back_stays_so() -> None:
    state = opened()
    state.fetched(FetchNew(1), [Found(ONE, 1)], 101.0)
    assert state.judged([ONE], 0) == ([Found(ONE, 1)], [])
    state.acknowledged([ONE])
    state.refused([ONE], 101.0)
    assert state.due_at is None


@given(st.integers(0, 65_535), st.integers(0, 2**62))
def test_offsets_come_back_from_the_wire(partition_id: int, offset: int) -> None:
    record = RecordId(partition_id, offset)
    assert record_id(wire_offset(record)) == record


@given(st.binary(max_size=20))
def test_other_bytes_are_no_offset_of_ours_or_are_exactly_one(wire: bytes) -> None:
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
def test_no_record_is_forgotten_and_never_more_than_asked_for_come(steps: list[tuple[str, int]]) -> None:
    """Against a group of thirty records: each is with the client, refused, acknowledged, still new, or to be found."""
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
            state.session_opened(at)
            backlog, held = sorted(given - acknowledged), set()
        elif what == "read":
            room = state.room(number)
            got: list[RecordId] = []
            for kind in state.fetches(at):
                while (fetch := state.fetch(kind, room - len(got), at)) is not None:
                    found: list[Found] = []
                    if isinstance(fetch, FetchOwn):
                        found = [Found(each, 2) for each in backlog[: fetch.count] if each not in acknowledged]
                        backlog = backlog[fetch.count :]
                    elif isinstance(fetch, FetchAgain):
                        found = list(fetch.records)
                    elif isinstance(fetch, FetchNew):
                        found = [Found(new.pop(0), 1) for _ in range(min(fetch.count, len(new)))]
                    got += state.fetched(fetch, found, at)
                    given.update(each.record for each in found)
                    if isinstance(fetch, FetchNew):
                        break
            assert len(got) <= number
            assert not held & set(got)
            held.update(got)
            assert state.outstanding <= BATCHES_OUTSTANDING * 6
        else:
            record = RecordId(0, number)
            if what == "ack" and record in given:
                state.acknowledged([record])
                acknowledged.add(record)
                held.discard(record)
            elif what == "nack" and record in held:
                state.refused([record], at)
                held.discard(record)
    # Whoever connects anew and reads on gets all that was not acknowledged.
    state.session_opened(at)
    own = state.fetch(FetchOwn, 100, at)
    assert isinstance(own, FetchOwn)
    rest = [Found(each, 2) for each in sorted(given - acknowledged)]
    assert state.fetched(own, rest, at) == [each.record for each in rest]
