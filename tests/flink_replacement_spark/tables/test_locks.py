"""Writers take turns at a table; maintenance gets it only when no writer holds or waits for it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from flink_replacement_spark.tables.locks import TableLocks
from iceberg import OHLC, TICKS
from tests.flink_replacement_spark.harness import wait_for

LONG = 30.0


def _until(found: Callable[[], bool]) -> None:
    wait_for(lambda: found() or None)


def test_a_writer_waits_for_the_one_before_it_and_is_shown_meanwhile() -> None:
    locks, order = TableLocks(), []

    def write() -> None:
        with locks.writing(OHLC, "second"):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with locks.writing(OHLC, "first"):
            second = pool.submit(write)
            _until(lambda: bool(locks.waiting()))
            (turn,) = locks.waiting()
            assert (turn.table, turn.writer) == ("ohlc", "second")
            assert turn.describe() == "second has waited 0 s for table ohlc"
            assert locks.waiting(LONG) == []
            order.append("first")
        second.result(LONG)
    assert order == ["first", "second"]
    assert locks.waiting() == []


def test_writers_get_a_table_in_the_order_in_which_they_came() -> None:
    locks, order = TableLocks(), []

    def write(number: int) -> None:
        with locks.writing(OHLC, str(number)):
            order.append(number)

    with ThreadPoolExecutor(5) as pool, locks.writing(OHLC, "first"):
        for number in range(5):
            pool.submit(write, number)
            _until(lambda: len(locks.waiting()) == number + 1)  # noqa: B023
    assert order == list(range(5))


def test_writers_of_different_tables_do_not_wait_for_each_other() -> None:
    locks = TableLocks()
    with locks.writing(OHLC, "bars"), locks.writing(TICKS, "ticks"):
        assert locks.waiting() == []


def test_maintenance_does_not_hold_a_table_that_a_writer_keeps() -> None:
    locks = TableLocks()
    with locks.writing(OHLC, "history"), locks.maintaining(OHLC, 0.01) as is_held:
        assert not is_held
    with locks.maintaining(OHLC, 0.01) as is_held:
        assert is_held


def test_a_waiting_writer_goes_before_waiting_maintenance() -> None:
    locks, order = TableLocks(), []
    begun = threading.Event()

    def write() -> None:
        with locks.writing(OHLC, "live"):
            order.append("live")

    def maintain() -> None:
        begun.set()
        with locks.maintaining(OHLC, LONG) as is_held:
            order.append("maintenance" if is_held else "gave way")

    with ThreadPoolExecutor(2) as pool:
        with locks.writing(OHLC, "history"):
            maintenance = pool.submit(maintain)
            assert begun.wait(LONG)
            writer = pool.submit(write)
            _until(lambda: bool(locks.waiting()))
        writer.result(LONG)
        maintenance.result(LONG)
    assert order == ["live", "maintenance"]


def test_the_longest_hold_of_maintenance_is_known() -> None:
    locks, moment = TableLocks(), threading.Event()
    with locks.maintaining(OHLC, LONG):
        moment.wait(0.05)
    with locks.maintaining(OHLC, LONG):
        pass
    assert locks.worst_hold_seconds["ohlc"] == pytest.approx(0.05, abs=2.0)
    assert locks.worst_hold_seconds["ohlc"] >= 0.05


def test_a_writer_that_fails_frees_its_table() -> None:
    locks = TableLocks()
    with pytest.raises(OSError, match="full"), locks.writing(OHLC, "history"):
        raise OSError("full")
    with locks.maintaining(OHLC, 0.01) as is_held:
        assert is_held


def test_a_writer_that_maintenance_keeps_waiting_is_named() -> None:
    locks = TableLocks()

    def write() -> None:
        with locks.writing(OHLC, "live bars"):
            pass

    with ThreadPoolExecutor(1) as pool:
        with locks.maintaining(OHLC, LONG) as is_held:
            assert is_held
            writer = pool.submit(write)
            _until(lambda: bool(locks.held_by_maintenance(0.0)))
            assert [turn.writer for turn in locks.held_by_maintenance(0.0)] == ["live bars"]
            assert locks.held_by_maintenance(LONG) == []
        writer.result(LONG)
    assert locks.held_by_maintenance(0.0) == []
