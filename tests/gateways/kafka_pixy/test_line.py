"""Which call gets which message, without a bus, a clock or a socket."""

from hypothesis import given
from hypothesis import strategies as st

from bus.api import GroupRecord, StoredRecord
from gateways.kafka_pixy.line import READ_AHEAD_SECONDS, Line, Want


def offered(offset: int, deliveries: int = 1, partition: int = 0) -> GroupRecord:
    return GroupRecord(
        StoredRecord(topic="t", partition=partition, offset=offset, timestamp_ms=0, key=None, value=b"", headers={}),
        deliveries,
    )


def line(capacity: int = 3, max_pending: int = 10, max_retries: int = -1, **fields: object) -> Line[str]:
    return Line(capacity=capacity, max_pending=max_pending, max_retries=max_retries, partitions=2, **fields)  # type: ignore[arg-type]


def given_to(own: Line[str], now: float = 0.0) -> list[tuple[str, int]]:
    return [(each.call, each.offered.record.offset) for each in own.hand_out(now)]


def test_calls_are_served_in_order_of_arrival_and_only_as_many_wait_as_fit() -> None:
    own = line(capacity=2)
    assert [own.join(name, 3.0) for name in "abc"] == [True, True, False]
    own.offer([offered(0), offered(1), offered(2)], 0.0)
    assert given_to(own) == [("a", 0), ("b", 1)]
    assert own.join("c", 3.0)
    assert given_to(own) == [("c", 2)]


def test_a_call_whose_time_is_up_gets_nothing_though_there_is_something() -> None:
    own = line()
    own.join("late", 1.0)
    own.join("early", 3.5)
    own.offer([offered(0)], 1.0)
    assert given_to(own, now=1.0) == [("early", 0)]
    assert own.leave("late")
    assert not own.leave("late")


def test_redelivered_records_go_first_in_order() -> None:
    own = line()
    own.offer([offered(8), offered(9)], 0.0)
    assert own.offer_again([offered(5, 2), offered(3, 4)], 0.0) == []
    for name in "abc":
        own.join(name, 3.0)
    assert given_to(own) == [("a", 3), ("b", 5), ("c", 8)]


def test_a_record_is_not_redelivered_beyond_its_limit() -> None:
    own = line(max_retries=1)
    spent = own.offer_again([offered(0, 3), offered(1, 2)], 0.0)
    assert [each.record.offset for each in spent] == [0]
    own.join("a", 3.0)
    own.join("b", 3.0)
    assert given_to(own) == [("a", 1)]
    # Only once.
    assert len(line(max_retries=0).offer_again([offered(0, 2)], 0.0)) == 1


def test_an_acknowledgement_removes_a_record_that_waits_for_redelivery() -> None:
    own = line()
    own.offer_again([offered(0, 2), offered(1, 2)], 0.0)
    own.acknowledged([(0, 0), (1, 1)])
    own.join("a", 3.0)
    assert given_to(own) == [("a", 1)]


def test_cancelled_calls_leave_their_messages_to_the_next_ones_in_order() -> None:
    own = line()
    own.offer([offered(0), offered(1), offered(2)], 0.0)
    own.join("a", 3.0)
    own.join("b", 3.0)
    for each in own.hand_out(0.0):
        own.take_back(each.offered)
    for name in "cde":
        own.join(name, 3.0)
    assert given_to(own) == [("c", 0), ("d", 1), ("e", 2)]


def test_a_partition_with_too_much_unacknowledged_is_not_read() -> None:
    own = line(max_pending=3)
    assert own.want(0.0) is None
    own.join("a", 3.0)
    own.join("b", 3.0)
    assert own.want(0.0) == Want(2, (0, 1))
    own.set_pending({0: 3, 1: 2})
    assert own.is_held_back
    assert own.want(0.0) == Want(1, (1,))
    own.add_pending(1, 1)
    assert own.want(0.0) is None
    own.add_pending(0, -2)
    assert own.want(0.0) == Want(2, (0,))


def test_calls_that_come_fast_are_read_ahead_for_unless_others_wait_elsewhere() -> None:
    for reads_ahead, records in ((True, 3), (False, 1)):
        own = line(reads_ahead=reads_ahead)
        own.offer([offered(0), offered(1)], 0.0)
        own.join("a", 3.0)
        own.join("b", 3.0)
        own.hand_out(0.0)
        own.join("c", 3.0)
        assert own.want(0.01) == Want(records, (0, 1))
        assert own.want(0.01 + 2 * READ_AHEAD_SECONDS) == Want(1, (0, 1))


def test_unclaimed_records_are_given_back_after_a_moment() -> None:
    own = line()
    own.offer([offered(0)], 1.0)
    assert own.give_up(1.0 + READ_AHEAD_SECONDS / 2) == []
    assert [each.record.offset for each in own.give_up(1.0 + READ_AHEAD_SECONDS)] == [0]
    assert own.buffered == 0


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 5)),
        st.tuples(st.just("leave"), st.integers(0, 30)),
        st.tuples(st.just("offer"), st.integers(1, 4)),
        st.tuples(st.just("again"), st.integers(1, 3)),
        st.tuples(st.just("back"), st.just(0)),
        st.tuples(st.just("time"), st.integers(1, 3)),
    ),
    max_size=60,
)


@given(_STEPS)
def test_each_record_is_in_one_place_and_offsets_ascend(steps: list[tuple[str, int]]) -> None:
    own: Line[int] = Line(capacity=4, max_pending=10, max_retries=-1, partitions=1)
    now, calls, offsets = 0.0, 0, 0
    deadlines: dict[int, float] = {}
    held: list[GroupRecord] = []
    inside: dict[int, set[int]] = {1: set(), 2: set()}
    for step, number in steps:
        if step == "join":
            if own.join(calls, now + number):
                deadlines[calls] = now + number
            calls += 1
        elif step == "leave":
            own.leave(number)
        elif step == "time":
            now += number
        elif step == "back" and held:
            own.take_back(held[-1])
            inside[held[-1].deliveries].add(held.pop().record.offset)
        elif step in ("offer", "again"):
            records = [offered(offsets + each, 1 if step == "offer" else 2) for each in range(number)]
            offsets += number
            inside[records[0].deliveries] |= {each.record.offset for each in records}
            if step == "offer":
                own.offer(records, now)
            else:
                own.offer_again(records, now)
        for each in own.hand_out(now):
            assert deadlines[each.call] > now
            assert each.offered.record.offset == min(inside[each.offered.deliveries])
            inside[each.offered.deliveries].remove(each.offered.record.offset)
            held.append(each.offered)
        assert own.buffered == sum(map(len, inside.values()))
        assert len(own) <= 4
    places = [each.record.offset for each in (*held, *own.clear())]
    assert sorted(places) == list(range(offsets))
