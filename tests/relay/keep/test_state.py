"""Decisions about what is kept fresh, without a bus."""

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.errors import InvalidRequest
from core.settings_keep import KeepSettings, Pattern
from relay.keep.rules import Listed, Rule, wanted_series
from relay.keep.series import CHECK_EVERY, REQUEST_CANDLES, SETTLE_NS, Series
from relay.keep.state import (
    MAX_OPEN,
    Cancel,
    Command,
    Ended,
    Forget,
    KeepState,
    Restored,
    RulesRead,
    Save,
    Submit,
    TimePassed,
)

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
START = 1_704_067_200 * SECOND
#: Three requests, some minutes later.
NOW = START + 120_000 * MINUTE + SETTLE_NS
BINANCE = {"BINANCE": Listed(frozenset({"BTC/USDT", "ETH/USDT", "ETH/BTC"}))}


def rule(*tickers: str, periods: Sequence[str] = ("1m",), since: str = "2024-01-01") -> Rule:
    return Rule.of("r", KeepSettings(tickers=tickers, periods=tuple(periods), since=since), is_added=True)


class Keeping:
    """The state, and what it has saved."""

    def __init__(self, *rules: Rule, at: int = NOW) -> None:
        self._numbers = count()
        self.saved: dict[str, bytes] = {}
        self.at = at
        self.state = self._state()
        self.read(*rules)

    def _state(self) -> KeepState:
        return KeepState(lambda: f"keep:{next(self._numbers)}", HOUR)

    def do(self, commands: list[Command]) -> list[Command]:
        for each in commands:
            if isinstance(each, Save):
                self.saved[each.series.key.name] = each.series.to_bytes()
            elif isinstance(each, Forget):
                del self.saved[each.key.name]
        return commands

    def read(self, *rules: Rule, venues: dict[str, Listed] = BINANCE) -> list[Command]:
        return self.do(self.state.handle(RulesRead(rules, venues, self.at)))

    def ask(self, later: int = 0) -> list[Submit]:
        self.at += later
        return [each for each in self.do(self.state.handle(TimePassed(self.at))) if isinstance(each, Submit)]

    def end(self, submit: Submit, *, is_empty: bool = False, closed_until: int = 0, error: str = "") -> None:
        name = submit.asked.request_id
        self.do(self.state.handle(Ended(name, not error, is_empty, error, closed_until, self.at)))

    def killed(self) -> list[Submit]:
        """Start again after kill -9; returns the requests that the new state submits."""
        self.state = self._state()
        restored = [Series.from_bytes(value) for value in self.saved.values()]
        return [each for each in self.state.handle(Restored(restored, self.at)) if isinstance(each, Submit)]

    def series(self, ticker: str = "BTC/USDT.BINANCE") -> Series:
        return Series.from_bytes(self.saved[f"{ticker} 60"])


def minutes(submit: Submit) -> tuple[int, int]:
    return (submit.asked.start - START) // MINUTE, (submit.asked.end - START) // MINUTE


BTC = rule("BTC/USDT.BINANCE")


def test_history_is_fetched_range_by_range_up_to_the_last_closed_candle() -> None:
    keeping = Keeping(BTC)
    ranges = []
    while asked := keeping.ask():
        ranges += [minutes(each) for each in asked]
        keeping.end(asked[0])
    assert ranges == [(0, 50_000), (50_000, 100_000), (100_000, 120_000)]
    assert keeping.state.summary(NOW)[0]["behind"] == 0


def test_fresh_candles_are_requested_again_after_a_while() -> None:
    keeping = Keeping(BTC)
    while asked := keeping.ask():
        keeping.end(asked[0])
    assert keeping.ask(later=14 * MINUTE) == []
    [update] = keeping.ask(later=MINUTE)
    assert minutes(update) == (120_000, 120_015)


