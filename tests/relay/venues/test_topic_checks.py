from relay.settings import RelayLimits
from relay.venues.ticker_judge import Verdict
from relay.venues.topic_checks import TopicChecks

LIMITS = RelayLimits(max_live_topics=3, unserved_retry_seconds=5.0)


def test_each_subscription_checks_its_topic_again() -> None:
    checks = TopicChecks(LIMITS)
    for at in (1.0, 2.0):
        checks.subscribed("a", at)
        assert checks.due(at, 10) == ["a"]
        assert checks.judged("a", Verdict.WRONG, at)
        assert checks.due(at + 100.0, 10) == []
    checks.subscribed("a", 3.0)
    assert not checks.judged("a", Verdict.FINE, 3.0)
    assert len(checks) == 0


def test_a_topic_that_cannot_be_judged_yet_is_checked_again() -> None:
    checks = TopicChecks(LIMITS)
    checks.subscribed("a", 0.0)
    for at in (0.0, 5.0, 10.0):
        assert checks.due(at, 10) == ["a"]
        assert not checks.judged("a", Verdict.OPEN, at)
        assert checks.due(at + 4.9, 10) == []
    assert checks.judged("a", Verdict.WRONG, 15.0)


def test_an_unknown_venue_waits_a_moment_for_its_gateway() -> None:
    checks = TopicChecks(LIMITS)
    checks.subscribed("a", 0.0)
    assert not checks.judged("a", Verdict.UNKNOWN_VENUE, 0.0)
    assert checks.due(5.0, 10) == ["a"]
    assert checks.judged("a", Verdict.UNKNOWN_VENUE, 5.0)
    assert len(checks) == 0


def test_no_notice_is_sent_after_the_last_subscriber_left() -> None:
    checks = TopicChecks(LIMITS)
    checks.subscribed("a", 0.0)
    checks.left("a")
    assert checks.due(1.0, 10) == []


def test_waiting_topics_are_bounded_and_those_that_wait_longer_go_first() -> None:
    checks = TopicChecks(LIMITS)
    assert [checks.subscribed(name, 0.0) for name in "abcda"] == [True, True, True, False, True]
    assert checks.due(0.0, 2) == ["a", "b"]
    checks.judged("a", Verdict.OPEN, 0.0)
    assert checks.due(5.0, 3) == ["b", "c", "a"]
