"""When gaps are requested again."""

from itertools import pairwise

from ingestor.realtime.owed import AGAIN_SECONDS, GIVEN_UP_SECONDS, LONGEST_SECONDS, MAX_OWED, OwedGaps
from ingestor.realtime.stream import Lost, Repair

REPAIR = Repair((1, 1, 1.0, 1.0, 1, "1", 1))
LOST = (Lost(from_id="2", to_id="3", from_time=1, to_time=2, missing=2, reason="no answer"),)


def test_a_gap_is_requested_at_growing_intervals_and_finally_given_up() -> None:
    owed = OwedGaps()
    owed.add(REPAIR, LOST, 0.0)
    at, asked = 0.0, []
    while len(owed) and at < 2 * GIVEN_UP_SECONDS:
        if owed.next_due(at) is not None:
            assert owed.next_due(at) is None
            asked.append(at)
            owed.unanswered(at)
        at += 1.0
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert asked[0] == AGAIN_SECONDS and pauses[0] == 2 * AGAIN_SECONDS and pauses[-1] == LONGEST_SECONDS
    assert GIVEN_UP_SECONDS - LONGEST_SECONDS <= asked[-1] <= GIVEN_UP_SECONDS + LONGEST_SECONDS


def test_an_answered_gap_is_not_requested_again_and_others_take_their_turn() -> None:
    owed = OwedGaps()
    for number in range(MAX_OWED + 1):
        owed.add(REPAIR, LOST, float(number))
    assert len(owed) == MAX_OWED
    first = owed.next_due(1_000.0)
    assert first is not None and first.since == 1.0
    owed.answered()
    assert len(owed) == MAX_OWED - 1
    second = owed.next_due(1_000.0)
    assert second is not None and second.since == 2.0