def test_unclosed_candles_are_requested_again() -> None:
    keeping = Keeping(rule("BTC/USDT.BINANCE", since="2024-03-24T07:00:00Z"))
    [asked] = keeping.ask()
    keeping.end(asked, closed_until=asked.asked.end - MINUTE)
    [again] = keeping.ask(later=15 * MINUTE)
    assert again.asked.start == asked.asked.end - MINUTE


def test_wildcards_follow_the_markets_of_the_venue() -> None:
    keeping = Keeping(rule("*/USDT.BINANCE"))
    assert {each.key.ticker for each in keeping.ask()} == {"BTC/USDT.BINANCE", "ETH/USDT.BINANCE"}
    keeping.read(rule("*/USDT.BINANCE"), venues={"BINANCE": Listed(frozenset({"BTC/USDT", "NEW/USDT"}))})
    assert [each.key.ticker for each in keeping.ask()] == ["NEW/USDT.BINANCE"]
    assert keeping.series("ETH/USDT.BINANCE").ended_at == NOW


def test_a_delisted_market_is_fetched_to_its_end_and_then_finished() -> None:
    keeping = Keeping(BTC)
    while asked := keeping.ask():
        keeping.end(asked[0])
    keeping.at += 5 * MINUTE
    keeping.read(BTC, venues={"BINANCE": Listed(frozenset())})
    [last] = keeping.ask()
    assert minutes(last) == (120_000, 120_005)
    keeping.end(last, error="UNKNOWN_TICKER: BTC/USDT is not listed")
    assert keeping.ask(later=48 * HOUR) == []
    [summary] = keeping.state.summary(keeping.at)
    assert (summary["ended"], summary["failing"]) == (1, 0)
    keeping.read(BTC)
    assert minutes(keeping.ask()[0])[0] == 120_000, "listed again"


def test_a_venue_that_no_ingestor_serves_ends_no_market() -> None:
    keeping = Keeping(BTC)
    keeping.read(BTC, venues={})
    assert keeping.ask() == []
    assert keeping.series().ended_at == 0
    [summary] = keeping.state.summary(NOW)
    assert summary["error"] == "no ingestor serves BINANCE"


def test_a_removed_rule_ends_its_request() -> None:
    keeping = Keeping(BTC)
    [asked] = keeping.ask()
    commands = keeping.read()
    assert Cancel(asked.asked.request_id) in commands
    assert keeping.saved == {} and keeping.state.is_idle and keeping.state.open_requests == []


def test_an_earlier_rule_starts_afresh() -> None:
    keeping = Keeping(BTC)
    [asked] = keeping.ask()
    commands = keeping.read(BTC, rule("BTC/*.BINANCE", since="2023-12-31"))
    assert Cancel(asked.asked.request_id) in commands
    assert minutes(keeping.ask()[0])[0] == -1_440


def test_a_failed_range_is_retried_later() -> None:
    keeping = Keeping(BTC)
    [asked] = keeping.ask()
    keeping.end(asked, error="UNAVAILABLE: the exchange is down")
    assert keeping.ask(later=30 * SECOND) == []
    assert keeping.state.summary(keeping.at)[0]["error"] == "UNAVAILABLE: the exchange is down"
    [again] = keeping.ask(later=30 * SECOND)
    assert minutes(again) == minutes(asked)
    keeping.end(again, error="UNAVAILABLE: the exchange is down")
    assert keeping.ask(later=MINUTE) == []
    assert minutes(keeping.ask(later=MINUTE)[0]) == minutes(asked)


def test_a_venue_without_old_candles_is_kept_from_its_first_one_on() -> None:
    keeping = Keeping(BTC)
    keeping.read(BTC, venues={"BINANCE": Listed(frozenset({"BTC/USDT"}), depth_candles=720)})
    [asked] = keeping.ask()
    keeping.end(asked, error="DEPTH: it keeps 720 candles")
    [rest] = keeping.ask()
    assert minutes(rest) == (120_000 - 719, 120_000)


