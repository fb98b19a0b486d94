from __future__ import annotations

from typing import Any

import pytest

from sandbox.behaviour.faults import Fault, FaultRules


def hits(rules: FaultRules, count: int, path: str = "/api/v3/klines", *, symbol: str | None = "BTCUSDT") -> list[int]:
    return [n for n in range(count) if rules.for_request(path, symbol) is not None]


def test_rule_strikes_count_matches_after_the_first_ones() -> None:
    rules = FaultRules()
    rules.add(Fault(kind="empty", path="/api/v3/*", after=2, count=3))
    assert hits(rules, 10) == [2, 3, 4]


def test_rule_without_a_count_strikes_until_it_is_removed() -> None:
    rules = FaultRules()
    number = rules.add(Fault(kind="empty"))
    assert hits(rules, 3) == [0, 1, 2]
    assert rules.remove(number)
    assert not rules.remove(number)
    assert hits(rules, 3) == []


def test_rule_for_a_symbol_leaves_others_alone() -> None:
    rules = FaultRules()
    rules.add(Fault(kind="empty", symbol="ETH/USDT"))
    assert hits(rules, 2) == []
    assert hits(rules, 2, symbol="ETHUSDT") == [0, 1]


def test_rule_for_another_path_does_not_count() -> None:
    rules = FaultRules()
    rules.add(Fault(kind="empty", path="/api/v3/klines", count=1))
    assert hits(rules, 5, path="/api/v3/time") == []
    assert hits(rules, 5) == [0]


def test_probability_is_drawn_from_the_seed() -> None:
    struck = []
    for _ in range(2):
        rules = FaultRules(seed=5)
        rules.add(Fault(kind="empty", probability=0.3))
        struck.append(hits(rules, 400))
    assert struck[0] == struck[1]
    assert 80 < len(struck[0]) < 160


def test_stream_rules_do_not_strike_requests_nor_the_reverse() -> None:
    rules = FaultRules()
    rules.add(Fault(kind="drop"))
    assert hits(rules, 2) == []
    assert rules.any_for_streams()
    assert rules.for_trade("/ws", "BTCUSDT") == Fault(kind="drop")
    rules.clear()
    rules.add(Fault(kind="empty"))
    assert not rules.any_for_streams()
    assert rules.for_trade("/ws", "BTCUSDT") is None


def test_cut_of_a_connection_happens_once_by_default() -> None:
    rules = FaultRules()
    rules.add(Fault(kind="abort", after=1))
    struck = [rules.for_trade("/ws", "BTCUSDT") is not None for _ in range(4)]
    assert struck == [False, True, False, False]


@pytest.mark.parametrize(
    "wrong", [{"kind": "nonsense"}, {"kind": "drop", "probability": 2}, {"kind": "drop", "count": -1}]
)
def test_impossible_rule_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"kind|probability"):
        Fault(**wrong)
