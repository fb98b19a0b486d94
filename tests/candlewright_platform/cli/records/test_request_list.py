"""All requests: the running ones, and the finished ones in the order in which they ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bus import topics
from bus.api import Record
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.cli.records.request_list import all_requests
from core.settings import Settings
from iceberg import COVERAGE, create_tables, load_table, open_catalog
from tests.console.calls import calling

START = 1_704_067_200 * 10**6
DAY = 86_400 * 10**6


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with EmbeddedRedis(tmp_path / "redis", "no") as redis:
        yield redis.url


def covered(request_id: str, day: int) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "ticker": "BTC/USDT.BINANCE",
        "period_seconds": 60,
        "start": START + day * DAY,
        "end": START + (day + 1) * DAY,
        "expected": 1_440,
        "got": 1_440,
        "holes": [],
        "status": "OK",
    }


def settings_with(folder: Path, redis_url: str, *, ended: dict[str, int], days: dict[str, int]) -> Settings:
    settings = Settings.model_validate({"data_dir": folder, "bus": {"url": redis_url}})
    create_tables(open_catalog(settings))
    rows = [covered(request_id, day) for request_id, day in days.items()]
    names = COVERAGE.arrow_schema.names
    columns = {name: [row.get(name) for row in rows] for name in names}
    load_table(open_catalog(settings), COVERAGE).append(pa.table(columns, schema=COVERAGE.arrow_schema))
    bus = connect(settings.bus)
    bus.create_topic(topics.NOTIFICATIONS, 1)
    bus.create_topic(topics.REQUESTS, 1)
    for name, at in ended.items():
        final = ing.HistoryReadyNotification(request_id=name, completed_at=at).SerializeToString()
        bus.publish_once(
            topics.NOTIFICATIONS,
            Record(final),
            registry=topics.REGISTRY_FINALS,
            name=name,
            content=final,
            keep_seconds=60,
        )
    bus.close()
    return settings


def test_finished_requests_are_in_the_order_in_which_they_ended(tmp_path: Path, redis_url: str) -> None:
    ended = {"list-second": 2_000, "list-third": 3_000, "list-first": 1_000}
    days = {"list-second": 9, "list-third": 1, "list-first": 5, "list-forgotten": 7, "list-longer-ago": 6}
    found = all_requests(settings_with(tmp_path, redis_url, ended=ended, days=days))
    assert [row["request_id"] for row in found if row["state"] == "done"] == [
        "list-longer-ago",
        "list-forgotten",
        "list-first",
        "list-second",
        "list-third",
    ]


async def test_the_limit_of_the_api_keeps_the_newest_requests_whatever_their_range(
    tmp_path: Path, redis_url: str
) -> None:
    ended = {f"limit-{number}": 1_000 + number for number in range(30)}
    days = {f"limit-{number}": 100 - number for number in range(30)}
    settings = settings_with(tmp_path, redis_url, ended=ended, days=days)
    async with calling(settings) as http:
        found = (await http.get("/api/v1/history", params={"limit": 2})).json()["requests"]
    assert [row["request_id"] for row in found] == ["limit-28", "limit-29"]
