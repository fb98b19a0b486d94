"""The warm-up of a standby leaves nothing behind."""

from pathlib import Path

from flink_replacement_spark.driver.warm import warm_streaming
from tests.flink_replacement_spark.running import Platform


def names(platform: Platform) -> list[str]:
    return [query.name for query in platform.driver.session.streams.active]


def test_a_warm_query_ends_by_itself_and_leaves_no_file(platform: Platform, tmp_path: Path) -> None:
    # Called before each wait: the warm-up ended because its batches were complete, not on request.
    asked: list[list[str]] = []

    def is_over() -> bool:
        asked.append(names(platform))
        return False

    warm_streaming(platform.driver.session, tmp_path, is_over)
    assert ["warm-up" in each for each in asked].count(True) >= 1
    assert "warm-up" not in names(platform)
    assert list(tmp_path.iterdir()) == []


def test_the_warm_up_stops_at_once_when_a_term_begins(platform: Platform, tmp_path: Path) -> None:
    warm_streaming(platform.driver.session, tmp_path, lambda: True)
    assert "warm-up" not in names(platform)
