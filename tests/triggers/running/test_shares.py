"""Only a slow trigger falls behind."""

from collections.abc import Iterator

import pytest

from protobuf import records_pb2 as records
from tests.triggers.trigger_records import IN_ORDER, OTHER, TICKER, V_SHAPE, prices, register, remove
from triggers.partition import TriggerOutput, TriggerPartition
from triggers.running import shares
from triggers.texts.check import TriggerRules

pytestmark = pytest.mark.timeout(30)

#: A limit that no text with state can meet, so that each is slow.
RULES = TriggerRules(share_ns=1, waiting_rows=10)
ALERT = "price > 0"


@pytest.fixture(autouse=True)
def one_row_a_step() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shares, "_ROW_NS", 0)
        yield


def ids(output: TriggerOutput) -> list[str]:
    return [event.trigger_id for event in output.events]


def fallen_behind(*controls: bytes, rules: TriggerRules = RULES) -> TriggerPartition:
    """After two steps of one trade each."""
    partition = TriggerPartition(rules)
    partition.process([], controls=controls)
    for number in (1, 2):
        partition.process([prices(number, 1.0)])
    assert not partition.is_behind
    return partition


def costs(partition: TriggerPartition) -> dict[str, records.TriggerCost]:
    partition.segments()
    return {cost.trigger_id: cost for cost in partition.costs().costs}


def test_others_get_all_rows_at_once_and_the_slow_one_its_rows_in_later_steps() -> None:
    partition = fallen_behind(register("slow", IN_ORDER, TICKER), register("alert", ALERT, TICKER))
    assert ids(partition.process([prices(3, 2.0, 3.0, 4.0)])) == ["alert"] * 3 + ["slow"]
    cost = costs(partition)["slow"]
    assert (cost.waiting_rows, cost.behind_ns) == (2, 1_000_000_000)
    assert cost.row_ns > 0
    assert partition.is_behind
    partition = TriggerPartition.load(partition.save(), RULES)
    assert [ids(partition.process([])) for _ in range(2)] == [["slow"], ["slow"]]
    assert not partition.is_behind
    assert costs(partition)["slow"].waiting_rows == 0


def test_slow_triggers_take_turns_even_after_a_restart() -> None:
    slow = [register(name, f"{IN_ORDER} WHERE price > {place}", TICKER) for place, name in enumerate(("a", "b", "c"))]
    partition = fallen_behind(*slow)
    found = ids(partition.process([prices(3, 9.0, 9.0)]))
    while partition.is_behind:
        partition = TriggerPartition.load(partition.save(), RULES)
        found += ids(partition.process([]))
    assert sorted(found[:3]) == sorted(found[3:]) == ["a", "b", "c"]


def test_rows_of_a_ticker_that_comes_first_while_others_wait_keep_their_place() -> None:
    """They do not go to the end of the queue, after tickers that fall silent meanwhile."""
    pairs = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES A.price AS a, B.price AS b "
        "PATTERN (A B) DEFINE B AS B.ticker <> A.ticker)"
    )
    found = {}
    for share_ns in (0, 1):
        rules = TriggerRules(share_ns=share_ns, waiting_rows=1_000, idle_ns=1_000_000_000)
        slow = [register("first", IN_ORDER), register("pairs", pairs, TICKER, OTHER)]
        partition = fallen_behind(*slow, rules=rules)
        output = [partition.process([prices(3, 1.0, 2.0), prices(3, 7.0, 8.0, ticker=OTHER)], now_ns=1)]
        output.append(partition.process([], now_ns=10**12))
        assert partition.is_behind == bool(share_ns)
        while partition.is_behind:
            output.append(partition.process([], now_ns=10**12))
        events = [event for each in output for event in each.events if event.trigger_id == "pairs"]
        found[share_ns] = [event.context["event_id"] for event in events]
    assert len(found[0]) == 2
    assert found[0] == found[1]


