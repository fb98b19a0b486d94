from __future__ import annotations

from sandbox.behaviour.faults import Fault
from sandbox.serving.state import Command, ExchangeState, Refuse, RequestArrived, Serve


def ask(state: ExchangeState, at: float, weight: int = 2) -> Command:
    [command] = state.handle(RequestArrived("/api/v3/klines", "BTCUSDT", weight, at))
    return command


def test_weight_adds_up_within_a_minute_and_restarts_in_the_next() -> None:
    state = ExchangeState()
    assert ask(state, 0.0) == Serve(2)
    assert ask(state, 59.9) == Serve(4)
    assert ask(state, 60.0) == Serve(2)


def test_more_than_the_limit_is_429_until_the_minute_ends() -> None:
    state = ExchangeState(weight_limit=4)
    ask(state, 10.0)
    ask(state, 10.0)
    assert ask(state, 40.0) == Refuse(429, 6, 21)
    assert ask(state, 60.0) == Serve(2)


def test_client_that_continues_is_banned_and_accepted_again_after_the_ban() -> None:
    state = ExchangeState(weight_limit=2, ban_seconds=120)
    verdicts = [ask(state, 1.0) for _ in range(40)]
    assert [v.status for v in verdicts if isinstance(v, Refuse)] == [429] * 30 + [418] * 9
    later = ask(state, 90.0)
    assert isinstance(later, Refuse)
    assert (later.status, later.retry_after_seconds) == (418, 32)
    assert isinstance(ask(state, 121.0), Serve)
    assert state.refused == {429: 30, 418: 10}


def test_limit_can_be_switched_off_and_weight_is_still_counted() -> None:
    state = ExchangeState(rate_limit=False, weight_limit=1)
    assert ask(state, 0.0, weight=100) == Serve(100)


def test_fault_comes_with_the_verdict_and_is_counted() -> None:
    state = ExchangeState()
    state.faults.add(Fault(kind="html", count=1))
    assert ask(state, 0.0) == Serve(2, Fault(kind="html", count=1))
    assert ask(state, 0.0) == Serve(4)
    assert state.struck == {"html": 1}
    assert state.requests == {"/api/v3/klines": 2}
