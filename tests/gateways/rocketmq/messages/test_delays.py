from gateways.rocketmq.messages.delays import check_delay, nack_delay


def test_the_last_delay_holds_for_all_further_attempts() -> None:
    assert [nack_delay((1.0, 2.0), attempt) for attempt in (0, 1, 2, 3, 99)] == [1.0, 1.0, 2.0, 2.0, 2.0]
    assert nack_delay((), 1) == 0.0


def test_senders_are_asked_at_growing_intervals() -> None:
    assert [check_delay(6.0, asked) for asked in range(6)] == [6.0, 12.0, 24.0, 48.0, 60.0, 60.0]
