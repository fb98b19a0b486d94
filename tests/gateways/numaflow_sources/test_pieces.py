"""What a reader remembers about its publishes."""

from gateways.numaflow_sources.pieces import BATCH_BYTES, PublishedPieces
from tests.gateways.numaflow_sources.source_server import result


def test_the_largest_record_seen_limits_the_size_of_requests() -> None:
    pieces = PublishedPieces(1, 500)
    assert pieces.batch_records == 500
    pieces.weighed(BATCH_BYTES // 10)
    pieces.weighed(1)
    assert pieces.batch_records == 10
    pieces.weighed(BATCH_BYTES * 2)
    assert pieces.batch_records == 1


def test_an_offset_is_known_by_its_partition_too_and_once_in_a_batch() -> None:
    pieces = PublishedPieces(1, 500)
    first, other = result(b"1", b"a"), result(b"1", b"b", partition_id=1)
    assert pieces.fresh([first, other, first]) == [first, other]
    pieces.add([first])
    assert pieces.fresh([first, other]) == [other]


def test_numbers_of_publishes_grow_over_starts() -> None:
    earlier, later = PublishedPieces(7, 500), PublishedPieces(8, 500)
    numbers = [earlier.next_number() for _ in range(3)]
    later.restore([(number, [result(b"%d" % number, b"")]) for number in numbers])
    assert later.next_number() > numbers[-1]
    assert later.fresh([result(b"%d" % numbers[0], b"")]) == []