def test_empty_ranges_grow() -> None:
    keeping = Keeping(rule("BTC/USDT.BINANCE", since="2020-01-01"))
    lengths = []
    for _ in range(3):
        [asked] = keeping.ask()
        lengths.append((asked.asked.end - asked.asked.start) // MINUTE)
        keeping.end(asked, is_empty=True)
    assert lengths == [REQUEST_CANDLES, 2 * REQUEST_CANDLES, 4 * REQUEST_CANDLES]


def test_once_a_day_gaps_are_looked_for_in_everything() -> None:
    keeping = Keeping(BTC)
    while asked := keeping.ask():
        keeping.end(asked[0])
    checks = []
    for _ in range(100):
        keeping.at += 15 * MINUTE
        while asked := keeping.ask():
            keeping.end(asked[0])
            if asked[0].asked.is_check:
                checks.append((minutes(asked[0]), keeping.at))
    (checked, at), *more = checks
    assert checked[0] == 0 and checked[1] >= 120_000 and at - NOW >= CHECK_EVERY
    assert more == []


def test_few_requests_of_a_venue_are_open_and_updates_take_turns_with_history() -> None:
    symbols = frozenset(f"A{number}/USDT" for number in range(40))
    many = rule("*/USDT.BINANCE")
    keeping = Keeping()
    keeping.read(many, venues={"BINANCE": Listed(symbols)})
    assert len(keeping.ask()) == MAX_OPEN
    assert keeping.ask() == []


def test_a_request_without_an_end_is_given_up() -> None:
    keeping = Keeping(BTC)
    [asked] = keeping.ask()
    assert keeping.ask(later=HOUR) == []
    keeping.ask(later=6 * MINUTE)
    [again] = keeping.ask(later=2 * MINUTE)
    assert minutes(again) == minutes(asked) and again.asked.request_id != asked.asked.request_id


def test_the_end_is_estimated_from_the_speed() -> None:
    keeping = Keeping(BTC)
    for _ in range(2):
        [asked] = keeping.ask()
        keeping.at += MINUTE
        keeping.end(asked)
    [summary] = keeping.state.summary(keeping.at)
    assert summary["candles_per_second"] == pytest.approx(100_000 / 120, rel=0.01)
    assert summary["done_at"] - keeping.at == pytest.approx(20_002 / (100_000 / 120) * SECOND, rel=0.01)


@given(st.lists(st.sampled_from(("ok", "empty", "fails", "killed", "killed at its end")), max_size=30))
def test_no_candle_is_skipped_in_any_order_of_events(story: list[str]) -> None:
    """Each range begins where the proven ones end, and a restart asks for the same one under the same id."""
    keeping = Keeping(rule("BTC/USDT.BINANCE", since="2021-01-01"))
    reached = keeping.series().since
    for step in story:
        [asked] = keeping.ask(later=2 * HOUR)
        assert asked.asked.start == reached
        if step.startswith("killed"):
            assert keeping.killed() == [asked]
            keeping.read(rule("BTC/USDT.BINANCE", since="2021-01-01"))
        keeping.end(asked, is_empty=step == "empty", error="TIMEOUT: x" if step == "fails" else "")
        reached = reached if step == "fails" else asked.asked.end
        assert keeping.series().until == reached


@pytest.mark.parametrize(
    "text", ["*", "*/USDT", "*/USDT.*", "BTCUSDT.BINANCE", "*/USDT.binance", ".BINANCE", "*" * 200]
)
def test_a_bad_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"pattern|ticker"):
        Pattern.parse(text)


def test_several_rules_for_one_series_become_the_widest() -> None:
    wide = Rule.of("w", KeepSettings(tickers=("BTC/*.BINANCE",), since="2020-01-01", every_seconds=60), is_added=False)
    assert wanted_series([BTC, wide], BINANCE) == wanted_series([wide], BINANCE)
