"""Notification of published records."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bus.api import Record
from bus.connect import messaging_of
from gateways.rocketmq.store import Store, set_within
from tests.fresh_bus import FreshBus


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    bus = FreshBus()
    store = Store(bus, messaging_of(bus))
    store.start()
    yield store
    await store.stop()


async def test_a_record_wakes_waiters_for_its_partition(store: Store) -> None:
    store.bus.create_topic("t", 2)
    event, other = asyncio.Event(), asyncio.Event()
    # A partition that was not watched before is checked once.
    for _ in range(2):
        store.watch([("t", 0)], event)
        store.watch([("t", 1)], other)
        await set_within(event, 1.0)
        await set_within(other, 0.1)
    store.watch([("t", 0)], event)
    store.watch([("t", 1)], other)
    store.bus.publish("t", [Record(b"x", partition=0)])
    assert await set_within(event, 5.0)
    assert not other.is_set()


async def test_nothing_is_kept_of_waiters_that_timed_out(store: Store) -> None:
    store.bus.create_topic("t", 1)
    for _ in range(50):
        event = asyncio.Event()
        store.watch([("t", 0)], event)
        store.watch([("t", 0)], event)
        store.unwatch([("t", 0)], event)
    assert store.waiting == 0
    store.watch([("t", 0)], event)
    assert store.waiting == 1
    store.nudge_all()
    assert event.is_set()
    assert store.waiting == 0