def test_a_trigger_too_far_behind_is_suspended_alone_with_the_cost_of_a_row() -> None:
    partition = fallen_behind(register("slow", IN_ORDER, TICKER), register("alert", ALERT, TICKER))
    output = partition.process([prices(3, *[5.0] * 12)])
    (report,) = output.reports
    assert (report.trigger_id, report.state) == ("slow", "suspended")
    assert report.reason.startswith("too slow: a row takes it ")
    assert report.reason.endswith(" ms, and 11 rows wait (triggers.max_waiting_rows = 10)")
    assert not partition.is_behind
    assert ids(partition.process([prices(15, 5.0)])) == ["alert"]


def test_triggers_that_share_a_stream_are_parted_before_one_waits() -> None:
    rules = TriggerRules(share_ns=1, waiting_rows=1_000)
    partition = TriggerPartition(rules)
    texts = [register("one", V_SHAPE, TICKER), register("other", V_SHAPE, OTHER)]
    partition.process([], controls=texts)
    assert partition.shards == 1
    found = []
    for number, price in enumerate((3.0, 2.0, 1.0, 2.0, 3.0, 2.0), 1):
        found += ids(partition.process([prices(number, price), prices(number, price, ticker=OTHER)]))
        while partition.is_behind:
            found += ids(partition.process([]))
    assert partition.shards == 2
    assert sorted(found) == ["one", "other"]


def test_a_trigger_that_keeps_pace_again_no_longer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = fallen_behind(register("slow", IN_ORDER, TICKER), rules=TriggerRules(share_ns=10**12))
    assert "row_ns" not in {field.name for field, _ in costs(partition)["slow"].ListFields()}
    busy = iter(range(0, 10**15, 10**13))
    monkeypatch.setattr(shares.Shares, "now", staticmethod(lambda: next(busy)))
    for number in (3, 4, 5):
        partition.process([prices(number, 1.0)])
    assert costs(partition)["slow"].row_ns >= 10**13
    monkeypatch.undo()
    partition.process([prices(6, 1.0)])
    assert costs(partition)["slow"].row_ns == 0


def test_many_triggers_behind_catch_up_although_a_turn_costs_much_more_than_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each used to take one row a step, at the price of a turn, and fell further behind."""
    slow = [register(f"slow-{place}", f"{IN_ORDER} WHERE price > {place}", TICKER) for place in range(10)]
    partition = fallen_behind(*slow)
    half_a_millisecond = iter(range(0, 10**12, 500_000))
    monkeypatch.setattr(shares.Shares, "now", staticmethod(lambda: next(half_a_millisecond)))
    partition = TriggerPartition.load(partition.save(), TriggerRules(share_ns=5_000_000, waiting_rows=10_000))
    found = ids(partition.process([prices(3, *[20.0] * 400)]))
    steps = 1
    while partition.is_behind:
        found += ids(partition.process([]))
        steps += 1
    assert sorted(found) == sorted(f"slow-{place}" for place in range(10) for _ in range(400))
    assert steps < 20
    assert {cost.waiting_rows for cost in costs(partition).values()} == {0}


def test_rows_that_wait_for_a_removed_trigger_go_with_it() -> None:
    partition = fallen_behind(register("slow", IN_ORDER, TICKER))
    partition.process([prices(3, 1.0, 2.0, 3.0)])
    partition.process([], controls=[remove("slow")])
    assert not partition.is_behind
    partition.process([], controls=[register("slow", IN_ORDER, TICKER, version=2)])
    assert ids(partition.process([prices(6, 1.0)])) == ["slow"]


def test_without_shares_waiting_rows_are_taken_at_once() -> None:
    """This happens if the other mode wrote the state."""
    partition = fallen_behind(register("slow", IN_ORDER, TICKER))
    partition.process([prices(3, 1.0, 2.0, 3.0)])
    partition = TriggerPartition.load(partition.save(), TriggerRules())
    assert ids(partition.process([prices(6, 4.0)])) == ["slow"] * 3
    assert not partition.is_behind
