"""A flood of requests is slowed down only while other clients wait."""

from relay.doors.pace import FLOOD_MESSAGES, MAX_REST_SECONDS, Pace

CROWD, OTHER = b"crowd", b"other"
ROUND = [CROWD] * 64


def flood(pace: Pace, start: float = 0.0) -> float:
    """Rounds of 10 ms each; the time after them."""
    for number in range(FLOOD_MESSAGES // len(ROUND) + 1):
        start += 0.01
        assert pace.rest(ROUND, 0.01, start) == 0 or number == FLOOD_MESSAGES // len(ROUND)
    return start


def test_a_flood_alone_is_taken_at_full_speed() -> None:
    pace = Pace()
    at = flood(pace)
    assert pace.rest(ROUND, 0.01, at + 0.01) == 0


def test_a_flood_is_paused_while_another_client_waits() -> None:
    pace = Pace()
    at = flood(pace)
    assert pace.rest([*ROUND, OTHER], 0.01, at) == 0.02
    assert pace.rest(ROUND, 10.0, at) == MAX_REST_SECONDS
    for later in range(1, 40):
        rest = pace.rest(ROUND, 0.01, at + later * 0.9)
    assert rest == 0, "the other one has been silent for long"


def test_a_flood_ends_with_a_pause() -> None:
    pace = Pace()
    at = flood(pace)
    assert pace.rest([*ROUND, OTHER], 0.01, at + 5) == 0


def test_many_clients_with_few_messages_are_not_a_flood() -> None:
    pace = Pace()
    for number in range(FLOOD_MESSAGES):
        assert pace.rest([b"%d" % number], 0.01, number / 1_000) == 0
    for number in range(100):
        assert pace.rest([b"%d" % number], 0.01, 10 + 2.0 * number) == 0
    assert len(pace._seen) < 20
