"""A query whose tasks do not end follows the cores of the cluster."""

from flink_replacement_spark.engine.sizing import LACKING_SECONDS, SETTLED_SECONDS, Sizing


def test_tasks_that_lack_a_core_are_replaced_by_fewer_within_seconds() -> None:
    """Tasks used to wait until a new executor had fetched its jars and started Java and Python."""
    sizing = Sizing(2)
    assert not sizing.must_begin_anew(1, all_run=False, at=10.0)
    assert sizing.must_begin_anew(1, all_run=False, at=10.0 + LACKING_SECONDS)


def test_tasks_that_found_a_core_elsewhere_continue() -> None:
    sizing = Sizing(2)
    assert not sizing.must_begin_anew(1, all_run=False, at=10.0)
    assert not sizing.must_begin_anew(1, all_run=True, at=10.5)
    assert not sizing.must_begin_anew(1, all_run=False, at=20.0)
    assert not sizing.must_begin_anew(2, all_run=True, at=30.0)


def test_a_change_that_lasts_is_followed_both_ways() -> None:
    """Fewer cores leave none for history, and a query that began before its executors had one task permanently."""
    for wanted in (1, 4):
        sizing = Sizing(2)
        assert not sizing.must_begin_anew(wanted, all_run=True, at=10.0)
        assert not sizing.must_begin_anew(wanted, all_run=True, at=9.0 + SETTLED_SECONDS)
        assert sizing.must_begin_anew(wanted, all_run=True, at=10.0 + SETTLED_SECONDS)


def test_tasks_that_begin_are_not_replaced_by_as_many() -> None:
    sizing = Sizing(2)
    for at in (0.0, 100.0, 200.0):
        assert not sizing.must_begin_anew(2, all_run=False, at=at)
